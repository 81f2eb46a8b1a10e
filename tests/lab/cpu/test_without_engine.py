"""With the engine off, everything runs in torch and agrees: sampling, training, evaluation, a probe and credit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from grposcope.cli import main
from grposcope.instruments.gradient import probe
from grposcope.lab import cpu, policies
from grposcope.lab.cpu import c_library, contraction, llama, native, threads
from grposcope.lab.cpu.model_passes import _Pass
from grposcope.lab.objectives import recipes
from grposcope.lab.sampling.accumulate import accumulate, collisions, frozen_logprobs
from grposcope.lab.sampling.rollouts import Batch, collect
from grposcope.lab.sampling.sampler import Sampling, _say_slow
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train

Hide = Callable[[], None]


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Hide:
    """Turns the engine off, and torch to one thread; whatever of it is reached all the same fails the test."""

    def reached(*_: object, **__: object) -> None:
        pytest.fail("a part of the engine was used though it is off")

    def off() -> None:
        monkeypatch.setenv("GRPOSCOPE_CPU_ENGINE", "off")
        torch.set_num_threads(1)
        for place, name in (
            (c_library, "library"), (native.NativeDecoder, "__init__"), (llama.LlamaDecoder, "__init__"),
            (_Pass, "__init__"), (contraction, "contract"), (threads, "in_background"),
            (threads, "map_pieces"),
        ):  # fmt: skip
            monkeypatch.setattr(place, name, reached)

    return off


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def drawn() -> tuple[policies.Policy, Batch]:
    policy, task = policies.load("tiny"), Arithmetic()
    sampling = Sampling(task.max_tokens)
    return policy, collect(policy, task, task.problems("train"), recipes.GRPO, sampling, (4, 4), seed=0, position=0)


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def test_rollouts_are_the_same_tokens_with_the_same_probabilities(hide: Hide, caplog: pytest.LogCaptureFixture) -> None:
    """And it is said once that the engine is off."""
    _say_slow.cache_clear()
    _, fast = drawn()
    assert not caplog.records
    hide()
    _, slow = drawn()
    drawn()
    assert [r.getMessage().endswith("the slower way: the CPU engine is off") for r in caplog.records] == [True]
    assert torch.equal(fast.rollouts.tokens, slow.rollouts.tokens)
    torch.testing.assert_close(fast.rollouts.logp, slow.rollouts.logp, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(fast.rollouts.entropy, slow.rollouts.entropy, atol=2e-5, rtol=1e-5)


def test_gradients_and_log_probabilities_agree(hide: Hide) -> None:
    policy, batch = drawn()
    model, rollouts = policy.model, batch.rollouts
    rows = torch.arange(len(rollouts.mask))
    credit = torch.randn(rollouts.mask.shape, generator=torch.Generator().manual_seed(0))

    def weigh(rows: torch.Tensor, logp: torch.Tensor) -> torch.Tensor:
        return credit[rows, : logp.shape[1]] * rollouts.mask[rows, : logp.shape[1]]

    def found() -> tuple[dict[str, Tensor], Tensor, Tensor]:
        model.zero_grad()
        accumulate(model, rollouts, rows, 1.0, 5, weigh)
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        return gradients, frozen_logprobs(model, rollouts, 1.0, 5), collisions(model, rollouts, 1.0, 5)

    assert cpu.passes(model) is not None
    fast = found()
    hide()
    assert cpu.passes(model) is None
    slow = found()
    assert fast[0].keys() == slow[0].keys()
    scale = max(float(g.abs().max()) for g in slow[0].values())
    assert all(float((g - slow[0][name]).abs().max()) < 1e-5 * scale for name, g in fast[0].items())
    torch.testing.assert_close(fast[1], slow[1], atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(fast[2], slow[2], atol=2e-5, rtol=1e-5)


def steps(folder: Path, **changes: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Tensor]]:
    """Rows of steps and evaluations, and the final weights, of a run of three steps on the tiny model."""
    config = TrainConfig(
        steps=3, prompts=4, group=4, eval_every=3, eval_problems=10, eval_samples=2, out=str(folder), **changes
    )
    train(config)
    steps, evaluations = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("steps", "evals")
    )
    return steps, evaluations, load_file(folder / "model" / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"kl": 0.1, "entropy": 0.01, "interval": 3}], ids=str)
def test_a_run_and_its_evaluations_agree(tmp_path: Path, hide: Hide, changes: dict[str, Any]) -> None:
    fast = steps(tmp_path / "fast", **changes)
    hide()
    slow = steps(tmp_path / "slow", **changes)
    for one, other in zip(fast[0], slow[0], strict=True):
        assert one["reward"] == other["reward"]
        for name in ("loss", "grad_norm", "entropy"):
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-6), name
    assert numbers(fast[1]) == pytest.approx(numbers(slow[1]), rel=1e-6)
    for name, weight in fast[2].items():
        assert relative(weight, slow[2][name]) < 1e-3, name


@pytest.mark.slow
def test_a_probe_agrees(hide: Hide) -> None:
    policy, batch = drawn()
    fast = probe.probe(policy.model, batch.rollouts, recipes.GRPO, sweep=(2,), controls=True)
    hide()
    slow = probe.probe(policy.model, batch.rollouts, recipes.GRPO, sweep=(2,), controls=True)
    assert [layer.name for layer in fast.layers] == [layer.name for layer in slow.layers]
    np.testing.assert_allclose(fast.gram, slow.gram, atol=1e-5 * slow.gram.max())
    for one, other in zip(fast.layers, slow.layers, strict=True):
        for name, spectrum in one.spectra.items():
            np.testing.assert_allclose(spectrum.values, other.spectra[name].values, atol=1e-5 * spectrum.frobenius)


@pytest.mark.slow
def test_the_comparison_of_credits_agrees(tmp_path: Path, hide: Hide, capsys: pytest.CaptureFixture) -> None:
    given = ["credit", "tiny", "--prompts", "3", "--group", "4", "--reference", "4", "--oracle", "4", "--json",
             "--continuations", "2", "--trees", "2x2"]  # fmt: skip
    assert main(given) == 0
    fast = json.loads(capsys.readouterr().out)
    hide()
    assert main(given) == 0
    slow = json.loads(capsys.readouterr().out)
    assert numbers(fast) == pytest.approx(numbers(slow), rel=1e-4, abs=1e-6)


def numbers(content: Any, place: str = "") -> dict[str, float]:
    """Every number of a JSON value but times, by its place."""
    if isinstance(content, dict):
        return {k: v for name, one in content.items() for k, v in numbers(one, f"{place}/{name}").items()}
    if isinstance(content, list):
        return {k: v for at, one in enumerate(content) for k, v in numbers(one, f"{place}/{at}").items()}
    number = isinstance(content, int | float) and "second" not in place
    return {place: content} if number else {}
