"""A run of our loop writes the evidence of its batches, whole and as its loss took them, and stays the same run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_runs import config, weights

from grposcope.instruments.verify import judge, read
from grposcope.lab.policies import Policy
from grposcope.lab.train import loop
from grposcope.lab.train.loop import train


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
        assert row.trained is not None
        assert row.sampler is not None
        if row.current is not None and np.isfinite(row.current).all():  # dead groups are not passed through the model
            assert row.current == pytest.approx(row.sampler, abs=1e-5)
    assert not [one for one in judge.judge(found) if one.status == "broken"]

    credit = loop.per_token
    monkeypatch.setattr(loop, "per_token", lambda *given: credit(*given) * 0.9)
    train(config(policy, tmp_path, verify_every=1, out=str(tmp_path / "wrong"), **settings))
    broken = [one.claim.name for one in judge.judge(read.evidence(tmp_path / "wrong")) if one.status == "broken"]
    assert broken == ["advantages"]
