"""Curvature of a finished run, against the parts it is made of; the mathematics is in tests/geometry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.lab import policies
from grposcope.lab.train import run_curvature
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.lab.train.run_curvature import _directional_curvature, _directional_logprobs, _parameter_vector
from grposcope.lab.train.setup import prepare


@pytest.mark.slow
def test_the_stiffest_direction_of_a_run(tmp_path: Path) -> None:
    """On the rollouts that chose it, κ of the Fisher matrix by double backward is that by forward differences."""
    folder = tmp_path / "run"
    train(TrainConfig(steps=1, prompts=2, group=2, kl=0.2, eval_every=0, eval_problems=0, threads=1, out=str(folder)))
    settings = json.loads((folder / "config.json").read_text())["settings"]
    top, measured = run_curvature.of_run(folder, settings, batches=4)
    setup = prepare(TrainConfig(**settings))
    trained = policies.load(str(folder / "model")).model
    assert not torch.equal(_parameter_vector(setup.policy.model), _parameter_vector(trained))
    setup.policy.model.load_state_dict(trained.state_dict())
    fisher = []
    for k in range(2):
        batch = run_curvature._drawn(setup, k)
        along = _directional_logprobs(
            setup.policy.model, batch, top.vector, run_curvature._model_logprobs(setup.policy.model)
        )
        fisher.append(_directional_curvature(along, batch, run_curvature._objective_weights(setup, batch)).fisher.value)
    assert sum(fisher) / 2 == pytest.approx(top.value, rel=0.02)
    assert measured.fisher.n == 2
    assert measured.curvature.value == pytest.approx(measured.current.value + measured.stale.value)


def test_measuring_needs_a_run_with_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no model"):
        run_curvature.of_run(tmp_path, {})
    assert main(["stability", "--measure"]) == 2
    assert "--run" in capsys.readouterr().err
