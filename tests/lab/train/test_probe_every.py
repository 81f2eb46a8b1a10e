"""`--probe-every`: geometry in the record, and a run that is the same with it as without."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import config, rows, stopped_at, timeless, weights

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import per_step as geometry
from grposcope.lab.policies import Policy
from grposcope.lab.train import loop, probes
from grposcope.lab.train.config import TrainConfig, check
from grposcope.lab.train.loop import resume, train
from grposcope.logs import read


@pytest.fixture
def settings(policy: Policy, tmp_path: Path) -> TrainConfig:
    return config(
        policy, tmp_path, steps=6, eval_problems=0, threads=1, checkpoint_every=2, probe_every=2, probe_prompts=2
    )


def bare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without geometry and times."""
    return [{k: v for k, v in row.items() if not k.startswith("geometry")} for row in timeless(rows)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"interval": 3, "minibatches": 3, "kl": 0.1, "entropy": 0.01, "recipe": "dapo"},
        {"checkpointing": True, "recipe": "gspo", "temperature": 0.7},
        {"dtype": "bfloat16", "optimizer": "sgd"},
        {"staleness": "0-2", "correction": "sequence_cap:1.1", "interval": 2, "minibatches": 1},
    ],
)
def test_the_run_is_the_same_bit_for_bit(settings: TrainConfig, tmp_path: Path, changes: dict[str, Any]) -> None:
    probed = replace(settings, **changes)
    torch.manual_seed(3)
    train(probed)
    after = torch.get_rng_state()
    torch.manual_seed(3)
    train(replace(probed, probe_every=0, out=str(tmp_path / "plain")))
    assert torch.equal(after, torch.get_rng_state())
    assert weights(probed.out) == weights(tmp_path / "plain")
    assert bare(rows(probed.out)) == bare(rows(tmp_path / "plain"))
    assert not any("geometry" in name for row in rows(tmp_path / "plain") for name in row)


@pytest.mark.parametrize(
    ("every", "interval", "steps"),
    [(2, 1, [1, 3, 5]), (1, 1, [1, 2, 3, 4, 5, 6]), (4, 2, [1, 5]), (3, 2, [1, 3]), (2, 3, [1, 4]), (10, 1, [1])],
)
def test_which_steps_are_probed(settings: TrainConfig, every: int, interval: int, steps: list[int]) -> None:
    """Steps 1, 1 + K, …; with an interval, the first step of the batch that such a step uses."""
    changed = replace(settings, probe_every=every, interval=interval)
    assert [step for step in range(1, 7) if probes.due(changed, step)] == steps


def test_the_record_has_them_on_probed_steps_alone(settings: TrainConfig) -> None:
    train(settings)
    for row in rows(settings.out):
        probed = row["step"] in (1, 3, 5)
        assert (set(geometry.NAMES) | {"seconds_probe"} <= row.keys()) == probed
        assert any("geometry" in name for name in row) == probed
    table = read(str(settings.out)).table
    assert [math.isfinite(v) for v in table["geometry/layer_stable"]] == [True, False] * 3
    assert (table["geometry/prompts"][::2] == 2).all()
    assert table["geometry/self_check"][0] < 1e-4
    assert not math.isfinite(table["geometry/self_check"][2])  # one in ten


def test_it_probes_the_fresh_batch_before_the_update(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, seen = geometry.step_metrics, []

    def spy(model: Any, rollouts: Any, recipe: Any, **more: Any) -> dict[str, float]:
        seen.append((rollouts.rewards.clone(), more["learning_rate"]))
        before = [p.detach().clone() for p in model.parameters()]
        metrics = whole(model, rollouts, recipe, **more)
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        return metrics

    monkeypatch.setattr(geometry, "step_metrics", spy)
    train(replace(settings, interval=2, kl=0.1, steps=4))
    lines = rows(settings.out)
    groups = rows(settings.out, "groups")
    for (rewards, lr), step in zip(seen, (1, 3), strict=True):
        assert rewards.tolist() == [g["rewards"] for g in groups if g["step"] == step]
        assert lr == lines[step - 1]["lr"]


def test_a_resumed_run_has_the_same_geometry(
    settings: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_third = replace(settings, probe_every=3)
    train(replace(every_third, out=str(tmp_path / "whole")))
    stopped_at(monkeypatch, every_third, 4)
    resume(tmp_path / "run")
    assert timeless(rows(tmp_path / "run")) == timeless(rows(tmp_path / "whole"))
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_no_mixed_group_is_nan_and_the_run_goes_on(settings: TrainConfig) -> None:
    reward = str(settings.reward).replace("letters", "equal")
    assert train(replace(settings, reward=reward)).steps == 6
    row = rows(settings.out)[0]
    assert row["geometry/dead"] == 1
    assert row["geometry/prompts"] == 0
    assert row["geometry/layer_stable"] == "NaN"


def test_a_probe_that_fails_is_said_and_the_run_goes_on(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def failing(*_: Any, **__: Any) -> dict[str, float]:
        raise UserError("layer a.b: the activations or gradients are not finite")

    monkeypatch.setattr(geometry, "step_metrics", failing)
    assert train(settings).steps == 6
    assert "step 3: no geometry: layer a.b: the activations" in capsys.readouterr().err
    assert rows(settings.out)[2]["geometry/layer_stable"] == "NaN"


def test_gradients_that_are_not_finite_do_not_stop_it(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, count = loop.update, iter(range(1, 100))

    def broken(*given: Any, **more: Any) -> Any:
        done = whole(*given, **more)
        return replace(done, grad_norm=math.nan) if next(count) < 4 else done

    monkeypatch.setattr(loop, "update", broken)
    assert train(settings).steps == 6
    assert all(math.isfinite(rows(settings.out)[step]["geometry/layer_stable"]) for step in (0, 2, 4))


def test_ctrl_c_within_a_probe_ends_the_run(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, count = geometry.step_metrics, iter(range(1, 100))

    def stop(*given: Any, **more: Any) -> dict[str, float]:
        if next(count) == 2:
            raise KeyboardInterrupt
        return whole(*given, **more)

    monkeypatch.setattr(geometry, "step_metrics", stop)
    outcome = train(settings)
    assert outcome.interrupted
    assert outcome.steps == 2


@pytest.mark.parametrize(("name", "value"), [("probe_every", -1), ("probe_prompts", 0)])
def test_settings_are_checked(settings: TrainConfig, name: str, value: int) -> None:
    with pytest.raises(UserError, match=f"{name} is {value}; it must be at least"):
        check(replace(settings, **{name: value}))
