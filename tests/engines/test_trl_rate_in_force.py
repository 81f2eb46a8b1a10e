"""A trainer of TRL whose steps are larger than its scheduler says: the weights before and after a step show it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl")

from engines.tiny_trl import trainer
from grposcope.engines.trl import GRPOscopeTrainer


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_a_trainer_whose_steps_are_larger_than_the_schedule_says(factor: float, tmp_path: Path) -> None:
    made = trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"verify_every": 1}, weight_decay=0.4, learning_rate=5e-3)
    create = made.create_optimizer

    def other(*given: object, **more: object) -> object:
        optimizer = create(*given, **more)
        step = optimizer.step

        def stepped(*own: object, **rest: object) -> object:
            optimizer.param_groups[0]["lr"] *= factor
            try:
                return step(*own, **rest)
            finally:
                optimizer.param_groups[0]["lr"] /= factor

        optimizer.step = stepped
        return optimizer

    made.create_optimizer = other
    made.train()
    claims = (tmp_path / "grposcope" / "verify" / "claims.jsonl").read_text()
    assert ("learning rate off schedule" in claims) == (factor != 1)
    assert '"status":"broken"' not in claims.replace(": ", ":") or factor != 1
