"""Probes of the callback, in the trainer's process: what they measure, and that the training does not notice them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import probe_record as probes

pytest.importorskip("transformers")

from engines import tiny_trl
from grposcope import cli
from grposcope.engines.trl import GRPOscopeCallback
from grposcope.logs import read

OPTIONS: dict[str, Any] = {
    "max_steps": 4, "save_strategy": "steps", "save_steps": 2, "log_completions": True, "loss_type": "dr_grpo",
    "scale_rewards": "none",
}  # fmt: skip


def trained(folder: Path, probe_at: Any, **options: Any) -> str:
    """A hash of the weights of a run."""
    pytest.importorskip("trl")
    trainer = tiny_trl.trainer(folder, [GRPOscopeCallback(probe_at=probe_at)], **{**OPTIONS, **options})
    trainer.train()
    digest = hashlib.sha256()
    for weights in trainer.model.parameters():
        digest.update(weights.detach().numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.slow
def test_the_training_does_not_notice_and_the_command_finds_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = trained(tmp_path / "plain", ())
    assert trained(tmp_path / "probed", ("save", "end")) == plain
    records = probes.of_run(read(tmp_path / "probed" / "grposcope"))
    assert [record.step for record in records] == [2, 4]
    for record in records:
        assert record.source is not None
        assert record.source.step == record.step
        assert (record.source.changed_prompts, record.source.changed_completions) == (0, 0)
        assert record.recipe == "dr_grpo"
        assert record.self_check < 1e-3
    out = tmp_path / "again"
    checkpoint = tmp_path / "probed" / "checkpoint-2"
    words = ["--rollouts", str(tmp_path / "probed"), "--step", "2", "--prompts", "8", "--out", str(out)]
    status = cli.main(["probe", str(checkpoint), *words])
    assert status == 0, capsys.readouterr().err
    from grposcope.instruments.gradient.probe_record import read_gram

    np.testing.assert_allclose(records[0].read_gram().gram, read_gram(out).gram, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_probe_that_cannot_be_made_is_said_and_nothing_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, "end", log_completions=False, save_strategy="no")
    said = capsys.readouterr().err
    assert "no probe after step 4: there are no completions to probe; set log_completions=True" in said
    run = read(tmp_path / "grposcope")
    assert run.meta.status == "finished"
    assert run.steps == 4


def test_moments_are_known_by_name() -> None:
    with pytest.raises(UserError, match="probe_at 'start' is unknown; use one or both of save, end"):
        GRPOscopeCallback(probe_at="start")
