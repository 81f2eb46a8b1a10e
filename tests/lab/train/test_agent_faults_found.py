"""Faults of agents put into our own loop are named by verify, and the sound loop is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import judged_claims
import pytest
import torch
from torch import Tensor

from grposcope.instruments.verify import read
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.train import evidence, loop
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train

Change = Callable[[pytest.MonkeyPatch], None]


def changed_mask(change: Callable[[RolloutBatch], Tensor]) -> Change:
    """The batch that is trained on has another mask than what the policy wrote, which the evidence still knows."""

    def put(patch: pytest.MonkeyPatch) -> None:
        plain = loop.per_token

        def credit(kind: str, objective: object, rollouts: RolloutBatch) -> Tensor:
            given = plain("outcome", objective, rollouts)  # type: ignore[arg-type]
            whole = (given.abs().amax(-1, keepdim=True) * given.sum(-1, keepdim=True).sign()).expand_as(given)
            return torch.where(change(rollouts), whole, 0.0)

        patch.setattr(loop, "per_token", credit)
        patch.setattr(evidence, "_weighted", lambda mask, credit: credit != 0)

    return put


def ends_dropped(rollouts: RolloutBatch) -> Tensor:
    """All that the policy wrote but the last token of each turn."""
    following = torch.cat([rollouts.mask[:, 1:], torch.zeros_like(rollouts.mask[:, :1])], 1)
    return rollouts.mask & following


def failures_as_zeros(patch: pytest.MonkeyPatch) -> None:
    """One rollout in eight fails, is paid 0 and is trained on."""
    plain = evidence.rows

    def rows(*given: object) -> tuple[object, ...]:
        return tuple(
            replace(row, failed="connection reset", reward=0.0, rewards={"task": 0.0}) if i % 8 == 0 else row
            for i, row in enumerate(plain(*given))  # type: ignore[arg-type]
        )

    patch.setattr(evidence, "rows", rows)


def named(folder: Path) -> set[str]:
    """Faults that are present in what a run wrote."""
    return {own.fault for claim in judged_claims.of(read.evidence(folder)).values() for own in claim.told
            if own.present}  # fmt: skip


def run(folder: Path, credit: str = "outcome") -> set[str]:
    train(TrainConfig(
        model="tables", task="hidden_table:cost=0.05", recipe="rloo", credit=credit, out=str(folder), steps=2,
        prompts=8, group=8, verify_every=1, eval_problems=0, checkpoint_every=0, rollouts_every=0,
    ))  # fmt: skip
    return named(folder)


def test_sound_runs_are_left_alone(tmp_path: Path) -> None:
    assert run(tmp_path / "outcome") == set()
    assert run(tmp_path / "turns", "turns:rule=to-go") == set()
    assert run(tmp_path / "states", "turns:rule=states") == set()


@pytest.mark.parametrize(
    ("rule", "fault"),
    [("rows", "baseline by rows"), ("survivors", "absent turns"), ("groups", "absent turns"),
     ("steps", "biased step groups"), ("gigpo", "biased step groups")],
)  # fmt: skip
def test_biased_rules_of_turns(rule: str, fault: str, tmp_path: Path) -> None:
    assert fault in run(tmp_path / "run", f"trainer_turns:rule={rule}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("put", "fault"),
    [
        (changed_mask(ends_dropped), "turn ends masked"),
        (changed_mask(lambda rollouts: rollouts.attended), "tool output trained on"),
        (failures_as_zeros, "failures as zeros"),
    ],
)
def test_masks_and_failures(put: Change, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch)
    assert fault in run(tmp_path / "run")
