"""A probe says the same whichever threads take its parameters, whole or in pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from geometry_models import batch, build

from grposcope.instruments.gradient import probe
from grposcope.instruments.gradient.score import Score
from grposcope.lab.objectives import recipes


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_a_large_parameter_in_pieces_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    probes = []
    for large, limit in ((2**24, 4 * 2**20), (1, 256)):
        monkeypatch.setattr("grposcope.instruments.gradient.score.LARGE", large)
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
