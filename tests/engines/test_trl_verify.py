"""GRPOscopeTrainer(verify_every=K): what TRL's loss took of each rollout stands beside its reward, though shuffled."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("datasets")

from engines import tiny_trl
from grposcope.core.errors import UserError
from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.instruments.verify import judge, read

SIZE = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 4,
    "num_generations": 4,
}

NAMES = ("prompt_ids", "completion_ids")


def padded(ids: Any, width: int) -> tuple[int, ...]:
    """Ids with padding up to a width, on the left where that is negative."""
    padding = [0] * (abs(width) - len(ids))
    return tuple([*padding, *ids.tolist()] if width < 0 else [*ids.tolist(), *padding])


class Keeping(GRPOscopeTrainer):
    """A trainer that keeps what its loss was given."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        self.kept = [*getattr(self, "kept", []), (self.state.global_step + 1, dict(inputs))]
        return super()._compute_loss(model, inputs)


class Shifted(GRPOscopeTrainer):
    """A trainer whose advantages belong to the rollout before."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        out = super()._generate_and_score_completions(inputs)
        out["advantages"] = out["advantages"].roll(1, 0)
        return out


def test_evidence_is_what_the_loss_took_and_the_run_stays_the_same(tmp_path: Path) -> None:
    ended = []
    for every in (1, 0):
        trainer = tiny_trl.trainer(tmp_path / str(every), [], kind=Keeping, ours={"verify_every": every}, **SIZE)
        torch.manual_seed(3)
        trainer.train()
        ended.append([p.detach().clone() for p in trainer.model.parameters()])
        if every:
            kept = trainer.kept
    assert all(torch.equal(one, other) for one, other in zip(*ended, strict=True))
    found = read.evidence(tmp_path / "1" / "grposcope")
    assert len(found.rows) == 32
    assert list(found.steps) == [1, 3]
    taken = {
        ((step - 1) // 2 * 2 + 1, *(tuple(given[name][i].tolist()) for name in NAMES)): float(given["advantages"][i])
        for step, given in kept
        for i in range(len(given["advantages"]))
    }
    first = 0
    for row in found.rows:
        assert row.completion_ids is not None
        assert row.advantages is not None
        key = (row.step, *map(padded, (row.prompt_ids, row.completion_ids), (-4, 5)))
        assert taken[key] == pytest.approx(float(row.advantages[0]))
        assert row.version == row.step - 1
        assert row.old is not None
        if row.current is not None:  # in the first of the two steps
            first += 1
            assert row.current == pytest.approx(row.old, abs=1e-5)
    assert first == 16
    assert not [one for one in judge.judge(found) if one.status == "broken"]
    claims = [json.loads(line) for line in (tmp_path / "1/grposcope/verify/claims.jsonl").read_text().splitlines()]
    assert [row["step"] for row in claims] == [1, 3]
    assert claims[0]["claims"]["sampling"] == {"status": "cannot tell"}  # weights so flat that any temperature fits
    assert claims[0]["claims"]["advantages"]["status"] == "holds"
    outer = read.evidence(tmp_path / "1")  # TRL's output folder, in which the record lies
    assert (len(outer.rows), len(outer.live)) == (32, 2)


def test_a_fault_is_told_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "grposcope"):
        tiny_trl.trainer(tmp_path, [], kind=Shifted, ours={"verify_every": 1}, max_steps=2).train()
    told = [record.message for record in caplog.records if "broken" in record.message]
    assert len(told) == 1
    assert "step 1: broken: advantages follow from rewards and settings" in told[0]


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="verify_every -1"):
        tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"verify_every": -1})
