"""Recording the programs of a torch cell: traced as `%%tpu_run` traces it, never executed.

torch_xla records lazily. Where it would hand a program to the device, the program is
exported and every tensor it would have computed gets a placeholder of its shape: so the
second step sees the first one's results as inputs, as on a device, and nothing is compiled
or computed. What reads a value back gets a made-up one.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

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
from tpu_magic.host import detect
from tpu_magic.host.detect import HostFacts
from tpu_magic.options import RunOptions

# A loop of a library is not ours to cut: after so many programs with nothing new, enough.
_PATIENCE = 24
_MOST_PROGRAMS = 64
# Nobody reads what a batch holds: from these sizes on it is neither drawn nor copied.
_MUCH_TO_MOVE = 1 << 20
_MUCH_TO_DRAW = 1 << 26
# What a runtime says when a value is wanted that no program computed.
_NO_VALUE = "HasValue()"
_DYNAMIC = frozenset({
    "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim",
    "aten::unique_consecutive", "aten::nonzero_numpy", "aten::bincount",
    "aten::repeat_interleave.Tensor",
})  # fmt: skip


class Capture:
    """Records the programs of one torch cell. `child.Capture`."""

    def __init__(
        self, task: Task, seen: Seen, rounds: Rounds, person: Person, refusals: Refusals
    ) -> None:
        from tpu_magic.frameworks import adapter

        # A TPU of this machine is none of the check's: the cell is traced on XLA's CPU device.
        vars(detect)["detect"] = _no_tpu
        self._adapter = cast("Any", adapter("torch"))
        self._adapter.connect(simulate=task.devices if task.devices > 1 else None)
        self._task, self._seen, self._rounds = task, seen, rounds
        self._person, self._refusals = person, refusals
        self.device = str(self._adapter.placement.device)
        self._known: dict[str, Program] = {}
        self._since_new = 0
        self._session: Any = None
        self._steps_before = 0
        self._plain_text = vars(_printing())["_str"]
        self._patch_writers()

    # --- the cell's life ------------------------------------------------------------------

    @contextmanager
    def running(self, namespace: dict[str, Any]) -> Iterator[None]:
        """Run the cell as `%%tpu_run` would, with every program recorded."""
        import torch_xla

        extension = torch_xla._XLAC  # noqa: SLF001
        self._end_real_step = extension._xla_step_marker  # noqa: SLF001
        options = RunOptions(precision=self._task.options["precision"])
        with ExitStack() as undo:
            undo.enter_context(replaced(extension, "_xla_step_marker", self._boundary))
            undo.enter_context(replaced(extension, "_xla_sync_multi", self._boundary))
            undo.enter_context(replaced(_printing(), "_str", self._text))
            iterator = _in_this_process(vars(DataLoader)["_get_iterator"])
            undo.enter_context(replaced(DataLoader, "_get_iterator", iterator))
            undo.enter_context(ValuesMadeUp(self))
            self._session = undo.enter_context(self._adapter.cell(options, namespace))
            yield

    def finish(self) -> None:
        """End the last program, as the end of a cell does."""
        self._session.finish()
        self._seen.examples = self._session.facts.global_batch

    # --- programs -------------------------------------------------------------------------

    def _boundary(self, *_: Any, **__: Any) -> None:
        """Record what would go to the device now, and put placeholders in its place."""
        import torch_xla

        extension = torch_xla._XLAC  # noqa: SLF001
        with self._refusals.paused():
            with suppress(RuntimeError):
                self._record(extension._get_stablehlo([], self.device, [], True))  # noqa: SLF001
            extension._clear_pending_irs(self.device)  # noqa: SLF001
            # Nothing is left for it to run; it makes the next step's random numbers.
            self._end_real_step(self.device, [], False)
        if self._since_new > _PATIENCE or len(self._known) > _MOST_PROGRAMS:
            raise Enough

    def _record(self, artifact: bytes) -> None:
        if not artifact:
            return  # nothing is alive
        digest = hashlib.sha256(artifact).hexdigest()
        self._rounds.ended += 1
        steps = self._session.optimizer_steps
        trains, self._steps_before = steps > self._steps_before, steps
        known = self._known.get(digest)
        if known is not None:
            known.runs += 1
            self._since_new += 1
            return
        self._since_new = 0
        self._rounds.new += 1
        path = Path(self._task.folder, f"program-{len(self._known)}.bc")
        path.write_bytes(artifact)
        program = Program(str(path), self._person.here(), trains=trains)
        self._known[digest] = program
        self._seen.programs.append(program)

    # --- values ---------------------------------------------------------------------------

    def moved(self, tensor: Tensor, options: dict[str, Any]) -> Tensor | None:
        """Return a placeholder for a large host tensor on its way to the device.

        None for small ones, and for several devices: a placeholder cannot be split.
        """
        to = options.get("device")
        if to is None or to.type != "xla" or tensor.device.type != "cpu":
            return None
        large = tensor.numel() * tensor.element_size() >= _MUCH_TO_MOVE
        if not large or self._task.devices > 1:
            return None
        from torch_xla.core.xla_builder import create_placeholder_tensor

        made: Tensor = create_placeholder_tensor(tensor.shape, options.get("dtype") or tensor.dtype)
        return made

    def read(self, what: str) -> None:
        """Note that a value is read back here."""
        place: Place | None = self._person.here()
        text = f"{what} ({place})" if place else what
        if text not in self._seen.reads:
            self._seen.reads.append(text)

    def note(self, text: str) -> None:
        """Add a note with the person's line."""
        place = self._person.here()
        self._seen.note(f"{text} ({place})" if place else text)

    def _text(self, tensor: Any, *, tensor_contents: Any = None) -> str:
        if tensor.device.type == "xla":
            self.read("print")
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


def _there(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == "xla"


class ValuesMadeUp(TorchDispatchMode):  # type: ignore[misc]  # torch's classes are Any here
    """The mode in which reads of device values give made-up ones."""

    def __init__(self, capture: Capture) -> None:
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
        if name in _DYNAMIC and any(map(_there, args)):
            self._capture.note(f"{name}: its size is only known when it has run")
            return self._on_host(func, args, kwargs)
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if _NO_VALUE not in str(error):
                raise
            self._capture.note(f"{name} has no TPU kernel and runs on the host")
            return self._on_host(func, args, kwargs)

    def _read(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return a made-up result of what reads device values; None for what does not."""
        aten, to = torch.ops.aten, kwargs.get("device")
        if func is aten._local_scalar_dense.default and _there(args[0]):  # noqa: SLF001
            self._capture.read("a value is read")
            return made_up((), args[0].dtype).item()
        to_host = to is not None and to.type == "cpu"
        if func is aten._to_copy.default and _there(args[0]) and to_host:  # noqa: SLF001
            self._capture.read("values are read")
            return made_up(args[0].shape, kwargs.get("dtype") or args[0].dtype)
        if func is aten.copy_.default and _there(args[1]) and not _there(args[0]):
            self._capture.read("values are read")
            return args[0].copy_(made_up(args[1].shape, args[1].dtype))
        return None

    def _without_work(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return a large tensor that is only moved, or drawn at random, without doing it."""
        if func is torch.ops.aten._to_copy.default:  # noqa: SLF001
            return self._capture.moved(args[0], kwargs)
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return None
        if func._schema.is_mutable:  # noqa: SLF001
            target = args[0]
            return target if target.device.type == "cpu" and _is_large(target) else None
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
            return made_up(tensor.shape, tensor.dtype) if _there(tensor) else tensor

        args, kwargs = pytree.tree_map_only(Tensor, host, (args, kwargs))
        device = self._capture.device
        return pytree.tree_map_only(Tensor, lambda item: item.to(device), func(*args, **kwargs))


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


def _no_tpu(*_: Any) -> HostFacts:
    return HostFacts("plain", None, None, 0, 0, 1, False, (), ())
