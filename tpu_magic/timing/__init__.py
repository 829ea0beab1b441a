"""Timing that is true: the runner, its statistics, and what is shown of them."""
