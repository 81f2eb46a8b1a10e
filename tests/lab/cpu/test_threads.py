"""Work in background threads: the same results in the same order, errors raised in the caller, threads restored."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from grposcope.lab import cpu
from grposcope.lab.cpu import threads

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def never(name: str) -> bool:
    return False


def test_results_come_in_order_in_this_thread_though_the_first_is_done_last() -> None:
    here, kept, second_done = threading.current_thread(), [], threading.Event()

    def work(one: str) -> str:
        if one == "0":
            assert second_done.wait(60)
        if one == "1":
            second_done.set()
        return one

    def keep(name: str) -> None:
        assert threading.current_thread() is here
        kept.append(name)

    with threads.in_background(work, keep, CPU, never) as visit:
        for number in range(20):
            visit(str(number))
    assert kept == [str(number) for number in range(20)]
    assert torch.get_num_threads() == 3


def test_when_too_many_wait_one_is_done_here() -> None:
    """The background threads wait until this thread has processed a parameter."""
    here, where, worked = threading.current_thread(), {}, threading.Event()

    def work(one: str) -> str:
        where[one] = threading.current_thread()
        if threading.current_thread() == here:
            worked.set()
        assert worked.wait(60)
        return one

    kept: list[str] = []
    names = [str(number) for number in range(2 + threads.WAITING + 1)]
    with threads.in_background(work, kept.append, CPU, never) as visit:
        for name in names:
            visit(name)
    assert kept == names
    assert [name for name in names if where[name] == here] == names[-1:]


def test_large_parameters_are_done_here_with_all_threads() -> None:
    seen: dict[str, tuple[int, bool]] = {}
    here = threading.current_thread()

    def work(one: str) -> str:
        seen[one] = torch.get_num_threads(), threading.current_thread() == here
        return one

    kept: list[str] = []
    with threads.in_background(work, kept.append, CPU, lambda name: name == "large") as visit:
        visit("small")
        visit("large")
        visit("last")
    assert kept == ["small", "large", "last"]
    assert seen == {"small": (1, False), "large": (3, True), "last": (1, False)}


def test_an_error_is_raised_here_and_threads_are_restored() -> None:
    def work(one: str) -> str:
        if one == "1":
            raise ValueError("one")
        return one

    kept: list[str] = []

    def three() -> None:
        with threads.in_background(work, kept.append, CPU, never) as visit:
            for number in range(3):
                visit(str(number))

    with pytest.raises(ValueError, match="one"):
        three()
    assert kept == ["0"]
    assert torch.get_num_threads() == 3


def test_many_pieces_are_distributed_over_threads_and_come_back_in_order() -> None:
    here, where, together = threading.current_thread(), set(), threading.Barrier(2, timeout=60)

    def work(piece: slice) -> int:
        where.add(threading.current_thread())
        if piece.start < 2:
            together.wait()  # passes only if two threads work at the same time
        return int(piece.start)

    many = [slice(start, start + 1) for start in range(3 * threads.MANY)]
    assert threads.map_pieces(work, many, CPU) == list(range(len(many)))
    assert here not in where
    where.clear()
    few = many[2:]
    assert threads.map_pieces(work, few, CPU) == list(range(2, len(many)))
    assert where == {here}
    with pytest.raises(ZeroDivisionError):
        threads.map_pieces(lambda piece: 1 // piece.start, many, CPU)


def test_without_the_engine_everything_is_done_in_turn_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPOSCOPE_CPU_ENGINE", "off")
    here, done = threading.current_thread(), []

    def work(one: str) -> str:
        assert threading.current_thread() is here
        done.append(f"work {one}")
        return one

    with cpu.in_background(work, lambda one: done.append(f"keep {one}"), CPU, never) as visit:
        visit("a")
        visit("b")
    assert done == ["work a", "keep a", "work b", "keep b"]
    pieces = [slice(start, start + 1) for start in range(3 * threads.MANY)]
    assert cpu.map_pieces(lambda piece: threading.current_thread() is here, pieces, CPU) == [True] * len(pieces)
    assert cpu.items_held(CPU) == 1
