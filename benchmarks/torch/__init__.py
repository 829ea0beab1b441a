"""What a torch cell costs under `%%tpu_run`, as ratios: `python -m benchmarks.torch`."""
