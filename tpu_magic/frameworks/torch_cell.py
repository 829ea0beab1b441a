"""A cell of torch code on the XLA device: modules, batches, steps, and putting things back."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch_xla
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.nn.utils.rnn import PackedSequence
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader
from torch_xla.core import xla_model

from tpu_magic.frameworks import torch_facts, torch_feed, torch_move, torch_profile
from tpu_magic.frameworks.base import CellFacts, Namespace
from tpu_magic.frameworks.torch_meet import Meet
from tpu_magic.frameworks.torch_operands import every_tensor, exchanged
from tpu_magic.frameworks.torch_patches import patched
from tpu_magic.frameworks.torch_place import Placement
from tpu_magic.frameworks.torch_runtime import precision, wait_interruptibly
from tpu_magic.frameworks.torch_steps import Steps
from tpu_magic.frameworks.torch_wiring import Wiring
from tpu_magic.options import RunOptions

NOTHING_RAN = (
    "no model was called, and no tensor operation in it was worth the device "
    "(matrix products, convolutions, attention, FFTs, solvers)"
)


class TorchCell:
    """The session of one cell. `frameworks.base.CellSession`."""

    def __init__(
        self, options: RunOptions, namespace: Namespace, placement: Placement, device_kind: str
    ) -> None:
        self.facts = CellFacts(precision=options.precision, notes=torch_facts.environment_notes())
        self.placement = placement
        self.device_kind = device_kind
        if options.profile is not None:
            self.facts.notes.append(torch_profile.sentence(options.profile))
        self._options = options
        self._namespace = namespace
        self._thread = threading.get_ident()
        self._meet = Meet(placement, self._reading, self._recorded_long)
        self._code = torch_facts.Cell(namespace)
        self._paused: Any = None
        self._prepared = torch_move.WeakIdentitySet()
        # Of each module, the (training, gradients wanted, packed) in which it needs no help.
        self._needs_no_help: weakref.WeakKeyDictionary[nn.Module, set[tuple[bool, ...]]]
        self._needs_no_help = weakref.WeakKeyDictionary()
        self._kept = {id(namespace[name]) for name in options.keep if name in namespace}
        self._called_kept: dict[str, int | None] = {}
        self._files: dict[int, Tensor] = {}
        self._fused: list[tuple[dict[str, Any], Any]] = []
        self._steps = Steps(self.facts, self._code)
        self._optimizer_started = 0.0
        self._final_block_s = 0.0

    # --- the cell's life ------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[TorchCell]:
        """Run the cell: everything that is changed here is undone on the way out."""
        with ExitStack() as undo:
            undo.callback(self._forget)
            # The autograd engine counts devices once, at the first backward of the process;
            # with its threads off it does not need to know ours (facts: INTERNAL ASSERT).
            undo.enter_context(torch.autograd.set_multithreading_enabled(False))
            undo.enter_context(precision(self._options.precision))
            # torch.compile has no code for the device, which compiles whole steps by itself.
            undo.enter_context(torch.compiler.set_stance("force_eager"))
            for handle in (
                register_optimizer_step_pre_hook(self._before_optimizer),
                register_optimizer_step_post_hook(self._after_optimizer),
                register_module_module_registration_hook(self._module_changed),
                register_module_parameter_registration_hook(self._tensor_changed),
                register_module_buffer_registration_hook(self._tensor_changed),
            ):
                undo.callback(handle.remove)
            undo.callback(self._restore_fused)
            undo.enter_context(patched(self, self._namespace, self._thread))
            if self._options.seed is not None:
                torch.manual_seed(self._options.seed)
            undo.enter_context(self._meet)
            undo.callback(self._resume)
            yield self

    def finish(self) -> None:
        """Compute what is pending, wait until the device is done, and give back what was lent."""
        self.synchronize()
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            self._meet.lending.give_back()

    def synchronize(self) -> None:
        """Compute what is pending and wait until the device is done."""
        self._resume()
        self._end_step()
        started, blocked_s = time.perf_counter(), self._steps.blocked_s()
        # A thread of its own costs more than an empty cell: nothing used, nothing to wait for.
        wait_interruptibly() if self._meet.used else xla_model.wait_device_ops()
        # Of the final wait, what the runtime does not count as blocked itself.
        waited_s = time.perf_counter() - started
        self._final_block_s = self._steps.blocked_s() - blocked_s
        self.facts.device_wait_s += max(0.0, waited_s - self._final_block_s)
        self.facts.execute_s = self._steps.busy_s()
        self._summarise()

    def _summarise(self) -> None:
        facts = self.facts
        # Handing a program over blocks while the device is behind: that is waiting.
        blocked_s = self._steps.blocked_s() - self._final_block_s
        facts.trace_s = max(0.0, self._steps.trace_s + self._meet.trace_s - blocked_s)
        facts.reached_device = self._meet.used
        facts.unreached_reason = "" if self._meet.used else self._why_nothing_ran()
        if self._meet.used:
            for sentence in torch_facts.left_on_host(self._meet.left):
                self.say_once(sentence)
        self._steps.summarise()
        if facts.global_batch in self.placement.undivided:
            self.say_once(
                f"a batch of {facts.global_batch} does not divide over the devices: each computes "
                "all of it"
            )

    def _why_nothing_ran(self) -> str:
        if not self._called_kept:
            return "; ".join(torch_facts.left_on_host(self._meet.left)) or NOTHING_RAN
        return "; ".join(
            f"{name} was kept on the host by --keep (called in line {line})"
            for name, line in self._called_kept.items()
        )

    def _forget(self) -> None:
        """Hold nothing of the person's after the cell."""
        self._summarise()
        self._meet.forget()
        self.placement.forget_all()
        self._files.clear()

    @property
    def optimizer_steps(self) -> int:
        """How often optimizers have stepped in the cell."""
        return self._steps.optimizer_steps

    # --- modules --------------------------------------------------------------------------

    @property
    def inside(self) -> bool:
        """Whether a module's call, or code that gets no help, is running."""
        return self._meet.inside

    @inside.setter
    def inside(self, value: bool) -> None:
        self._meet.inside = value

    @property
    def wiring(self) -> Wiring:
        """Which tensors the program that is being recorded takes, and in what order."""
        return self._meet.wiring

    def call_module(
        self, module: nn.Module, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run an outermost module call on the device."""
        __tracebackhide__ = True
        self._resume()
        if id(module) in self._kept:
            self._called_kept.setdefault(self._name_of(module), self._code.line())
            args, kwargs = exchanged(self.placement.read, args, kwargs)
            with self._native():
                return call(module, *args, **kwargs)
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - our own work, not the person's
            self._steps.module_called(module, self._meet.backwards)
            if torch_facts.is_compiled(module):
                self.say_once(torch_facts.NOT_COMPILED.format(name=self._name_of(module)))
            self.prepare(module)
            # Weights on the device are computed with there; without any, the mode will see.
            first = next(module.parameters(), None)
            args, kwargs = self._feed_call(args, kwargs, is_model=first is not None)
            self._meet.wire_call(module, every_tensor(args, kwargs))
        self._meet.used = self._meet.used or (first is not None and self.placement.is_there(first))
        started, self.inside = time.perf_counter(), True
        # A module whose call needed no help once runs without the mode from then on.
        packed = any(isinstance(item, PackedSequence) for item in args)
        manner = (module.training, torch.is_grad_enabled(), packed)
        try:
            if manner in self._needs_no_help.get(module, ()):
                with torch._C.DisableTorchFunction():  # noqa: SLF001
                    return call(module, *args, **kwargs)
            self._meet.helped = False
            result = call(module, *args, **kwargs)
            if not self._meet.helped and _only_mode(self._meet):
                self._needs_no_help.setdefault(module, set()).add(manner)
            return result
        finally:
            self.inside = False
            self._steps.trace_s += time.perf_counter() - started

    def prepare(self, module: nn.Module) -> None:
        """Move a module to the device, once, and remember what was moved."""
        functorch = torch._C._functorch  # noqa: SLF001
        if functorch.peek_interpreter_stack() is not None and any(
            functorch.is_functorch_wrapped_tensor(item) for item in module.parameters()
        ):
            return  # `functional_call` within `vmap` or `grad`: not the module's own tensors
        first = next(module.parameters(), None)
        if module in self._prepared and (first is None or self.placement.is_there(first)):
            return
        self._prepared.add(module)
        for tensor in (*module.parameters(), *module.buffers()):
            self.placement.forget(tensor)
        moved = torch_move.move_module(module, self.placement.replicate, self.placement.is_there)
        self._note_move(moved, module, "parameter")

    def _module_changed(self, _: nn.Module, __: str, part: nn.Module | None) -> None:
        """Look at every module again, after a part was put into one."""
        if part is not None and threading.get_ident() == self._thread:
            self._forget_prepared()

    def _tensor_changed(self, _: nn.Module, __: str, tensor: Tensor | None) -> None:
        ours = threading.get_ident() == self._thread
        if ours and isinstance(tensor, Tensor) and not self.placement.is_there(tensor):
            self._forget_prepared()

    def _forget_prepared(self) -> None:
        for part in list(self._prepared):
            self._prepared.discard(part)
        self._needs_no_help.clear()

    def module_to_host(self, module: nn.Module) -> None:
        """Move a module back to the host, keeping every identity."""
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            for tensor in (*module.parameters(), *module.buffers()):
                self.placement.forget(tensor)
            torch_move.move_module(
                module, Tensor.cpu, lambda item: not self.placement.is_there(item)
            )
        self._forget_prepared()

    def _note_move(self, moved: torch_move.Moved, owner: Any, what: str) -> None:
        name = self._name_of(owner)
        self.facts.not_followed += [f"{name}.{item}" for item in moved.left]
        if moved.tensors:
            some = f"{moved.tensors} {what}{'' if moved.tensors == 1 else 's'}"
            self.facts.moved.append(f"{name} ({some})")
            if isinstance(owner, nn.Module):
                self.facts.products += torch_facts.products(name, owner)
                self.facts.float64 += torch_facts.float64(name, owner)

    def _name_of(self, item: Any) -> str:
        names = (name for name, value in self._namespace.items() if value is item)
        public = [name for name in names if not name.startswith("_")]
        return public[0] if public else type(item).__name__

    def _feed_call(self, args: Any, kwargs: Any, *, is_model: bool) -> Any:
        """Return a call's host tensors on the device, split as a batch."""
        tensors = every_tensor(args, kwargs)
        shape = next((tuple(item.shape) for item in tensors if item.dim()), None)
        rows = None if shape is None else shape[0]
        if is_model:
            self._steps.takes(shape)
        if all(self.placement.is_there(item) for item in tensors):
            if rows is not None and self._steps.ended:
                self._steps.rows(rows, self._meet.backwards)
            return args, kwargs
        if rows is not None:
            if self._steps.ended or rows != self.placement.rows:
                self._steps.rows(rows, self._meet.backwards)
            self.placement.rows = rows
        return exchanged(self.placement.bring, args, kwargs)

    # --- batches --------------------------------------------------------------------------

    def batch_begins(self) -> None:
        """End the step of the batch before, when no optimizer did."""
        self._resume()
        if not self._steps.ended:
            self._end_step()

    @contextmanager
    def loading(self, loader: DataLoader[Any]) -> Iterator[None]:
        """Run a dataset's own code as it would run without us."""
        if torch_feed.device_tensors_of(getattr(loader, "dataset", None), self.placement.is_there):
            was, self._meet.loading, self.inside = self._meet.loading, True, True
            try:
                yield
            finally:
                self._meet.loading = was
                self.inside = False
        else:
            with self._native():
                yield

    def feed(self, batch: Any, waited_s: float) -> Any:
        """Return a loader's batch on the device, and count it."""
        self.facts.input_wait_s += waited_s
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            placed, shape = torch_feed.place_batch(batch, self._feed_tensor)
        if shape is not None:
            self.placement.rows = shape[0]
        self._steps.batch(shape, self._meet.backwards)
        return placed

    def _feed_tensor(self, tensor: Tensor) -> Tensor:
        if self.placement.is_there(tensor):
            return tensor
        placed = self.placement.split(tensor)
        self.placement.fed.add(placed)
        return placed

    # --- steps ----------------------------------------------------------------------------

    def _before_optimizer(
        self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any
    ) -> tuple[Any, Any] | None:
        if threading.get_ident() != self._thread:
            return None
        for group in optimizer.param_groups:
            if group.get("fused"):
                # There is no fused kernel for the device: its compiler fuses by itself.
                self._fused.append((group, group["fused"]))
                group["fused"] = None
        if optimizer not in self._prepared:
            with torch._C.DisableTorchFunction():  # noqa: SLF001
                self._prepare_optimizer(optimizer)
        self._optimizer_started = time.perf_counter()
        if not isinstance(optimizer, torch.optim.Rprop):
            self._pause()  # its own code needs no help, but for Rprop's masks
        return self._with_persons_closure(optimizer, args, kwargs)

    def _with_persons_closure(
        self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any
    ) -> tuple[Any, Any] | None:
        """Return an optimizer's arguments with a closure that runs as the person's code does."""
        _, *given = args
        closure = kwargs.get("closure") or (given[0] if given else None)
        if closure is None:
            return None

        def closed(*more: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            started = time.perf_counter()
            paused = self._paused is not None
            self._resume()
            try:
                loss = closure(*more, **named)
                if isinstance(optimizer, torch.optim.LBFGS):
                    self._steps.cut()  # it reads the loss, and then the gradients
                return loss
            finally:
                if paused:
                    self._pause()
                self._optimizer_started += time.perf_counter() - started

        if given:
            return (optimizer, closed, *given[1:]), kwargs
        return args, {**kwargs, "closure": closed}

    def gradient_for_host(self, flat: Tensor) -> Tensor:
        """Return a flat gradient whose optimizer computes on the host."""
        if not self.placement.is_there(flat):
            return flat
        started = time.perf_counter()
        with self._reading(flat) as whole:
            read: Tensor = whole.cpu()
        self._optimizer_started += time.perf_counter() - started
        return read

    def _restore_fused(self) -> None:
        while self._fused:
            group, value = self._fused.pop()
            group["fused"] = value

    def _prepare_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        parameters = [item for group in optimizer.param_groups for item in group["params"]]
        if not any(self.placement.is_there(item) for item in parameters):
            return
        self._prepared.add(optimizer)
        if isinstance(optimizer, torch.optim.LBFGS):
            return  # its own work is done on the host
        moved = torch_move.move_optimizer(
            optimizer, self.placement.replicate, self.placement.is_there
        )
        self._note_move(moved, optimizer, "state tensor")

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        self._resume()
        self._restore_fused()
        self._steps.trace_s += time.perf_counter() - self._optimizer_started
        self._steps.optimizer_stepped(optimizer)
        self._end_step()

    def _end_step(self) -> None:
        self._steps.end(self._meet.backwards)

    def _recorded_long(self, frame: Any) -> bool:
        """Hand over a loop of plain tensor math, once that many rounds are recorded."""
        if frame.f_globals is not self._namespace:
            return False
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            self._steps.cut()
        return True

    def hand_over(self) -> Tensor | None:
        """Note that a program begins to be handed over; return what must live meanwhile."""
        return self._meet.hand_over()

    def step_was_ended(self, took_s: float) -> None:
        """Note an end of a step that somebody marked, and the time that it took."""
        self._steps.ended_by_person(self._meet.backwards, took_s)

    def say_once(self, sentence: str) -> None:
        """Put a sentence into the report."""
        if sentence not in self.facts.notes:
            self.facts.notes.append(sentence)

    @contextmanager
    def _reading(self, tensor: Tensor) -> Iterator[Tensor]:
        """Give a tensor that is read at once, and note which line of the cell reads.

        The runtime would compute what is read alone, and record the rest on: what led there
        would be computed again later, and each read of a loop (a word, a hidden state) would
        be of a longer program. So what is pending is handed over as a whole.
        """
        __tracebackhide__ = True
        pending = not self.placement.is_computed(tensor)
        whole = self.placement.whole(tensor)
        if self._steps.ended:
            self._end_step()  # plain tensor math, with no model or batch to end a step
        elif pending:
            self._steps.cut()
        yield whole
        line = self._code.line()
        if line is not None:
            self.facts.read_lines[line] = self.facts.read_lines.get(line, 0) + 1
        self._steps.note_compiles()

    # --- the mode -------------------------------------------------------------------------

    def _pause(self) -> None:
        if self._paused is None:
            self._paused = torch._C.DisableTorchFunction()  # noqa: SLF001
            self._paused.__enter__()

    def _resume(self) -> None:
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.__exit__(None, None, None)

    @contextmanager
    def _native(self) -> Iterator[None]:
        """Run code with no help from us at all."""
        was, self.inside = self.inside, True
        try:
            with torch._C.DisableTorchFunction():  # noqa: SLF001
                yield
        finally:
            self.inside = was

    # --- files and seeds ------------------------------------------------------------------

    def host_copy_for_file(self, tensor: Tensor) -> Tensor:
        """Return what goes into a file for a device tensor: host memory, shared as it was."""
        self._meet.used = True
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            whole = self._files.get(tensor.untyped_storage()._cdata)  # noqa: SLF001
            if whole is None or whole.shape != tensor.shape:
                whole = self.placement.read(tensor.detach())
                self._files[tensor.untyped_storage()._cdata] = whole  # noqa: SLF001
            return whole.detach().requires_grad_(tensor.requires_grad)

    def seed_device(self, seed: int) -> None:
        """Seed the device's generator, as `torch.manual_seed` in the cell asks."""
        torch_xla.manual_seed(seed % (1 << 63))


def _only_mode(mode: Any) -> bool:
    """Say whether ours is the only torch function mode: others must go on seeing calls."""
    stack = torch.overrides._get_current_function_mode_stack()  # noqa: SLF001
    return len(stack) == 1 and stack[0] is mode
