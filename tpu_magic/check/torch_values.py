"""What a torch cell gets where nothing is computed: made-up values, and no work for batches."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from tpu_magic.check.child import Enough, Program, Seen, Task, replaced
from tpu_magic.check.loops import Rounds
from tpu_magic.check.places import Person, Place
from tpu_magic.check.refuse import Refusals

# Nobody reads what a large tensor holds: from this size on it is not drawn.
_MUCH_TO_DRAW = 1 << 26
# A loop of a library is not ours to cut: after so many programs with nothing new, enough.
_PATIENCE = 24
_MOST_PROGRAMS = 64
# What a runtime says when a value is wanted that no program computed.
_NO_VALUE = "HasValue()"
_DYNAMIC = frozenset({
    "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim",
    "aten::unique_consecutive", "aten::nonzero_numpy", "aten::bincount",
    "aten::repeat_interleave.Tensor",
})  # fmt: skip


class TorchCapture:
    """What both ways of recording a torch cell share.

    Attributes
    ----------
    kind
        Type of the device that nothing runs on.
    """

    kind = ""

    def __init__(
        self, task: Task, seen: Seen, rounds: Rounds, person: Person, refusals: Refusals
    ) -> None:
        self._task, self._seen, self._rounds = task, seen, rounds
        self._person, self._refusals = person, refusals
        self._known: dict[str, Program] = {}
        self._since_new = 0
        self._session: Any = None
        self._steps_before = 0
        # Tensors whose values were read: a device would have had to compute them.
        self._wanted: list[Tensor] = []
        self._plain_text = vars(_printing())["_str"]
        self._patch_writers()

    @contextmanager
    def made_up_values(self) -> Iterator[None]:
        """Let whatever reads a value get one that code can go on with."""
        with ExitStack() as undo:
            undo.enter_context(replaced(_printing(), "_str", self._text))
            iterator = _in_this_process(vars(DataLoader)["_get_iterator"])
            undo.enter_context(replaced(DataLoader, "_get_iterator", iterator))
            undo.enter_context(ValuesMadeUp(self))
            yield

    def finish(self) -> None:
        """End the last program, as the end of a cell does."""
        self._session.finish()
        self._seen.examples = self._session.facts.global_batch

    # --- programs -------------------------------------------------------------------------

    def _note_program(self, digest: str) -> str | None:
        """Count a program; return the file that it goes into if it is new."""
        self._rounds.ended += 1
        self._wanted.clear()
        steps = self._session.optimizer_steps
        trains, self._steps_before = steps > self._steps_before, steps
        known = self._known.get(digest)
        if known is not None:
            known.runs += 1
            self._since_new += 1
            return None
        self._since_new = 0
        self._rounds.new += 1
        path = f"{self._task.folder}/program-{len(self._known)}.bc"
        program = Program(path, self._person.here(), trains=trains)
        self._known[digest] = program
        self._seen.programs.append(program)
        return path

    def _leave_when_enough(self) -> None:
        if self._since_new > _PATIENCE or len(self._known) > _MOST_PROGRAMS:
            raise Enough

    # --- tensors --------------------------------------------------------------------------

    def is_there(self, value: Any) -> bool:
        """Say whether something is a tensor on the device."""
        return isinstance(value, Tensor) and value.device.type == self.kind

    def moved(self, tensor: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return what stands on the device for a host tensor; None to really move it."""
        raise NotImplementedError

    def put(self, tensor: Tensor) -> Tensor:
        """Return a host tensor on the device."""
        raise NotImplementedError

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call an operation."""
        return func(*args, **kwargs)

    # --- what is told ---------------------------------------------------------------------

    def read(self, what: str, tensor: Tensor) -> None:
        """Note that a tensor's value is read back here, which its program must give then."""
        self._wanted.append(tensor)
        place: Place | None = self._person.here()
        text = f"{what} ({place})" if place else what
        if text not in self._seen.reads:
            self._seen.reads.append(text)

    def note(self, text: str) -> None:
        """Add a note with the person's line."""
        place = self._person.here()
        self._seen.note(f"{text} ({place})" if place else text)

    def _text(self, tensor: Any, *, tensor_contents: Any = None) -> str:
        if tensor.device.type == self.kind:
            self.read("print", tensor)
            tensor = made_up(tensor.shape, tensor.dtype)
        text: str = self._plain_text(tensor, tensor_contents=tensor_contents)
        return text

    def _patch_writers(self) -> None:
        """Let `torch.save` write nothing: it writes below Python, where nobody can refuse."""

        def save(obj: Any, f: Any, *_: Any, **__: Any) -> None:
            del obj
            self._refusals.add(f"write {f}")

        save.__module__, save.__qualname__ = "torch.serialization", "save"
        torch.save = torch.serialization.save = save


def made_up(shape: Any, dtype: torch.dtype) -> Tensor:
    """Return host values that code can go on with: ones, nothing true, zeros as positions."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.ones(shape, dtype=dtype)
    return torch.zeros(shape, dtype=dtype)


def untouched(like: Tensor) -> Tensor:
    """Return host zeros whose memory nobody has touched yet, so that it takes none."""
    flat = torch.from_numpy(np.zeros(like.numel() * like.element_size(), np.uint8))
    return flat.view(like.dtype).view(like.shape)


def _is_large(tensor: Any) -> bool:
    """Say whether drawing a tensor's numbers would take noticeable time."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        return False
    return bool(tensor.numel() * tensor.element_size() >= _MUCH_TO_DRAW)


class ValuesMadeUp(TorchDispatchMode):  # type: ignore[misc]  # torch's classes are Any here
    """The mode in which reads of device values give made-up ones."""

    def __init__(self, capture: TorchCapture) -> None:
        super().__init__()
        self._capture = capture

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operation; what would need a device's value gets a made-up one."""
        del types
        kwargs, name = kwargs or {}, func._schema.name  # noqa: SLF001 - its only name
        result = self._read(func, args, kwargs)
        if result is None:
            result = self._without_work(func, args, kwargs)
        if result is not None:
            return result
        if name in _DYNAMIC and any(map(self._capture.is_there, args)):
            self._capture.note(f"{name}: its size is only known when it has run")
            return self._on_host(func, args, kwargs)
        try:
            return self._capture.call(func, args, kwargs)
        except NotImplementedError:
            self._capture.note(f"{name}: its shape cannot be told; it runs on the host")
            return self._on_host(func, args, kwargs)
        except RuntimeError as error:
            if _NO_VALUE not in str(error):
                raise
            self._capture.note(f"{name} has no TPU kernel and runs on the host")
            return self._on_host(func, args, kwargs)

    def _read(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return a made-up result of what reads device values; None for what does not."""
        aten, to, there = torch.ops.aten, kwargs.get("device"), self._capture.is_there
        if func is aten._local_scalar_dense.default and there(args[0]):  # noqa: SLF001
            self._capture.read("a value is read", args[0])
            return made_up((), args[0].dtype).item()
        to_host = to is not None and to.type == "cpu"
        if func is aten._to_copy.default and there(args[0]) and to_host:  # noqa: SLF001
            self._capture.read("values are read", args[0])
            return made_up(args[0].shape, kwargs.get("dtype") or args[0].dtype)
        if func is aten.copy_.default and there(args[1]) and not there(args[0]):
            self._capture.read("values are read", args[1])
            return args[0].copy_(made_up(args[1].shape, args[1].dtype))
        return None

    def _without_work(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return a large tensor that is only moved, or drawn at random, without doing it."""
        if func is torch.ops.aten._to_copy.default:  # noqa: SLF001
            to = kwargs.get("device")
            if to is None or to.type != self._capture.kind or args[0].device.type != "cpu":
                return None
            return self._capture.moved(args[0], kwargs.get("dtype") or args[0].dtype)
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return None
        if func._schema.is_mutable:  # noqa: SLF001
            target = args[0]
            return target if target.device.type == "cpu" and _is_large(target) else None
        return self._drawn(func, args, kwargs)

    def _drawn(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return untouched memory for large random numbers; None for anything else."""
        if any(isinstance(item, Tensor) for item in (*args, *kwargs.values())):
            return None
        # The shape alone, and from no generator: theirs are of the host.
        shapes = {name: None if name == "generator" else kwargs[name] for name in kwargs}
        try:
            told = func(*args, **{**shapes, "device": "meta"})
        except (RuntimeError, TypeError):
            return None
        on_host = kwargs.get("device") in (None, torch.device("cpu"))
        return untouched(told) if on_host and _is_large(told) else None

    def _on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what an operation gives for made-up host values, on the device."""

        def host(tensor: Tensor) -> Tensor:
            return made_up(tensor.shape, tensor.dtype) if self._capture.is_there(tensor) else tensor

        args, kwargs = pytree.tree_map_only(Tensor, host, (args, kwargs))
        return pytree.tree_map_only(Tensor, self._capture.put, func(*args, **kwargs))


def _printing() -> Any:
    """Return torch's module that prints tensors."""
    return importlib.import_module("torch._tensor_str")


def _in_this_process(original: Any) -> Any:
    """Return a `DataLoader._get_iterator` that starts no workers."""

    def _get_iterator(loader: Any) -> Any:
        # Its own setters refuse changes to a loader that exists.
        vars(loader).update(
            num_workers=0,
            prefetch_factor=None,
            timeout=0,
            persistent_workers=False,
            _DataLoader__multiprocessing_context=None,
        )
        return original(loader)

    return _get_iterator
