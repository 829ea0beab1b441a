"""Whether `%tpu_timeit` and `%%tpu_compare` tell the truth: `python -m benchmarks.timing`."""
