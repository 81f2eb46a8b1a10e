"""TRL's losses hold the closed form that their settings state; a loss that adds its passes up undivided is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import judged_claims
import pytest

pytest.importorskip("trl")
pytest.importorskip("datasets")

from engines import tiny_trl
from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.instruments.verify import read


class Unscaled(GRPOscopeTrainer):
    """A trainer whose passes are added up and not divided, from step 2 on."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        found = super()._compute_loss(model, inputs)
        return found * self.args.gradient_accumulation_steps if self.state.global_step else found


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"loss_type": "grpo"}, {"loss_type": "bnpo"}, {"loss_type": "dr_grpo", "num_iterations": 2},
    {"loss_type": "dapo", "steps_per_generation": 4}, {"loss_type": "cispo", "epsilon_high": 5.0},
    {"loss_type": "grpo", "importance_sampling_level": "sequence"},
])  # fmt: skip
def test_losses(tmp_path: Path, options: dict[str, Any]) -> None:
    size = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 3, **options}
    try:
        trainer = tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"verify_every": 1}, **size)
    except (TypeError, ValueError) as error:
        pytest.skip(f"this TRL has no such loss: {error}")
    trainer.train()
    found = read.evidence(tmp_path / "grposcope")
    assert any(row.loss_weights is not None and abs(row.loss_weights).max() > 0 for row in found.rows)
    told = judged_claims.of(found)["gradient"]
    assert told.status == "holds", told


def test_passes_that_are_added_up_undivided(tmp_path: Path) -> None:
    size = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 3, "loss_type": "grpo"}
    tiny_trl.trainer(tmp_path, [], kind=Unscaled, ours={"verify_every": 1}, **size).train()
    told = judged_claims.of(read.evidence(tmp_path / "grposcope"))["gradient"]
    assert told.told[0].fault == "accumulation not scaled"
    assert told.told[0].onset == 2
