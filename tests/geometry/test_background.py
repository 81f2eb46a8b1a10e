"""Work beside the backward pass: the same results in the same order, errors raised here, threads put back."""

from __future__ import annotations

import threading
import time
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
    return Score(name, "vector", (rows, 1), torch.zeros(rows, 1), direct=torch.zeros(2, 1))


def test_results_come_in_order_in_this_thread_though_the_first_takes_longest() -> None:
    here, kept = threading.get_ident(), []

    def work(one: Score) -> str:
        time.sleep(0.05 if one.name == "0" else 0)
        return one.name

    def keep(name: str) -> None:
        assert threading.get_ident() == here
        kept.append(name)

    with background.beside(work, keep, CPU) as visit:
        for number in range(20):
            visit(score(str(number)))
    assert kept == [str(number) for number in range(20)]
    assert torch.get_num_threads() == 3


def test_when_too_many_wait_one_is_done_here() -> None:
    """The others do not begin before this thread has worked."""
    here, where, worked = threading.get_ident(), {}, threading.Event()

    def work(one: Score) -> str:
        where[one.name] = threading.get_ident()
        if threading.get_ident() == here:
            worked.set()
        assert worked.wait(60)
        return one.name

    kept: list[str] = []
    names = [str(number) for number in range(2 + background.AHEAD + 1)]
    with background.beside(work, kept.append, CPU) as visit:
        for name in names:
            visit(score(name))
    assert kept == names
    assert [name for name in names if where[name] == here] == names[-1:]


def test_large_parameters_are_done_here_with_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "LARGE", 5)
    seen: dict[str, tuple[int, bool]] = {}
    here = threading.get_ident()

    def work(one: Score) -> str:
        seen[one.name] = torch.get_num_threads(), threading.get_ident() == here
        return one.name

    kept: list[str] = []
    with background.beside(work, kept.append, CPU) as visit:
        visit(score("small"))
        visit(score("large", 5))
        visit(score("last"))
    assert kept == ["small", "large", "last"]
    assert seen == {"small": (1, False), "large": (3, True), "last": (1, False)}


def test_what_goes_wrong_is_raised_here_and_threads_are_put_back() -> None:
    def work(one: Score) -> str:
        if one.name == "1":
            raise ValueError("one")
        return one.name

    kept: list[str] = []

    def three() -> None:
        with background.beside(work, kept.append, CPU) as visit:
            for number in range(3):
                visit(score(str(number)))

    with pytest.raises(ValueError, match="one"):
        three()
    assert kept == ["0"]
    assert torch.get_num_threads() == 3


def test_many_pieces_are_spread_over_threads_and_come_back_in_order() -> None:
    here, where = threading.get_ident(), set()

    def work(piece: slice) -> int:
        where.add(threading.get_ident())
        time.sleep(0.01 if piece.start % 5 == 0 else 0)
        return int(piece.start)

    many = [slice(start, start + 1) for start in range(3 * background.MANY)]
    assert background.spread(work, many, CPU) == list(range(len(many)))
    assert here not in where
    assert len(where) > 1
    where.clear()
    assert background.spread(work, many[:-1], CPU) == list(range(len(many) - 1))  # few: done here
    assert where == {here}
    with pytest.raises(ZeroDivisionError):
        background.spread(lambda piece: 1 // piece.start, many, CPU)


def test_a_large_parameter_in_pieces_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for large, limit in ((2**24, 4 * 2**20), (1, 256)):
        monkeypatch.setattr(background, "LARGE", large)
        monkeypatch.setattr(Score.pieces, "__defaults__", (limit,))
        found.append(probe.probe(build("llama"), batch(prompts=2, group=4), recipes.GRPO))
    whole, parts = found
    np.testing.assert_allclose(whole.gram, parts.gram, rtol=1e-9, atol=1e-12)
    for name, ranks in whole.ranks("grpo").items():
        assert parts.ranks("grpo")[name] == pytest.approx(ranks, rel=1e-6)
    for name, estimate in whole.parameters.items():
        assert parts.parameters[name].value == pytest.approx(estimate.value, rel=1e-9)


def test_a_probe_says_the_same_with_one_thread_and_with_several() -> None:
    found = []
    for count in (1, 3):
        torch.set_num_threads(count)
        found.append(probe.probe(build("gpt2"), batch(prompts=2, group=4), recipes.GRPO, controls=True))
    one, several = found
    assert [layer.name for layer in one.layers] == [layer.name for layer in several.layers]
    np.testing.assert_allclose(one.gram, several.gram, rtol=1e-12)
    for name, ranks in one.ranks("grpo").items():
        assert several.ranks("grpo")[name] == pytest.approx(ranks, rel=1e-9)
    for name, estimate in one.parameters.items():
        assert several.parameters[name].value == pytest.approx(estimate.value, rel=1e-9)
