"""What verification runs in a child process: import, devices, one product with a checked result.

Read as text and run with `python -c`, so that the child needs no tpu_magic and sees the same
modules as a notebook's cell. Says what it found in one JSON line.
"""

import importlib
import json
import sys

MARK = "tpu_magic verified: "
SIZE = 128
Found = tuple[str, int, float]  # platform, devices, sum over the product


def matrix() -> list[list[int]]:
    """Return A[i][j] = (i + 2 j) % 5: small integers, exact in bfloat16."""
    return [[(i + 2 * j) % 5 for j in range(SIZE)] for i in range(SIZE)]


def expected() -> int:
    """Return the sum over A @ A."""
    a = matrix()
    columns = [sum(row[k] for row in a) for k in range(SIZE)]
    return sum(columns[k] * sum(a[k]) for k in range(SIZE))


def torch_xla() -> Found:
    """Use torch on XLA."""
    import torch
    import torch_xla
    import torch_xla.runtime as xr

    i = torch.arange(SIZE)
    a = ((i[:, None] + 2 * i[None, :]) % 5).float().to(torch_xla.device())
    return xr.device_type(), xr.global_runtime_device_count(), float((a @ a).cpu().double().sum())


def torch_eager() -> Found:
    """Use torch as it is."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    i = torch.arange(SIZE)
    a = ((i[:, None] + 2 * i[None, :]) % 5).float().to(device)
    count = torch.cuda.device_count() if device == "cuda" else 1
    return device.upper(), count, float((a @ a).cpu().double().sum())


def torch_tpu() -> Found:
    """Use torch on TorchTPU; only where there is a TPU, for without one it aborts."""
    import torch

    importlib.import_module("torch_tpu._loader").load()
    i = torch.arange(SIZE)
    a = ((i[:, None] + 2 * i[None, :]) % 5).float().to("tpu")
    return "TPU", torch.accelerator.device_count(), float((a @ a).cpu().double().sum())


def jax() -> Found:
    """Use jax."""
    import jax
    import jax.numpy as jnp

    i = jnp.arange(SIZE)
    a = ((i[:, None] + 2 * i[None, :]) % 5).astype("float32")
    devices = jax.devices()
    product = jax.device_get(a @ a)
    return devices[0].platform.upper(), len(devices), float(product.astype("float64").sum())


def tensorflow() -> Found:
    """Use TensorFlow."""
    import tensorflow as tf

    kind = "TPU" if tf.config.list_physical_devices("TPU") else "CPU"
    i = tf.range(SIZE)
    a = tf.cast((i[:, None] + 2 * i[None, :]) % 5, "float32")
    product = (a @ a).numpy()
    return kind, len(tf.config.list_logical_devices(kind)), float(product.astype("float64").sum())


def keras() -> Found:
    """Use Keras, on the devices of its backend."""
    import keras

    i = keras.ops.arange(SIZE)
    a = keras.ops.cast((i[:, None] + 2 * i[None, :]) % 5, "float32")
    product = keras.ops.convert_to_numpy(a @ a)
    below = {"jax": jax, "tensorflow": tensorflow, "torch": torch_eager}
    device, count, _ = below[keras.backend.backend()]()
    return device, count, float(product.astype("float64").sum())


USES = {
    "torch": torch_xla,
    "torch-eager": torch_eager,
    "torch-tpu": torch_tpu,
    "jax": jax,
    "keras": keras,
    "tf": tensorflow,
}

if __name__ == "__main__":
    device, count, total = USES[sys.argv[1]]()
    found = {"device": device, "count": count, "total": total, "expected": expected()}
    sys.stdout.write(f"\n{MARK}{json.dumps(found)}\n")
