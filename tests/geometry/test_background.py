"""Work in background threads: the same results in the same order, errors raised in the caller, threads restored."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from geometry_models import batch, build

from grposcope.geometry import background, probe
from grposcope.geometry.score import Score
from grposcope.objectives import recipes

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def score(name: str, rows: int = 1) -> Score:
    return Score(name, "vector", (rows, 1), direct=torch.zeros(2, 1))


def test_results_come_in_order_in_this_thread_though_the_first_is_done_last() -> None:
    here, kept, second_done = threading.current_thread(), [], threading.Event()

    def work(one: Score) -> str:
        if one.name == "0":
            assert second_done.wait(60)
        if one.name == "1":
            second_done.set()
        return one.name

    def keep(name: str) -> None:
        assert threading.current_thread() is here
        kept.append(name)

    with background.in_background(work, keep, CPU) as visit:
        for number in range(20):
            visit(score(str(number)))
    assert kept == [str(number) for number in range(20)]
    assert torch.get_num_threads() == 3


def test_when_too_many_wait_one_is_done_here() -> None:
    """The background threads wait until this thread has processed a parameter."""
    here, where, worked = threading.current_thread(), {}, threading.Event()

    def work(one: Score) -> str:
        where[one.name] = threading.current_thread()
        if threading.current_thread() == here:
            worked.set()
        assert worked.wait(60)
        return one.name

    kept: list[str] = []
    names = [str(number) for number in range(2 + background.WAITING + 1)]
    with background.in_background(work, kept.append, CPU) as visit:
        for name in names:
            visit(score(name))
    assert kept == names
    assert [name for name in names if where[name] == here] == names[-1:]


def test_large_parameters_are_done_here_with_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "LARGE", 5)
    seen: dict[str, tuple[int, bool]] = {}
    here = threading.current_thread()

    def work(one: Score) -> str:
        seen[one.name] = torch.get_num_threads(), threading.current_thread() == here
        return one.name

    kept: list[str] = []
    with background.in_background(work, kept.append, CPU) as visit:
        visit(score("small"))
        visit(score("large", 5))
        visit(score("last"))
    assert kept == ["small", "large", "last"]
    assert seen == {"small": (1, False), "large": (3, True), "last": (1, False)}


def test_an_error_is_raised_here_and_threads_are_restored() -> None:
    def work(one: Score) -> str:
        if one.name == "1":
            raise ValueError("one")
        return one.name

    kept: list[str] = []

    def three() -> None:
        with background.in_background(work, kept.append, CPU) as visit:
            for number in range(3):
                visit(score(str(number)))

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

    many = [slice(start, start + 1) for start in range(3 * background.MANY)]
    assert background.map_pieces(work, many, CPU) == list(range(len(many)))
    assert here not in where
    where.clear()
    few = many[2:]
    assert background.map_pieces(work, few, CPU) == list(range(2, len(many)))
    assert where == {here}
    with pytest.raises(ZeroDivisionError):
        background.map_pieces(lambda piece: 1 // piece.start, many, CPU)


def test_a_large_parameter_in_pieces_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    probes = []
    for large, limit in ((2**24, 4 * 2**20), (1, 256)):
        monkeypatch.setattr(background, "LARGE", large)
        monkeypatch.setattr(Score.pieces, "__defaults__", (limit,))
        probes.append(probe.probe(build("llama"), batch(prompts=2, group=4), recipes.GRPO))
    whole, parts = probes
    np.testing.assert_allclose(whole.gram, parts.gram, rtol=1e-9, atol=1e-12)
    for name, ranks in whole.ranks("grpo").items():
        assert parts.ranks("grpo")[name] == pytest.approx(ranks, rel=1e-6)
    for name, estimate in whole.parameters.items():
        assert parts.parameters[name].value == pytest.approx(estimate.value, rel=1e-9)


def test_a_probe_says_the_same_with_one_thread_and_with_several() -> None:
    probes = []
    for count in (1, 3):
        torch.set_num_threads(count)
        probes.append(probe.probe(build("gpt2"), batch(prompts=2, group=4), recipes.GRPO, controls=True))
    one, several = probes
    assert [layer.name for layer in one.layers] == [layer.name for layer in several.layers]
    np.testing.assert_allclose(one.gram, several.gram, rtol=1e-12)
    for name, ranks in one.ranks("grpo").items():
        assert several.ranks("grpo")[name] == pytest.approx(ranks, rel=1e-6)  # singular values of 0 are off by 1e-8
    for name, estimate in one.parameters.items():
        assert several.parameters[name].value == pytest.approx(estimate.value, rel=1e-9)
