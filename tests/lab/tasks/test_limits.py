"""Time limits, and numbers that are refused by their looks."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

import pytest

from grposcope.lab.tasks import limits
from grposcope.lab.tasks.limits import OutOfTime, interruptible, runaway, time_limit

needs_signals = pytest.mark.skipif(os.name != "posix", reason="time limits are POSIX signals")


@needs_signals
def test_a_slow_block_is_interrupted_and_the_handler_put_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    start = time.monotonic()
    with pytest.raises(OutOfTime), time_limit(0.1):
        time.sleep(20)
    assert time.monotonic() - start < 5
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@needs_signals
def test_a_block_that_swallows_the_exception_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AGAIN", 0.05)

    def swallowing(times: int) -> None:
        for _ in range(times):
            with suppress(OutOfTime):
                time.sleep(20)
        time.sleep(20)

    with pytest.raises(OutOfTime), time_limit(0.05):
        swallowing(2)


@needs_signals
@pytest.mark.parametrize(("outer", "inner"), [(0.1, 20), (20, 0.1)])
def test_of_nested_limits_the_first_one_ends_the_block(outer: float, inner: float) -> None:
    start = time.monotonic()
    with pytest.raises(OutOfTime), time_limit(outer), time_limit(inner):
        time.sleep(20)
    assert time.monotonic() - start < 5
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@needs_signals
def test_an_outer_limit_goes_on_after_an_inner_one() -> None:
    def quick_then_slow() -> None:
        with time_limit(0.1):
            pass
        time.sleep(20)

    with pytest.raises(OutOfTime, match=r"longer than 0.2 s"), time_limit(0.2):
        quick_then_slow()


@needs_signals
def test_a_quick_block_is_left_alone() -> None:
    with time_limit(5):
        value = 1
    assert value == 1
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@needs_signals
def test_in_another_thread_there_is_no_limit_and_no_error() -> None:
    seen: list[object] = []

    def work() -> None:
        with time_limit(0.05):
            time.sleep(0.15)
        seen.append(interruptible())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
    assert interruptible()


@pytest.mark.parametrize(
    "text", ["9^9^9^9", "9**9**9", "10^{10^{10}}", "2^{ -3^4 }", "2^100000", "1000000!", "(99999)!"]
)
def test_runaway_numbers(text: str) -> None:
    assert runaway(text)


@pytest.mark.parametrize(
    "text", ["2^{10}", "x^2 + y^2", "e^{x^2}", "**72** and **73**", "7!", "10^{-5}", "(3^2)^2", ""]
)
def test_ordinary_answers(text: str) -> None:
    assert not runaway(text)
