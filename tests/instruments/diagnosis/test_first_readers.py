"""What readers who knew nothing of the tool stumbled over: dates, repeated causes, advice against its own evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from asked import asked

from grposcope.core.errors import UserError
from grposcope.core.run import Groups
from grposcope.logs import read
from grposcope.signs import dead_groups

N = 120


def written(path: Path, columns: dict[str, np.ndarray]) -> Path:
    """A log with these columns, a row a step."""
    rows = [{"step": i + 1, **{key: float(values[i]) for key, values in columns.items()}} for i in range(N)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def traded(path: Path) -> Path:
    """Right answers that are lost from step 40 on, while a form is learned that is paid as much."""
    draw, step = np.random.default_rng(1), np.arange(1, N + 1)
    right = 0.42 + 0.06 * np.minimum(1, step / 30) - 0.3 * np.maximum(0, (step - 40) / 80) + draw.normal(0, 0.02, N)
    form = 0.3 + 0.65 * (1 - np.exp(-step / 35)) + draw.normal(0, 0.02, N)
    return written(path, {
        "reward": right + form, "rewards/accuracy_reward/mean": right, "rewards/format_reward/mean": form,
        "kl": 0.002 * np.exp(step / 20), "step_time": np.full(N, 4.0), "reward_std": np.full(N, 0.4),
        "completions/mean_length": np.full(N, 300.0), "frac_reward_zero_std": np.full(N, 0.2),
        "learning_rate": np.full(N, 1e-6),
    })  # fmt: skip


def test_the_first_line_says_an_outcome_once(tmp_path: Path) -> None:
    _, said = asked("diagnose", traded(tmp_path / "log.jsonl"))
    first = said["sentence"]
    assert first.startswith("Failing: accuracy_reward 0.4")
    assert first.count("→") == 1
    assert ", down since step " in first
    assert first.endswith(" while the reward rose")


def test_a_table_of_runs_has_the_seconds_of_their_steps(tmp_path: Path) -> None:
    one, two = traded(tmp_path / "one.jsonl"), traded(tmp_path / "two.jsonl")
    assert asked("report", one, two, "--out", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "<td>0 s</td>" not in page
    assert page.count("8 min") >= 2


@pytest.mark.parametrize(
    ("level", "which"), [(1.0, "largest"), (0.0, "least"), (2 / 3, "between")], ids=["right", "wrong", "one answer"]
)
def test_dead_groups_are_told_by_the_reward_that_they_have(tmp_path: Path, level: float, which: str) -> None:
    """Eight groups a step; early ones differ, and of the late ones seven of eight have one reward."""
    draw = np.random.default_rng(0)
    rewards = draw.choice([0.0, 1 / 3, 2 / 3, 1.0], (N * 8, 4))
    late = (np.arange(N * 8) >= N * 4) & (np.arange(N * 8) % 8 > 0)
    rewards[late] = level
    groups = Groups.of(np.arange(N).repeat(8) + 1, np.arange(N * 8), list(rewards))
    run = read(written(tmp_path / "log.jsonl", {"reward": rewards.reshape(N, -1).mean(1)}))
    assert dead_groups._reward_of_dead(replace(run, groups=groups)) == which
    assert dead_groups._reward_of_dead(run) == ""


@pytest.mark.parametrize(("clipped", "higher"), [(0.0, False), (0.01, True)])
def test_a_clip_that_is_never_reached_is_no_remedy(tmp_path: Path, clipped: float, higher: bool) -> None:
    entropy = 0.8 * np.exp(-np.arange(N) / 20) + 0.002
    columns = {"reward": np.full(N, 0.4), "entropy": entropy, "clip_high": np.full(N, clipped)}
    _, said = asked("diagnose", written(tmp_path / "log.jsonl", columns))
    found = {finding["fault"]: finding for finding in said["findings"]}
    assert found["entropy collapse"]["status"] == "present"
    assert ("raise the upper clip" in found["entropy collapse"]["remedy"]) == higher


def test_a_fault_is_explained_by_its_name_in_words() -> None:
    assert asked("explain", "reward", "hacking") == asked("explain", "reward-hacking")


@pytest.mark.parametrize("name", ["config.json", "config.yaml"])
def test_settings_in_the_place_of_a_log_are_sent_to_lint(tmp_path: Path, name: str) -> None:
    text = '{"num_generations": 8, "beta": 0.04}' if name.endswith("json") else "num_generations: 8\nbeta: 0.04\n"
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match="settings are read by grposcope lint") as refused:
        asked("diagnose", tmp_path / name)
    assert "--map reward=num_generations" not in str(refused.value)
