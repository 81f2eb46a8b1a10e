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


@pytest.mark.slow
def test_a_file_of_many_steps_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path / "run") / "rollouts.jsonl"
    reads: list[Path] = []

    def size(path: Path) -> int:
        reads.append(path)
        return path.stat().st_size

    monkeypatch.setattr(written_rollouts, "_bytes_of", size)
    texts = list(read(path).rollouts.values())
    assert len(texts) == STEPS
    assert len(reads) <= 2  # once to read it, once for the size of all files
    monkeypatch.setattr(written_rollouts, "HELD", 0)
    assert list(map(str, read(path).rollouts.values())) == list(map(str, texts))
    assert len(reads) > STEPS


def dumps(place: Path, *, shift: float = 0.0, of: str = "rollout_data") -> Path:
    """A run with a console log of verl, and its dumps in a folder below; the reward of the log is shifted."""
    random = np.random.default_rng(0)
    (place / of).mkdir(parents=True)
    lines = []
    for step in range(1, STEPS + 1):
        rewards = (random.random((PROMPTS, GROUP)) < 0.2 + 0.5 * step / STEPS).astype(float)
        rows = [
            {"input": f"sum {step} {prompt}", "output": f"it is {index}", "score": rewards[prompt, index], "step": step}
            for prompt in range(PROMPTS) for index in range(GROUP)
        ]  # fmt: skip
        (place / of / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        mean = rewards.mean() + shift
        lines.append(f"step:{step} - actor/entropy:{0.5 + 0.01 * random.random():.4f} - critic/score/mean:{mean:.4f} - "
                     f"critic/rewards/mean:{mean:.4f} - actor/grad_norm:{random.random():.4f}\n")  # fmt: skip
    (place / "train.log").write_text("".join(lines))
    return place


def test_dumps_in_a_folder_below_are_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = dumps(tmp_path / "run")
    run = read(place)
    assert run.meta.engine == "verl"
    assert len(run.groups) == STEPS * PROMPTS
    assert run.rollouts[2][0].completion == "it is 0"
    assert "rollouts are those of rollout_data/" in run.meta.notes
    cli.main(["texts", str(place), "--json"])
    assert json.loads(capsys.readouterr().out)["completions"] == STEPS * PROMPTS * GROUP


def test_dumps_of_another_run_or_too_large_ones_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not read(dumps(tmp_path / "other", shift=1.0)).rollouts
    assert not read(dumps(tmp_path / "saved", of="checkpoint-rollouts")).rollouts
    monkeypatch.setattr(written_rollouts, "HELD", 1000)
    large = read(dumps(tmp_path / "large"))
    assert not large.rollouts
    assert any("rollouts in rollout_data are large and were not read" in note for note in large.meta.notes)
