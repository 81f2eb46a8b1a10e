"""Runs of W&B, MLflow and trackio by address, with stand-ins that have the interfaces of the packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from asked import asked

from grposcope.core.errors import UserError
from grposcope.logs import read, remote

REWARDS = [0.1 + 0.01 * i for i in range(40)]


def module(monkeypatch: pytest.MonkeyPatch, name: str, **names: Any) -> None:
    made = ModuleType(name)
    vars(made).update(names)
    monkeypatch.setitem(sys.modules, name, made)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A W&B whose one run is team/math/3f2k; returns what was asked for."""
    asked_for: list[str] = []

    def history(page_size: int = 1000) -> Iterator[dict[str, Any]]:
        for i, reward in enumerate(REWARDS):
            yield {"_step": i, "train/global_step": i + 1, "train/reward": reward, "train/frac_reward_zero_std": 0.1,
                   "train/completions/mean_length": 50.0, "table": {"a": 1}}  # fmt: skip
        yield {"_step": 40, "eval/reward": 0.4, "train/global_step": 40}

    class Api:
        def __init__(self, timeout: int) -> None:
            assert timeout == remote.SECONDS

        def run(self, path: str) -> Any:
            asked_for.append(path)
            if path != "team/math/3f2k":
                raise ValueError(f"Could not find run <Run {path} (not found)>")
            config = {"num_generations": 8, "beta": 0.04, "_wandb": {"x": 1}}
            return SimpleNamespace(name="mine", state="crashed", config=config, scan_history=history)

    module(monkeypatch, "wandb", Api=Api)
    return asked_for


@pytest.mark.parametrize(
    "address",
    [
        "wandb://team/math/3f2k",
        "https://wandb.ai/team/math/runs/3f2k?nw=nwuser",
        Path("wandb://team/math/3f2k"),
        "https://acme.wandb.ai/team/math/runs/3f2k/overview",
    ],
)
def test_a_run_of_wandb(wandb: list[str], address: str | Path) -> None:
    run = read(address)
    assert wandb == ["team/math/3f2k"]
    assert run.table["reward"].tolist() == pytest.approx(REWARDS)
    assert run.table["step"][-1] == 40
    assert (run.setting("group"), run.setting("kl")) == (8, 0.04)
    assert (run.meta.name, run.meta.status) == ("mine", "failed")
    assert "read from wandb by its address" in run.meta.notes


def test_every_command_takes_an_address(wandb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, said = asked("diagnose", "wandb://team/math/3f2k")
    assert status == 0
    assert said["sentence"].startswith("Healthy")
    assert asked("report", "wandb://team/math/3f2k")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["3f2k.html"]


def test_what_cannot_be_read_is_told_in_a_line(wandb: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^wandb://team/math/no cannot be read: Could not find .*wandb login"):
        read("wandb://team/math/no")
    with pytest.raises(UserError, match="is no address of a run; write wandb://ENTITY/PROJECT/RUN"):
        read("wandb://math/3f2k")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"wandb:// needs the package wandb, .*pip install .*\[wandb\]"):
        read("wandb://team/math/3f2k")


def test_a_run_of_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    history = {
        "reward": [SimpleNamespace(step=i + 1, value=r, timestamp=i) for i, r in enumerate(REWARDS)],
        "kl": [SimpleNamespace(step=i, value=0.01 * i, timestamp=i) for i in range(10, 41)],
        "frac_reward_zero_std": [SimpleNamespace(step=1, value=0.5, timestamp=1)],
        "completions/mean_length": [SimpleNamespace(step=1, value=50.0, timestamp=1)],
    }
    history["reward"].append(SimpleNamespace(step=40, value=0.9, timestamp=99))  # logged again: the later one counts

    class MlflowClient:
        def get_run(self, run_id: str) -> Any:
            data = SimpleNamespace(metrics=dict.fromkeys(history, 0.9), params={"num_generations": "8", "x": "True"})
            return SimpleNamespace(data=data, info=SimpleNamespace(status="FINISHED", run_name="calm-owl"))

        def get_metric_history(self, run_id: str, key: str) -> list[Any]:
            return history[key]

    module(monkeypatch, "mlflow", MlflowClient=MlflowClient)
    run = read("mlflow://9c1f")
    assert run.table["step"].tolist() == list(range(1, 41))
    assert run.table["reward"][-1] == 0.9
    assert run.table["reward"][:-1].tolist() == pytest.approx(REWARDS[:-1])
    assert run.table["kl"][-1] == pytest.approx(0.4)
    assert run.setting("group") == 8
    assert (run.meta.name, run.meta.status) == ("calm-owl", "finished")


def test_a_run_of_trackio(monkeypatch: pytest.MonkeyPatch) -> None:
    common = {"train/frac_reward_zero_std": 0.1, "train/completions/mean_length": 50.0, "timestamp": "2026-11-26T11:14"}
    rows = [{"train/reward": reward, **common, "step": i + 1} for i, reward in enumerate(REWARDS)]

    def runs(self: Any, project: str) -> list[Any]:
        if project != "math":
            raise ValueError(f"Project '{project}' does not exist")
        return [SimpleNamespace(name="r1", id="a", config={"num_generations": 8, "_Username": "me"})]

    module(monkeypatch, "trackio", Api=type("Api", (), {"runs": runs}))
    store = SimpleNamespace(get_logs=lambda project, run: rows if (project, run) == ("math", "r1") else [])
    module(monkeypatch, "trackio.sqlite_storage", SQLiteStorage=store)
    run = read("trackio://math/r1")
    assert run.table["reward"].tolist() == pytest.approx(REWARDS)
    assert run.setting("group") == 8
    with pytest.raises(UserError, match="the project math has no run r2"):
        read("trackio://math/r2")
    with pytest.raises(UserError, match="cannot be read: Project 'none' does not exist"):
        read("trackio://none/r1")
    rows.clear()
    with pytest.raises(UserError, match="has logged no metric yet"):
        read("trackio://math/r1")


def test_a_path_is_no_address(tmp_path: Path) -> None:
    assert remote.address("outputs/run") is None
    assert remote.address("wandb/run-1/run-1.wandb") is None
    assert remote.address("https://example.com/team/math/runs/1") is None


def test_watch_says_that_it_follows_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="watch follows files; use diagnose"):
        asked("watch", "wandb://team/math/3f2k", "--once")
