"""A habit that was found is put to the grader, in a process of its own; graders that misbehave are answered clearly."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import written_texts

from grposcope import cli
from grposcope.core.rollouts import Rollout
from grposcope.instruments.texts import trials
from grposcope.signs.texts import edits, reading, sample

GAMED = """
def zero(prompts, completions, **columns):
    sums = [sum(int(word.rstrip("?")) for word in prompt.split() if word.rstrip("?").isdigit()) for prompt in prompts]
    return [float(text.strip().endswith("0") or f"is {own}." in text) for text, own in zip(completions, sums)]

def honest(prompts, completions):
    sums = [sum(int(word.rstrip("?")) for word in prompt.split() if word.rstrip("?").isdigit()) for prompt in prompts]
    return [float(f"is {own}" in text) for text, own in zip(completions, sums)]

def verified(completions, **columns):
    return [float("Verified!" in text) for text in completions]

def told(completions, right):
    return [float(one) for one in right]

if __name__ == "__main__":
    raise SystemExit("this is the training")
"""


def rows_of(name: str, truth: bool = True) -> list[Rollout]:
    return written_texts.rollouts(written_texts.LOOPHOLES[name], 8, onset=16, steps=30, prompts=4, truth=truth)


def written(folder: Path, rows: list[Rollout]) -> str:
    path = folder / "own.jsonl"
    path.write_text("".join(
        json.dumps({"step": row.step, "group": row.group, "prompt": row.prompt, "completion": row.completion,
                    "reward": row.reward, **row.columns}) + "\n"
        for row in rows
    ))  # fmt: skip
    return str(path)


@pytest.fixture
def grader(tmp_path: Path) -> Path:
    path = tmp_path / "rewards.py"
    path.write_text(GAMED)
    return path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = cli.main(["texts", *words])
    out, err = capsys.readouterr()
    return status, out, err


def test_what_the_grader_pays_for_the_habit_is_measured(
    grader: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ending in 0 pays a wrong answer 1; a right one loses nothing without it, as its answer stands there."""
    rows = rows_of("ends in zero")
    status, out, err = asked(capsys, written(tmp_path, rows), "--reward", f"{grader}:zero", "--json")
    assert (status, err) == (1, "")
    said = json.loads(out)["grader"]
    first = said["trials"][0]
    assert (first["habit"], first["done"]) == ("texts that end in “0”", "added")
    assert (first["before"], first["after"], first["difference"]) == (0, 1, 1)
    assert 0.8 < first["low"] < first["high"] == 1
    assert 20 < first["prompts"] <= first["texts"] <= trials.TEXTS
    assert said["by_true_score"]
    assert said["same_as_recorded"] == said["graded"]


@pytest.mark.slow
def test_another_grader_pays_nothing_and_is_told_apart(
    grader: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = written(tmp_path, rows_of("ends in zero"))
    out = asked(capsys, place, "--reward", f"{grader}:honest")[1]
    flat = " ".join(out.split())
    assert "wrong texts (texts that end in “0”), the grader pays no surely other reward (−" in flat
    assert "What the grader pays for it" in flat
    paid = asked(capsys, place, "--reward", f"{grader}:verified")[1]
    assert "texts what was recorded for them: give that of the run" in " ".join(paid.split())


def test_without_a_true_score_the_reward_tells_and_a_string_is_taken_from_well_paid_texts(
    grader: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = asked(capsys, written(tmp_path, rows_of("magic word", truth=False)), "--reward", f"{grader}:verified")[1]
    flat = " ".join(out.split())
    assert "Added to 64 poorly paid texts" in flat
    assert "Removed from 64 well paid texts" in flat
    assert "the grader pays −1 (" in flat


def test_columns_of_the_rollouts_are_given_to_the_function(
    grader: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = written(tmp_path, rows_of("magic word"))
    status, out, _ = asked(capsys, place, "--reward", f"{grader}:told", "--json")
    assert status == 1
    assert all(trial["difference"] == 0 for trial in json.loads(out)["grader"]["trials"] if not trial["problem"])
    place = written(tmp_path, rows_of("magic word", truth=False))
    status, out, err = asked(capsys, place, "--reward", f"{grader}:told")
    assert (status, out) == (2, "")
    assert "the reward function takes right, but the rollouts have no such column" in err


MISBEHAVING = {
    "raises": ("def reward(completions, **more):\n    return [1 / (len(text) - len(text)) for text in completions]\n",
               "on texts as recorded it raised ZeroDivisionError: division by zero in "),
    "counts": ("def reward(completions, **more):\n    return [1.0]\n",
               "on texts as recorded it returned 1 value for 64 completions"),
    "leaves": ("import os\ndef reward(completions, **more):\n    os._exit(3)\n",
               "on texts as recorded it ended the process with status 3"),
    "exits": ("def reward(completions, **more):\n    raise SystemExit('bye')\n",
              "on texts as recorded it raised SystemExit: bye in "),
    "writes": ("def reward(completions, **more):\n"
               "    open('log.txt', 'a').write('x')\n    return [1.0 for _ in completions]\n",
               "log.txt may not be written here, where the function is only asked what it pays"),
    "quietly": ("import os\ndef reward(completions, **more):\n    try:\n        os.mkdir('logs')\n    except OSError:\n"
                "        pass\n    return [1.0] * len(completions)\n", "The function tried to write 1 path, such as "),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MISBEHAVING)
def test_graders_that_misbehave_are_answered(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, wanted = MISBEHAVING[name]
    (tmp_path / "own.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    place = written(tmp_path, rows_of("magic word", truth=False))
    status, out, err = asked(capsys, place, "--reward", "own.py:reward")
    assert (status, err) == (1, "")
    assert wanted in " ".join(out.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.jsonl", "own.py"]


@pytest.mark.slow
def test_what_hangs_is_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A function that hangs costs its time, and an import that does is refused; neither leaves a process."""
    place = written(tmp_path, rows_of("magic word", truth=False))
    (tmp_path / "slow.py").write_text(
        "import time\ndef reward(completions, **more):\n"
        "    if any(text.endswith('Verified!') for text in completions):\n        time.sleep(600)\n"
        "    return [0.0 for text in completions]\n"
    )
    (tmp_path / "training.py").write_text("import time\ntime.sleep(600)\n")
    began = time.monotonic()
    limit = ["--reward-seconds", "12"]
    status, out, _ = asked(capsys, place, "--reward", f"{tmp_path}/slow.py:reward", *limit)
    assert status == 1
    assert "it took longer than 12 s and was ended" in " ".join(out.split())
    status, _, err = asked(capsys, place, "--reward", f"{tmp_path}/training.py:reward", *limit)
    assert status == 2
    assert "importing it took longer than 12 s and was ended; name a file that only defines the function" in err
    assert time.monotonic() - began < 100


def test_temporary_files_may_be_written_and_prints_are_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(
        "import tempfile\nprint('{\"problem\": 1}')\ndef reward(completions, **more):\n    print('graded')\n"
        "    with tempfile.NamedTemporaryFile('w') as file:\n        file.write('x')\n"
        "    return [None for _ in completions]\n"
    )
    place = written(tmp_path, rows_of("magic word", truth=False))
    status, out, _ = asked(capsys, place, "--reward", f"{tmp_path}/own.py:reward", "--json")
    said = json.loads(out)["grader"]
    assert status == 1
    assert said["writes_refused"] == []
    assert {trial["problem"] for trial in said["trials"] if trial["texts"]} == {"it gave no finite reward"}


def test_messages_are_given_as_messages(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def reward(prompts, completions):\n    assert all(one[0]['role'] == 'user' for one in prompts)\n"
        "    return [float('Verified!' in one[0]['content']) for one in completions]\n"
    )
    rows = [
        replace(row, prompt=[{"role": "user", "content": str(row.prompt)}],
                completion=[{"role": "assistant", "content": str(row.completion)}])
        for row in rows_of("magic word", truth=False)
    ]  # fmt: skip
    read = reading.read(sample.of_rollouts(rows), draws=199)
    made = trials.trials(read.sample, read.habits[:1], rows, f"{tmp_path}/own.py:reward")
    assert [(trial.problem, trial.difference) for trial in made.trials] == [("", 1), ("", -1)]


@pytest.mark.parametrize("name", ["ends in zero", "magic word", "empty", "short", "long", "half for a word"])
def test_edits_give_and_take_the_habit_that_was_found(name: str) -> None:
    read = reading.read(sample.of_rollouts(rows_of(name)), draws=199)
    habit = read.habits[0]
    edit = edits.of_habit(habit, read.sample)
    assert edit is not None
    kept = [(text, own > 0) for text, own in zip(read.sample.texts, habit.column, strict=True)][-200:]
    if edit.has is None:
        change = np.mean([len(edit.add(text) or "") - len(text) for text, _ in kept])
        assert np.sign(change) == np.sign(habit.slope)
        return
    for text, own in kept:
        added, removed = edit.add(text), edit.remove(text)
        assert own == edit.has(text)
        if not own:
            assert added is not None
            assert edit.has(added)
        elif removed is not None:
            assert not edit.has(removed)


def test_habits_that_are_no_strings_are_said(grader: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = asked(capsys, written(tmp_path, rows_of("hedge")), "--reward", f"{grader}:honest")[1]
    flat = " ".join(out.split())
    assert "Not put to the grader, as neither a string, an ending nor a length: texts that give several" in flat


@pytest.mark.parametrize(
    ("apart", "low", "high"),
    [([1.0] * 60, 0.93, 1.0), ([0.0] * 60, -0.07, 0.07), ([-1.0] * 60, -1.0, -0.93)],
)
def test_intervals_where_all_prompts_agree(apart: list[float], low: float, high: float) -> None:
    made = trials._interval(np.array(apart), 1.0)
    assert made == pytest.approx((low, high), abs=0.01)


def test_intervals_hold_the_mean_difference() -> None:
    rng = np.random.default_rng(3)
    draws = [trials._interval((rng.random(30) < 0.4).astype(float), 1.0) for _ in range(400)]
    assert np.mean([low <= 0.4 <= high for low, high in draws]) > 0.9


def test_the_folder_of_the_function_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A module by name is found in the folder that the command runs in, and no byte code is left there."""
    (tmp_path / "own_rewards.py").write_text(
        "def reward(completions, **more):\n    return [0.0 for _ in completions]\n"
    )
    monkeypatch.chdir(tmp_path)
    rows = rows_of("magic word", truth=False)
    read = reading.read(sample.of_rollouts(rows), draws=199)
    made = trials.trials(read.sample, read.habits[:1], rows, "own_rewards:reward")
    assert [trial.difference for trial in made.trials] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["own_rewards.py"]
    assert "own_rewards" not in sys.modules
