"""What a command will take is said before it begins, and refused in one line with the remedy where it does not fit."""

from __future__ import annotations

import logging
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.instruments.credit import command as credit
from grposcope.instruments.credit.frontier import CreditBudget
from grposcope.instruments.verify import command_model as verify
from grposcope.lab import policies
from grposcope.lab.policies import Policy
from grposcope.lab.sampling import pass_cost
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.train import setup
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.setup import _pass_bytes


class Large(Policy):
    """A model as if it were large."""

    @property
    def small(self) -> bool:
        return False


@pytest.fixture(scope="module")
def large() -> Policy:
    policy = policies.load("tiny")
    return Large(**{one.name: getattr(policy, one.name) for one in fields(policy)})


def room(monkeypatch: pytest.MonkeyPatch, count: float) -> None:
    monkeypatch.setattr(policies, "available_memory", lambda device: count)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["train", "--steps", "1", "--prompts", "1", "--group", "2", "--max-tokens", "4"], "training (gradient"),
        (["credit", "--prompts", "3", "--group", "2", "--reference", "4", "--max-tokens", "4"], "credit would take"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    words: list[str], what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Any
) -> None:
    room(monkeypatch, 4e6)
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"grposcope: error: {what}")
    assert "4 MB are free; " in line
    assert not list(tmp_path.glob("out/*"))


def test_training_of_a_model_of_some_size_is_told(
    large: Policy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Gradient and two moments, and the activations of the rollouts of a pass; drawing is shared by the interval."""
    monkeypatch.setattr(pass_cost, "step_seconds", lambda *given: (600.0, 8.0))
    config = TrainConfig(prompts=2, group=4, interval=2)
    with caplog.at_level(logging.WARNING):
        setup._check_training(large, config, False, 3, 100)
    needed = 3 * 4 * large.parameters + 3 * _pass_bytes(large.model, 100)
    assert f"will take about {needed / 1e6:.0f} MB above the loaded model, and about 5 minutes a step" in caplog.text


def test_credit_is_told(large: Policy, capsys: pytest.CaptureFixture) -> None:
    budget = CreditBudget(prompts=3, group=4, reference=4, drawn=2, oracle=False, counts=(2,), trees=())
    credit._foretell(large, budget, Sampling(8))
    line = capsys.readouterr().err
    assert line.startswith("credit will take about ")
    assert line.endswith(" s; continuations take more time\n")


@pytest.mark.parametrize("norms", [False, True])
def test_verify_is_told(
    large: Policy, norms: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Logits alone, and gradients where the log has norms to compare them with."""
    ids = np.arange(3, 11)
    rows = tuple(SimpleNamespace(prompt_ids=ids, completion_ids=ids) for _ in range(200))
    run = SimpleNamespace(table={"grad_norm": None} if norms else {})
    evidence: Any = SimpleNamespace(rows=rows, run=run)
    verify._foretell(large, evidence, 2)
    line = capsys.readouterr().err
    assert line.startswith("verify will take about ")
    room(monkeypatch, 5e7)
    with pytest.raises(UserError, match=r"^verify would take about .* are free; log fewer or shorter"):
        verify._foretell(large, evidence, 2)


def test_the_times_of_passes_draw_no_random_number(large: Policy) -> None:
    before = torch.get_rng_state()
    drawing, update = pass_cost.step_seconds(large.model, 4, 16)
    assert 0 < drawing < 60
    assert 0 < update < 60
    assert bool((torch.get_rng_state() == before).all())
    twice = pass_cost.autograd_bytes(large.model, 20) / pass_cost.autograd_bytes(large.model, 10)
    assert twice == 2
    assert pass_cost.autograd_bytes(large.model, 20, recomputed=True) < pass_cost.autograd_bytes(large.model, 20)
