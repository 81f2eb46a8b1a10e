"""A run of our loop writes the evidence of its batches, whole and as its loss took them, and stays the same run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import judged_claims
import numpy as np
import pytest
from small_runs import config, weights

from grposcope.instruments.verify import gradient_norm, read
from grposcope.lab import policies
from grposcope.lab.policies import Policy
from grposcope.lab.train import loop
from grposcope.lab.train.loop import train
from grposcope.signs.rollouts.evidence import PipelineEvidence


def test_evidence_of_a_run(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"steps": 3, "eval_problems": 0, "checkpoint_every": 0, "rollouts_every": 0}
    train(config(policy, tmp_path, verify_every=2, out=str(tmp_path / "watched"), **settings))
    train(config(policy, tmp_path, out=str(tmp_path / "plain"), **settings))
    for before, after in zip(weights(tmp_path / "watched"), weights(tmp_path / "plain"), strict=True):
        assert before == after  # it draws nothing and changes nothing
    found = read.evidence(tmp_path / "watched")
    assert list(found.steps) == [1, 3]
    assert len(found.rows) == 24
    assert found.stated.group == 4
    groups = [json.loads(line) for line in (tmp_path / "watched" / "groups.jsonl").read_text().splitlines()]
    logged = [reward for row in groups if row["step"] != 2 for reward in row["rewards"]]
    assert [row.reward for row in found.rows] == pytest.approx(logged)
    for row in found.rows:
        assert row.version == row.step - 1
        assert row.mask is not None
        assert row.sampler is not None
        if row.current is not None and np.isfinite(row.current).all():  # dead groups are not passed through the model
            assert row.current == pytest.approx(row.sampler, abs=1e-5)
    assert not [one for one in judged_claims.of(found).values() if one.status == "broken"]

    credit = loop.per_token
    monkeypatch.setattr(loop, "per_token", lambda *given: credit(*given) * 0.9)
    train(config(policy, tmp_path, verify_every=1, out=str(tmp_path / "wrong"), **settings))
    broken = [
        name for name, one in judged_claims.of(read.evidence(tmp_path / "wrong")).items() if one.status == "broken"
    ]
    assert broken == ["advantages"]


@pytest.mark.slow
def test_the_gradient_is_taken_again_and_a_loss_with_another_sign_is_named(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logged norms are those of the stated loss at the checkpoint before the step; then the KL term pushes away."""
    settings = {"steps": 3, "eval_problems": 0, "rollouts_every": 0, "kl": 0.3, "verify_every": 1,
                "checkpoint_every": 1, "keep_checkpoints": 0, "lr": 3e-3}  # fmt: skip
    train(config(policy, tmp_path, out=str(tmp_path / "sound"), **settings))
    found = again(tmp_path / "sound")
    assert [one.step for one in found.gradients] == [2, 3]
    for one in found.gradients:
        assert one.norm(1, 0.3) == pytest.approx(one.logged, rel=1e-4)
    sound = judged_claims.of(found)
    assert sound["gradient"].status == "holds"
    assert sound["resume"].status == "cannot tell"  # the run was never restarted
    assert "continues over 3 checks" in " ".join(one.because for one in sound["resume"].told)

    step = loop._Session.optimise

    def turned(self: loop._Session, *given: Any) -> Any:
        right, objective = self.setup, self.setup.objective
        self.setup = replace(right, objective=replace(objective, kl=-objective.kl))
        try:
            return step(self, *given)
        finally:
            self.setup = right

    monkeypatch.setattr(loop._Session, "optimise", turned)
    train(config(policy, tmp_path, out=str(tmp_path / "wrong"), **settings))
    wrong = again(tmp_path / "wrong")
    told = judged_claims.of(wrong)["gradient"]
    assert (told.told[0].fault, told.told[0].brief) == ("wrong kl term", "KL sign")
    assert told.told[0].onset == 2
    assert {one.fault for one in told.told} == {"wrong kl term", "another loss"}


def again(folder: Path) -> PipelineEvidence:
    """The evidence of a run with the gradients at its checkpoints."""
    found = read.evidence(folder)
    places = {int(one.parent.name[5:]): one for one in folder.glob("checkpoints/step-*/model")}
    taken = [gradient_norm.measure(policies.load(str(places[at])), found, at + 1) for at in sorted(places)]
    return replace(found, gradients=tuple(one for one in taken if one is not None))


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_the_rate_that_steps_took_is_held_to_the_schedule(
    factor: float, policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = loop.update

    def other(model: Any, optimizer: Any, *given: Any, **more: Any) -> Any:
        for group in optimizer.param_groups:
            group["lr"] *= factor
        return update(model, optimizer, *given, **more)

    monkeypatch.setattr(loop, "update", other)
    train(config(policy, tmp_path, verify_every=1, out=str(tmp_path / "run"), steps=3, eval_problems=0,
                 checkpoint_every=0, weight_decay=0.2))  # fmt: skip
    found = read.evidence(tmp_path / "run")
    assert found.stated.decay == 0.2
    assert [one.rate / one.scheduled for one in found.optimizer] == pytest.approx([factor] * 3, rel=1e-3)
    broken = [name for name, one in judged_claims.of(found).items() if one.status == "broken"]
    assert broken == ([] if factor == 1 else ["first update"])
