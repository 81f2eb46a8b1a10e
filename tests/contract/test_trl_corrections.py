"""TRL's corrections for another sampler are ours: its coefficients and its gradient, by its own code.

TRL runs its way from generation to the loss, with tokens and the sampler's log-probabilities put in place of vLLM's.
Its two columns of log-probabilities go through a file, as users bring them, and `grposcope.maths.corrections` makes
coefficients of them. A bound from below has a counterpart at `token_mask` alone, which is then `icepop`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_trl import small_trainer
from torch import Tensor

from grposcope.instruments.offpolicy.read import MismatchedRollouts, read
from grposcope.maths.corrections import named
from grposcope.maths.importance import Ratios

pytest.importorskip("trl")
pytest.importorskip("datasets")

from trl import GRPOConfig

if "vllm_importance_sampling_clip_max" not in {one.name for one in fields(GRPOConfig)}:
    pytest.skip("this TRL has no correction for vLLM, or one without `clip_max`", allow_module_level=True)

TEXTS, GROUP = ["ab", "cdefa"], 4
LENGTHS = [6, 2, 1, 4, 5, 6, 1, 3]
REWARDS = [1.0, 0.0, 0.5, 0.0, 0.2, 1.0, 0.7, 0.0]
NAN = (0, 2)
"""Rollout and token whose log-probability the sampler does not give."""


def log_ratios() -> list[NDArray]:
    """log ρ of the tokens of each rollout, far enough from 0 to reach every bound."""
    rng = np.random.default_rng(3)
    return [rng.normal(0, 0.9, n) for n in LENGTHS]


def completions(prompts: list[str], trainer: Any) -> dict[str, Any]:
    """In place of generation: fixed tokens, and the sampler's log-probabilities that the test has put there."""
    rng = np.random.default_rng(4)
    return {
        "prompt_ids": [trainer.processing_class(p).input_ids for p in prompts],
        "completion_ids": [rng.integers(3, 16, n).tolist() for n in LENGTHS],
        "logprobs": getattr(trainer, "given_logprobs", [[0.0] * n for n in LENGTHS]),
    }


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = small_trainer(
        tmp_path_factory.mktemp("trl"), TEXTS, lambda completions, **_: REWARDS, completions,
        per_device_train_batch_size=len(LENGTHS), num_generations=GROUP, max_completion_length=8,
    )  # fmt: skip
    found.use_vllm, found._last_loaded_step = True, 0  # nothing to synchronise
    found.vllm_importance_sampling_correction = True
    found.model.train()
    return found


@pytest.fixture(autouse=True)
def restored(trainer: Any) -> Iterator[None]:
    """What a test changes on the trainer is taken back after it."""
    before = dict(vars(trainer))
    yield
    vars(trainer).clear()
    vars(trainer).update(before)


@dataclass(frozen=True)
class Scored:
    """What TRL has made of the rollouts: the inputs of its loss; mask (B, T) of the tokens."""

    inputs: dict[str, Tensor]

    @property
    def mask(self) -> Tensor:
        return self.inputs["completion_mask"].bool()

    @property
    def coefficients(self) -> NDArray:
        """TRL's ratio of every token, rollouts end to end, (N,)."""
        return np.asarray(self.inputs["importance_sampling_ratio"].expand(self.mask.shape)[self.mask], np.float64)

    def of_tokens(self, values: NDArray) -> Tensor:
        """Values (N,) of the tokens as (B, T)."""
        found = torch.zeros(self.mask.shape)
        found[self.mask] = torch.tensor(values, dtype=found.dtype)
        return found


def scored(trainer: Any, mode: str, **bounds: float | None) -> Scored:
    """TRL's own way from tokens and the sampler's log-probabilities to the inputs of its loss."""
    trainer.vllm_importance_sampling_mode = mode
    for name, value in {"clip_min": None, "clip_max": None, **bounds}.items():
        setattr(trainer, f"vllm_importance_sampling_{name}", value)
    rows = [{"prompt": text} for text in TEXTS for _ in range(GROUP)]
    trained = trainer._generate_and_score_completions(rows)["old_per_token_logps"]
    trainer.given_logprobs = [
        (row[: len(one)].double().numpy() - one).tolist() for row, one in zip(trained, log_ratios(), strict=True)
    ]
    trainer.given_logprobs[NAN[0]][NAN[1]] = None  # as `extract_logprobs` of TRL makes of NaN
    return Scored(trainer._generate_and_score_completions(rows))


def through_a_file(trainer: Any, found: Scored, folder: Path) -> MismatchedRollouts:
    """Both columns as a user would log them, read by us."""
    trained = found.inputs["old_per_token_logps"].double().tolist()
    lines = [
        {"logprobs": row[:n], "sampling_logprobs": given, "reward": reward, "group": i // GROUP}
        for i, (row, given, n, reward) in enumerate(zip(trained, trainer.given_logprobs, LENGTHS, REWARDS, strict=True))
    ]
    path = folder / "rollouts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read(path)


# our name: TRL's mode and bounds
SAME: dict[str, tuple[str, dict[str, float | None]]] = {
    "token_ratio": ("token_mask", {}),
    "token_cap:2": ("token_truncate", {"clip_max": 2.0}),
    "token_mask:1.5": ("token_mask", {"clip_max": 1.5}),
    "icepop:0.5,1.5": ("token_mask", {"clip_max": 1.5, "clip_min": 0.5}),
    "sequence_cap:2": ("sequence_truncate", {"clip_max": 2.0}),
    "sequence_mask:3": ("sequence_mask", {"clip_max": 3.0}),
    "full": ("sequence_mask", {}),
}


def asked(trainer: Any, name: str) -> Scored:
    """TRL's inputs under the counterpart of a correction."""
    mode, bounds = SAME[name]
    return scored(trainer, mode, **bounds)


@pytest.mark.parametrize("name", SAME)
def test_coefficients_are_those_of_trl(trainer: Any, tmp_path: Path, name: str) -> None:
    """Of every token, and of a rollout with a NaN; TRL has 24 binary digits of differences of log-probabilities."""
    found = asked(trainer, name)
    drawn = through_a_file(trainer, found, tmp_path)
    ours = named(name).coefficients(drawn.ratios)
    assert drawn.absent == 1
    assert found.coefficients == pytest.approx(ours, rel=3e-6, abs=0)
    assert name in ("full", "token_ratio") or np.any(ours != named("full").coefficients(drawn.ratios))


def test_the_bounds_are_reached_and_no_two_coincide(trainer: Any, tmp_path: Path) -> None:
    """Otherwise one comparison would pass on another's formula."""
    drawn = through_a_file(trainer, scored(trainer, "token_truncate", clip_max=2.0), tmp_path)
    found = {name: named(name).coefficients(drawn.ratios) for name in SAME}
    for i, first in enumerate(SAME):
        for second in list(SAME)[i + 1 :]:
            assert np.abs(found[first] - found[second]).max() > 0.1, (first, second)


def test_a_missing_log_probability_has_the_ratio_1_in_both(trainer: Any, tmp_path: Path) -> None:
    found = asked(trainer, "token_cap:2")
    place = sum(LENGTHS[: NAN[0]]) + NAN[1]
    ours = named("token_cap:2").coefficients(through_a_file(trainer, found, tmp_path).ratios)
    assert found.coefficients[place] == ours[place] == 1.0
    assert not np.any(np.isclose(np.delete(ours, place), 1.0))


@pytest.mark.parametrize("name", SAME)
def test_the_gradient_is_that_of_trl(trainer: Any, tmp_path: Path, name: str) -> None:
    """∇ of −mean over rollouts of mean over tokens of c_t A log π, with our coefficients, is that of TRL's loss."""
    found = asked(trainer, name)
    trainer.loss_type, trainer.current_gradient_accumulation_steps = "grpo", 1
    model, inputs = trainer.model, found.inputs
    theirs = gradient(model, trainer.compute_loss(model, inputs))
    coefficients = found.of_tokens(named(name).coefficients(through_a_file(trainer, found, tmp_path).ratios))
    whole = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    width = inputs["completion_ids"].shape[1]
    logits = model(input_ids=whole, attention_mask=seen).logits[:, -width - 1 : -1] / trainer.temperature
    logp = logits.log_softmax(-1).gather(-1, inputs["completion_ids"][..., None])[..., 0]
    terms = coefficients * inputs["advantages"][:, None] * logp * found.mask
    due = gradient(model, -(terms.sum(1) / found.mask.sum(1)).mean())
    assert float((theirs - due).abs().max()) < 1e-5 * float(due.abs().max())


def gradient(model: torch.nn.Module, loss: Tensor) -> Tensor:
    model.zero_grad(set_to_none=True)
    loss.backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])


def test_the_mask_of_deepseek_is_half_of_a_geometric_band(trainer: Any) -> None:
    """`off_policy_mask_threshold` δ drops a rollout with A < 0 whose geometric mean of ρ lies below e^−δ."""
    logs, limit = log_ratios(), 0.2
    ratios = Ratios.of(logs)
    band = named(f"geometric_band:{math.exp(-limit)},1e100").coefficients(ratios)[ratios.starts]
    width = max(LENGTHS)
    padded = torch.tensor(np.array([np.pad(one, (0, width - len(one))) for one in logs]))
    mask = (torch.arange(width) < torch.tensor(LENGTHS)[:, None]).long()
    for advantage in (-1.0, 0.0, 1.0):
        kept = trainer.get_off_policy_mask(
            torch.full((len(LENGTHS), 1), advantage), padded, torch.zeros_like(padded), mask, limit
        )
        assert kept[:, 0].tolist() == (band.tolist() if advantage < 0 else [1] * len(LENGTHS))
    assert 0 < band.sum() < len(LENGTHS)
