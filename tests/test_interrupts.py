"""Interrupts wait until a change is whole, and are not lost."""

from __future__ import annotations

import signal
import threading
from contextlib import nullcontext

import pytest

from tpu_magic.interrupts import Held


def _interrupt():
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_comes_after_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), Held() as held:  # noqa: PT012
        _interrupt()
        done.append(held.came)
    assert done == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_is_left_to_the_caller_who_asks_for_that():
    with Held(deliver=False) as held:
        _interrupt()
    assert held.came


def test_an_error_in_the_block_passes_and_the_handler_is_back():
    with pytest.raises(ValueError, match="theirs"), Held():
        raise ValueError("theirs")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_ignores_interrupts_goes_on_ignoring_them():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Held() as held:
            _interrupt()
        assert not held.came
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_off_the_main_thread_nothing_is_changed():
    seen = []

    def work():
        with Held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@pytest.mark.parametrize("deliver", [True, False])
def test_a_handler_that_raises_at_the_death_of_a_child_waits(deliver):
    done = []

    def raises(*_):
        done.append("called")
        raise RuntimeError("a worker died")

    before = signal.signal(signal.SIGCHLD, raises)
    try:
        expected = pytest.raises(RuntimeError, match="died") if deliver else nullcontext()
        with expected, Held(deliver=deliver) as held:
            signal.raise_signal(signal.SIGCHLD)
            done.append("whole")
        assert (done, held.came) == (["whole", "called"], False)
        assert signal.getsignal(signal.SIGCHLD) is raises
    finally:
        signal.signal(signal.SIGCHLD, before)
