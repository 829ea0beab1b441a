"""Whether a cell left the process and the shell as they were.

`state(shell)` is everything that a cell on the device may change for a while: attributes of
classes and modules that get patched, hooks, modes, defaults, generators, the environment,
signal handlers, threads, and what is registered with the shell. `untouched` compares it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import sys
import threading
import warnings

# Places in which a patch could stay behind; each attribute is compared by identity.
_PLACES = (
    "builtins", "os", "random", "signal", "threading",
    "numpy", "numpy.random", "torch", "torch.Tensor", "torch._C", "torch.autograd", "torch.cuda",
    "torch.cuda.amp", "torch.amp", "torch.nn.Module", "torch.nn.functional", "torch.nn.Parameter",
    "torch.optim.Optimizer", "torch.overrides", "torch.random", "torch.serialization",
    "torch.utils.data.DataLoader", "torch.utils.data.dataloader",
    "torch_xla", "torch_xla.runtime", "torch_xla.core.xla_model",
)  # fmt: skip
# Attributes that are caches or counters of the library's own.
_MOVING = frozenset({"torch.optim.Optimizer._zero_grad_profile_name"})


def _resolve(name: str):
    """Return a module or a class of a loaded module; None when it is not loaded."""
    if name in sys.modules:
        return sys.modules[name]
    owner, _, attribute = name.rpartition(".")
    return getattr(sys.modules[owner], attribute, None) if owner in sys.modules else None


def _attributes() -> dict:
    """Return the identity of every attribute of the places; submodules come by importing."""
    found = {}
    for place in _PLACES:
        for name, value in list(vars(_resolve(place) or object).items()):
            full = f"{place}.{name}"
            if (
                not isinstance(value, type(sys))
                and full not in _MOVING
                and name != "__warningregistry__"
            ):
                found[full] = id(value)
    return found


def _torch_state() -> dict:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_rng_state"):
        return {}
    from torch.nn.modules import module
    from torch.optim import optimizer

    hooks = {
        f"{owner.__name__}.{name}": list(value.items())
        for owner in (module, optimizer)
        for name, value in vars(owner).items()
        if name.startswith("_global_") and hasattr(value, "items")
    }
    return {
        "torch generator": torch.get_rng_state().tolist(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autograd threads": torch.autograd.is_multithreading_enabled(),
        "modes": torch.overrides._get_current_function_mode_stack(),
        "functions disabled": torch._C._is_torch_function_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads of torch": torch.get_num_threads(),
        **hooks,
    }


def _numpy_state():
    numpy = sys.modules.get("numpy")
    return None if numpy is None else repr(numpy.random.get_state())


def state(shell) -> dict:
    """Return everything that is compared, by name."""
    return {
        **_attributes(),
        **_torch_state(),
        **{f"${name}": value for name, value in os.environ.items()},
        "random": random.getstate(),
        "numpy generator": _numpy_state(),
        "SIGINT": signal.getsignal(signal.SIGINT),
        "trace": (sys.gettrace(), sys.excepthook, sys.displayhook),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "log handlers": list(logging.root.handlers),
        "warning filters": list(warnings.filters),
        "text transformers": list(shell.input_transformers_cleanup),
        "line transformers": list(shell.input_transformers_post),
        "tree transformers": list(shell.ast_transformers),
        "callbacks": {event: list(found) for event, found in shell.events.callbacks.items()},
        "interactivity": shell.ast_node_interactivity,
        "own names": sorted(name for name in shell.user_ns if name.startswith("__tpu")),
    }


@contextlib.contextmanager
def untouched(shell, *expected: str):
    """Fail when anything differs after the block; `expected` names what the cell itself changes."""
    before = state(shell)
    yield
    after = state(shell)
    differing = {
        name: (before.get(name), after.get(name))
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name) and name not in expected
    }
    # Modules that the cell imported bring attributes of their own; they patch nothing.
    fresh = {name for name in differing if name not in before and "." in name}
    left = {name: pair for name, pair in differing.items() if name not in fresh}
    assert not left, f"the cell left behind: {left}"
