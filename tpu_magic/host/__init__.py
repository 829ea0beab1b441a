"""Where am I: read from files, variables and metadata that are handed in."""
