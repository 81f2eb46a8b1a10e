"""`advise`: what would have been done in a run of any trainer, from groups or from means; terminal, JSON and page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic

from grposcope.cli import main
from grposcope.core.finding import Finding
from grposcope.core.run import Meta, Run, no_evaluations, no_groups
from grposcope.faults.judge import diagnose
from grposcope.instruments.autopilot import answer, events
from grposcope.instruments.autopilot.alarm import explained, fall
from grposcope.instruments.autopilot.pilot import Decision, _Calm
from grposcope.instruments.autopilot.policy import AutopilotPolicy
from grposcope.instruments.autopilot.replay import replay
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read


def log(path: Path, levels: np.ndarray) -> Path:
    draw = np.random.default_rng(0)
    rows = [{"step": step, "reward": float(level + 0.03 * draw.normal()), "grad_norm": 1.0}
            for step, level in enumerate(levels, 1)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_log_of_means_that_falls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "log.jsonl", np.r_[np.full(60, 0.7), np.full(60, 0.2)])
    assert main(["advise", str(path)]) == 0
    said = capsys.readouterr().out
    assert "An autopilot would first have reacted at step" in said
    assert "The policy got worse, or its prompts got harder: the mean reward was at least" in said
    assert re.search(r"since step (59|6[0-4])", said)
    assert "Only the mean reward of each step is known" in said


def advised(levels: np.ndarray, tmp_path: Path) -> list[Decision]:
    story = replay(read(log(tmp_path / "log.jsonl", levels)), AutopilotPolicy(mode="advise"))
    return list(story.decisions)


def test_advice_that_nobody_follows_is_given_once(tmp_path: Path) -> None:
    (one,) = advised(np.r_[np.full(60, 0.7), np.full(200, 0.2)], tmp_path)
    assert one.action == "rollback"


def test_a_second_fall_is_told_once_the_first_was_made_good(tmp_path: Path) -> None:
    one, other = advised(np.r_[np.full(60, 0.7), np.full(40, 0.2), np.full(60, 0.7), np.full(60, 0.2)], tmp_path)
    assert one.step < 100
    assert other.step > 160


def test_a_sound_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "log.jsonl", np.linspace(0.2, 0.8, 120))
    assert main(["advise", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (
        document["sentence"]
        == "An autopilot would have done nothing: none of its monitors has enough evidence of a fault."
    )


def test_a_problem_that_only_the_diagnosis_finds_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    rows = [{"step": step, "reward": 0.5 + 0.02 * draw.normal(), "entropy": 0.8 * 0.9 ** max(0, step - 30)}
            for step in range(1, 101)]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["advise", str(tmp_path / "log.jsonl")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("The run is failing, and an autopilot would not have acted on it.")
    assert "grposcope diagnose says of the whole run: failing" in said
    assert re.search(
        r"Entropy collapse since step \d+ \(alarm at step \d+\): the entropy went from .* nats\. An autopilot has no "
        r"monitor and no action for this fault\. What you can do: raise the upper clip", said
    )  # fmt: skip


def test_dead_groups_are_named_whatever_their_grade(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run that solves its prompts, with what can be done and why no monitor reacts."""
    path = log(tmp_path / "log.jsonl", np.linspace(0.4, 0.98, 120))
    dead = np.linspace(0.2, 0.95, 120)
    rows = [json.loads(line) | {"frac_reward_zero_std": share}
            for line, share in zip(path.read_text().splitlines(), dead, strict=True)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["advise", str(path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"Saturated.*: \d+% of groups have equal rewards", said)
    assert "What you can do: stop, train on harder prompts" in said


def test_the_evidence_of_a_monitor_is_in_plain_words() -> None:
    because = fall("reward", 20, 9.2, 17, 0.7, 0.6, 0.2).because
    assert because.endswith("(chance shows as much in at most 1 of 9,897 sound runs)")
    assert "e-value" not in because
    assert "1 of a billion sound runs" in fall("reward", 20, 900.0, 17, 0.7, 0.6, 0.2).because


EXAMPLE = Path(__file__).parents[3] / "docs" / "example.jsonl"


def failing_logs(tmp_path: Path) -> Iterator[Path]:
    """The log of the README, and made-up ones that fail in ways that monitors see, see too late, or do not see."""
    yield EXAMPLE
    yield log(tmp_path / "fall.jsonl", np.r_[np.full(60, 0.7), np.full(60, 0.2)])
    yield log(tmp_path / "late.jsonl", np.r_[np.full(100, 0.7), np.full(8, 0.4)])
    yield log(tmp_path / "slow.jsonl", np.linspace(0.7, 0.6, 200))
    for name, columns in {
        "cut": {"completions/clipped_ratio": 0.9}, "dead": {"frac_reward_zero_std": 0.97}, "norm": {"grad_norm": "NaN"},
        "entropy": {"entropy": 0.001},
    }.items():  # fmt: skip
        path = log(tmp_path / f"{name}.jsonl", np.full(120, 0.2))
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        later = [row | columns if row["step"] > 60 else row | dict.fromkeys(columns, 0.3) for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in later))
        yield path


@pytest.mark.slow
def test_no_failing_fault_is_passed_over(tmp_path: Path) -> None:
    """Whatever `diagnose` calls failing is named by `advise`, with what is done about it or why nothing is."""
    failing = 0
    for path in failing_logs(tmp_path):
        run = read(path)
        judged = verdict(run, diagnose(run))
        said = answer.of_run(run)
        text = "\n".join(said.paragraphs).lower()
        worst = [finding for finding in diagnose(run) if finding.grade == "failing"]
        failing += bool(worst)
        assert judged.word not in ("failing", "warning") or said.word == judged.word, path.name
        for finding in worst:
            (told,) = [
                line for line in text.splitlines() if re.search(rf"^{finding.fault}( since step| \(alarm|:)", line)
            ]
            assert re.search(r"an autopilot would react at step|because|hindsight|no action|waits for", told), told
        if worst and not said.tables:
            assert said.sentence.startswith("The run is failing"), path.name
            assert said.do
    assert failing >= 5


def test_the_log_of_the_readme() -> None:
    said = answer.of_run(read(EXAMPLE))
    assert said.word == "failing"
    assert said.sentence == "The run is failing, and an autopilot would not have acted on it."
    assert any(
        line.startswith("Reward hacking since step 100")
        and "the log does not say on how many problems its held-out scores are. What you can do: stop and" in line
        for line in said.text
    )


def test_a_decision_about_a_failing_fault_is_named(tmp_path: Path) -> None:
    said = answer.of_run(read(log(tmp_path / "log.jsonl", np.r_[np.full(60, 0.7), np.full(60, 0.2)])))
    (decision,) = said.document["decisions"]
    assert decision["finding"]["fault"] == "reward decline"
    assert any(f"An autopilot would react at step {decision['step']}" in line for line in said.text)


def test_a_gradient_that_is_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    norms = ["1.0"] * 20 + ["NaN"] * 5
    path.write_text(
        "".join(f'{{"step": {k}, "reward": 0.5, "grad_norm": {norm}}}\n' for k, norm in enumerate(norms, 1))
    )
    said = answer.of_run(read(path))
    assert "The gradient has not been finite since step 21".lower() in said.text[0].lower()


def test_bad_policies_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "log.jsonl", np.full(30, 0.5))
    assert main(["advise", str(path), "--policy", "advise:fall=7"]) == 2
    assert "fall is 7.0; it must be between 0 and 1" in capsys.readouterr().err


def test_a_log_without_rewards(tmp_path: Path) -> None:
    run = read(log(tmp_path / "log.jsonl", np.full(30, 0.5)))
    bare = replace(run, table={name: column for name, column in run.table.items() if name != "reward"})
    assert answer.of_run(bare).word == "cannot tell"


def test_the_page_tells_the_story(tmp_path: Path) -> None:
    folder = synthetic.make(tmp_path / "run", steps=40)
    assert answer._section([read(folder)]) is None
    alarm = explained(fall("reward", 20, 9.2, 17, 0.7, 0.6, 0.2), "<b>the policy got worse</b>")
    events.append(folder, Decision(20, "rollback", alarm, 10, 1, 0.25, 0.6, True))
    assert main(["report", str(folder)]) == 0
    page = (folder / "page.html").read_text()
    assert "The autopilot acted once." in page
    assert "<b>The policy" not in page
    assert "<b>the policy" not in page


def test_events_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    """Decisions that carry monitor, cause and numbers of their own, before they carried the finding."""
    shared = {"kind": "decision", "step": 20, "action": "rollback", "to": 10, "interval": 1, "factor": 0.25,
              "expected": 0.6, "done": True, "setting": "rate", "tokens": 0, "correction": ""}  # fmt: skip
    rows = [
        {"cause": "the policy got worse", "monitor": "reward", "e": 1e4, "since": 17, "level": 0.7, "limit": 0.6,
         "value": 0.2},
        {"cause": "cut", "monitor": "cut", "e": 300.0, "since": -1, "level": "NaN", "limit": "NaN", "value": "NaN"},
        {"cause": "c", "monitor": "not_finite", "e": "Infinity", "since": 18, "level": "NaN", "limit": "NaN",
         "value": "NaN"},
        {"cause": "held", "monitor": "calm", "e": "NaN", "since": 12, "level": "NaN", "limit": 0.6, "value": 0.7},
    ]  # fmt: skip
    (tmp_path / events.EVENTS).write_text("".join(json.dumps(shared | row) + "\n" for row in rows))
    story = events.read(tmp_path)
    assert story is not None
    assert [one.fault for one in story.decisions] == ["reward decline", "length", "non-finite", ""]
    first = story.decisions[0].why
    assert isinstance(first, Finding)
    assert (first.onset, first.seen, first.brief) == (17, 20, "the policy got worse")
    assert first.p == pytest.approx(1e-4)
    assert "was at least 0.7 and has been 0.2 since step 17, below the limit of 0.6" in first.because
    assert isinstance(story.decisions[3].why, _Calm)
    (tmp_path / "again").mkdir()
    for one in story.decisions:
        events.append(tmp_path / "again", one)
    again = events.read(tmp_path / "again")
    assert again is not None
    assert repr(again.decisions) == repr(story.decisions)


def test_a_log_of_means_says_nothing_of_dead_groups() -> None:
    """Each mean is no group of one: 300 steps of a level well below the highest mean."""
    random = np.random.default_rng(2)
    rewards = random.binomial(64, 0.4, 300) / 64
    table = {"step": np.arange(1, 301.0), "reward": rewards}
    run = Run(Meta(Path("log"), "trl", "log", "finished"), {"settings": {}}, table, no_groups(), no_evaluations())
    assert not replay(run, AutopilotPolicy(mode="advise")).decisions
