"""How a `%%tpu_run` cell stays a cell: its text and tree, its beginning and end, its cost."""
