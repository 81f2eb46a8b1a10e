"""A log and the file of its rollouts in one folder are one run; those of different runs are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from grposcope import cli
from grposcope.core.errors import UserError
from grposcope.logs import read, written_rollouts

STEPS, PROMPTS, GROUP = 40, 4, 4


def folder(place: Path, *, shift: float = 0.0, first: int = 0) -> Path:
    """A run of which 16 rollouts a step are written; the log's reward is of more of them, and shifted by `shift`."""
    random = np.random.default_rng(0)
    place.mkdir(exist_ok=True)
    with (place / "rollouts.jsonl").open("w") as rollouts, (place / "metrics.jsonl").open("w") as log:
        for step in range(STEPS):
            rewards = (random.random((PROMPTS, GROUP)) < 0.2 + 0.5 * step / STEPS).astype(float)
            for prompt in range(PROMPTS):
                for index in range(GROUP):
                    reward, text = rewards[prompt, index], f"it is {index} of {step}"
                    group = {"step": step, "group": f"{step}-{prompt}", "prompt": f"sum {prompt}"}
                    row = {**group, "reward": reward, "completion": text}
                    rollouts.write(json.dumps(row) + "\n")
            mean = float(rewards.mean()) + shift + float(random.normal(0, 0.03))
            log.write(
                json.dumps({"step": step + first, "reward": mean, "grad_norm": 1.0 + float(random.random())}) + "\n"
            )
    return place


def test_they_are_one_run(tmp_path: Path) -> None:
    place = folder(tmp_path / "run")
    run, log = read(place), read(place / "metrics.jsonl")
    assert np.array_equal(run.table["reward"], log.table["reward"])
    assert run.groups.rewards.shape == (STEPS * PROMPTS * GROUP,)
    assert run.rollouts[3][5].completion == "it is 1 of 3"
    assert "rollouts are those of rollouts.jsonl" in run.meta.notes
    assert not any("computed from the rollouts" in note for note in run.meta.notes)


@pytest.mark.parametrize("other", [{"shift": 1.0}, {"first": 1000}])
def test_those_of_different_runs_are_refused(tmp_path: Path, other: dict[str, float]) -> None:
    with pytest.raises(UserError, match="logs of different runs"):
        read(folder(tmp_path / "run", **other))  # type: ignore[arg-type]


def test_the_list_has_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(tmp_path / "run")
    folder(tmp_path / "two", shift=1.0)
    cli.main(["runs", str(tmp_path), "--json"])
    names = sorted(Path(run["path"]).name for run in json.loads(capsys.readouterr().out)["runs"])
    assert names == ["metrics.jsonl", "rollouts.jsonl", "run"]


def test_a_file_of_many_steps_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path / "run") / "rollouts.jsonl"
    reads: list[Path] = []

    def size(path: Path) -> int:
        reads.append(path)
        return path.stat().st_size

    monkeypatch.setattr(written_rollouts, "_bytes_of", size)
    texts = list(read(path).rollouts.values())
    assert (len(texts), len(reads)) == (STEPS, 1)
    monkeypatch.setattr(written_rollouts, "HELD", 0)
    assert list(map(str, read(path).rollouts.values())) == list(map(str, texts))
    assert len(reads) > STEPS
