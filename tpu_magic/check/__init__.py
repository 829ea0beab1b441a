"""`%%tpu_check`: does a cell compile and fit on a TPU, asked of the real compiler without one."""
