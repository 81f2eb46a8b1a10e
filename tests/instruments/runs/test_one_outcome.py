"""All that is said of a run agrees on where it went, in direction, levels and words, whoever says it."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import synthetic

from grposcope.core.estimate import Estimate
from grposcope.core.run import Floats, Ints, Run
from grposcope.instruments.diagnosis import answer as diagnosis_answer
from grposcope.instruments.diagnosis import first_line, learning
from grposcope.instruments.diagnosis import verdict as diagnosis
from grposcope.instruments.runs import notebook, overview
from grposcope.instruments.runs.command_runs import _line_of_run
from grposcope.instruments.runs.compare import answer as compare
from grposcope.lab.train import command as train_command
from grposcope.lab.train.result import Totals
from grposcope.logs import read
from grposcope.render import terminal
from grposcope.signs import run_outcome
from grposcope.signs.quantities import Quantities
from grposcope.watch.follow import Watcher

SHAPES = {
    "rises": lambda u: 0.3 + 0.4 * u,
    "creeps": lambda u: 0.4 + 0.055 * u,
    "falls": lambda u: 0.8 - 0.4 * u,
    "collapses": lambda u: np.where(u < 0.5, 0.95, 0.0),
    "lost": lambda u: 0.3 + 0.5 * np.sin(np.pi * np.minimum(1.2 * u, 1.0)),
    "flat": lambda u: 0.4 + 0 * u,
    "solved": lambda u: 0.93 + 0 * u,
    "stalled": lambda u: 0.1 + 0.2 * np.minimum(3 * u, 1.0),
    "constant": lambda u: 0 * u,
}
"""Courses of a success rate over the share of a run that is over."""

KINDS = ("none", "one", "two", "with errors", "without errors", "few problems", "stale", "all alike", "not finite")
"""How a run was evaluated."""

RUNS = 216

WENT = r"rose from|fell from|went from|stayed at|was near|was [-\d.%]+ in every row"
SAID = re.compile(rf"(?:training reward|held-out [\w/@-]+) (?:{WENT})[^;.]*(?:\.\d[^;.]*)*", re.IGNORECASE)
"""A clause about the course of a run."""


def clauses(text: str) -> list[str]:
    """The clauses of a text about the course of the run."""
    lines = "; ".join(" ".join(line.split()) for line in text.splitlines())
    return [found.group().lower() for found in SAID.finditer(lines)]


def direction(clause: str) -> str:
    """Where a clause says that the run went."""
    if "fell" in clause:
        return "down"
    if "rose" in clause:
        return "up"
    still = ("stayed at", "was near the top", "how high the sum", "no gain shown")
    return "none" if any(words in clause for words in still) else "unknown"


def ending(clause: str) -> str:
    """The last level of a clause about the course of the run, before what it says beside that."""
    told = NUMBERS.findall(re.split(r"; its best|;? while |, no |, more ", clause)[0])
    return str(told[-1]) if told else ""


LEVELS = re.compile(r"(?<![\w/])(reward|held-out [\w/@-]+) (\S+) → (\S+?),? (?=in |at |down since )")
"""The outcome, its first and its last level in the first line of a verdict."""

NUMBERS = re.compile(r"\b(?:from|to|at|was) (-?\d[\d.]*%?)(?![\d.])")
"""A level in a clause about the course of a run."""

DOUBTS = {"no gain": ("none", "unknown", "down"), "gain not certain": ("unknown",), "may have lost": ("unknown",)}
"""What the first line says beside its levels -> where the run may have gone."""


def value(shown: str) -> float:
    """The number that is shown, a share in per cent as a share."""
    return float(shown.removesuffix("%")) / (100 if shown.endswith("%") else 1)


def near(number: float) -> object:
    """About this number of 0 to 1, as two significant digits or whole per cents show it."""
    return pytest.approx(number, abs=0.0061)


def hold_to_outcome(line: str, learned: learning.Learning) -> None:
    """The first line says the direction and the levels of the outcome, and the same levels as its clause does."""
    outcome = learned.outcome
    found = LEVELS.findall(line)
    assert len(found) == (outcome.name != "" and math.isfinite(outcome.end.value)), (line, outcome)
    assert len(line) <= first_line.MOST, line
    for words, went in DOUBTS.items():
        assert words not in line or learned.verdict in went, (line, outcome)
    if not found:
        return
    ((what, *shown),) = found
    first, last = map(value, shown)
    assert what == ("held-out accuracy" if outcome.heldout else "reward"), (line, outcome)
    before = outcome.before if learned.verdict == "down" else outcome.start
    assert (first, last) == (near(before.value), near(outcome.end.value)), (line, outcome)
    assert {"up": last > first, "down": last < first}.get(learned.verdict, True), (line, outcome)
    since_best = learned.verdict == "down" and outcome.before != outcome.start
    of_levels = next(part for part in line.split(";") if LEVELS.search(part))
    assert since_best == bool(re.search(r" (?:in the last|at step|down since step) ", of_levels)), (line, outcome)
    clause, _, best = learned.clause.partition("; its best was ")  # said beside the levels that the line has too
    assert not best or value(best.split()[0]) == near(outcome.best.value), (line, learned.clause)
    told = [value(number) for number in NUMBERS.findall(clause)]
    assert told or not outcome.known, learned.clause
    if told:
        assert last == near(told[-1]), (line, learned.clause)
    if len(told) > 1:
        assert first == near(told[-2] if learned.verdict == "down" else told[0]), (line, learned.clause)


CELLS = {"rose": "up", "fell": "down", "rose and fell": "down", "within noise": "none", "cannot tell": "unknown"}
"""Words of the table of several runs -> where they say that the run went."""


def made(folder: Path, number: int) -> Path:
    """A record of a small run whose reward and evaluations follow two courses, which often are the same."""
    rng = np.random.default_rng([29, number])
    shape, kind = list(SHAPES)[number % len(SHAPES)], KINDS[number // len(SHAPES) % len(KINDS)]
    rows = int(rng.choice([5, 20, 36, 60, 90]))
    noise = float(rng.choice([0.01, 0.05])) * (shape != "constant")
    other = SHAPES[str(rng.choice(list(SHAPES)))] if rng.random() < 0.3 else SHAPES[shape]
    reward = np.clip(SHAPES[shape](np.arange(rows) / rows) + noise * rng.normal(size=rows), 0, 1)
    if rng.random() < 0.15:
        reward[rng.random(rows) < 0.2] = math.nan
    count = {"none": 0, "one": 1, "two": 2}.get(kind, int(rng.choice([3, 10])))
    last = rows if kind != "stale" else rows // 2
    steps = np.unique(np.linspace(0, last, count).astype(int))
    se, n = {"without errors": (math.nan, 0), "few problems": (0.15, 8), "all alike": (0.0, 40)}.get(kind, (0.022, 200))
    spread = min(se, 0.15) if n else 0.02
    held = other(steps / rows) + (0 if kind == "all alike" else spread) * rng.normal(size=len(steps))
    held = np.round(held) if kind == "all alike" else np.clip(held, 0, 1)
    if kind == "not finite":
        held[rng.random(len(held)) < 0.3] = math.nan
    return record(folder, reward, steps, held, se, n)


def record(folder: Path, reward: Floats, steps: Ints, held: Floats, se: float, n: int) -> Path:
    """A record of a run with rewards (rows,), and evaluations held (E,) at steps (E,), each ± se of n problems."""
    rows = len(reward)
    folder.mkdir()
    settings = {"recipe": "grpo", "seed": 0, "steps": rows, "prompts": 8, "group": 8, "eval_samples": 4}
    (folder / "config.json").write_text(synthetic.dumps(synthetic._config(settings, 2)))
    table = [{"step": i + 1, "reward": value} for i, value in enumerate(reward.tolist())]
    evals = [
        {"step": step, "pass@1": {"value": value, "se": se, "n": n, "flag": ""}}
        for step, value in zip(steps.tolist(), held.tolist(), strict=True)
    ]
    for name, lines in (("steps", table), ("evals", evals)):
        (folder / f"{name}.jsonl").write_text("".join(synthetic.dumps(line) + "\n" for line in lines))
    (folder / "summary.json").write_text(json.dumps({"steps": rows, "interrupted": False, "seconds": 1.0}))
    return folder


def texts(folder: Path, run: Run) -> dict[str, str]:
    """Who speaks of the run -> all that is said."""
    judged = diagnosis.verdict(run, diagnosis.findings_of(run))
    top = overview.top([run])
    diagnosed = diagnosis_answer.of_run(run, diagnosis.findings_of(run))
    found = {
        "verdict": str(judged),
        "diagnose": terminal.text(diagnosed),
        "page": "\n".join(top.paragraphs),
        "report --json": str(top.document[run.meta.name]["sentence"]),
        "notebook": notebook._text(run),
        "runs": str(_line_of_run(run).verdict),
        "diagnose --json": str(diagnosed.document["verdict"]),
    }
    if np.isfinite(run.table["reward"]).sum() >= 30:
        found["compare"] = compare.of_runs([run, run], ["", ""]).document["verdicts"][0]
    watcher = Watcher(folder)
    watcher.look(synthetic.STARTED)
    found["watch"] = watcher.screen(synthetic.STARTED, 10_000)
    found["watch --json"] = str(watcher.summary(synthetic.STARTED)["verdict"])
    evals = [(int(s), Estimate(0.5, 0.1, 8)) for s in run.evaluations.step]
    totals = Totals(rewards=np.nan_to_num(run.table["reward"]).tolist(), evals=evals)
    found["train"] = train_command._outcome(totals.result(folder, interrupted=False, terminated=False))
    return found


def check(folder: Path) -> str:
    """No two statements about the run disagree; returns where they all say that it went."""
    run = read(folder)
    said = {who: (text, clauses(text)) for who, text in texts(folder, run).items()}
    every = {clause for _, found in said.values() for clause in found}
    learned = learning.of_run(run)
    subject = "held-out accuracy" if learned.outcome.heldout else "training"  # rules name the log's own key
    went = {direction(clause) for clause in every if clause.startswith(subject)}
    assert went <= {learned.verdict}, (learned.verdict, said)
    for subject in ("training", "held-out accuracy"):
        ends = {ending(clause) for clause in every if clause.startswith(subject)}
        assert len(ends) <= 1, (ends, said)
    levels = {found for text, _ in said.values() for found in LEVELS.findall(" ".join(text.split()))}
    assert len(levels) <= 1, said
    hold_to_outcome(said["verdict"][0], learned)
    explains = {bool(re.search(r"\bno more than", text)) for text, _ in said.values() if "explains" in text}
    assert len(explains) <= 1, said
    verdicts = [said[who][0] for who in ("verdict", "report --json", "runs", "diagnose --json", "watch --json")]
    assert len(set(verdicts)) == 1, verdicts
    word = diagnosis.verdict(run, diagnosis.findings_of(run)).word
    if word == "healthy":
        assert learned.verdict in ("up", "none"), said["verdict"]
    if run_outcome.of_reward(Quantities(run)).direction == "up":
        assert "no learning" not in diagnosis.present_faults(diagnosis.findings_of(run)), said["verdict"]
    table = overview.top([run, run]).tables[0]
    cell = str(table.rows[0][table.header.index("change")])
    assert CELLS[cell.removeprefix("reward ")] == learned.verdict, (cell, said["verdict"])
    change = (learning.ends(run) or {}).get("change")
    if change:
        sign = {"up": 1, "down": -1}.get(change["verdict"])
        fell_beside = learned.verdict == "down" and not learned.outcome.heldout
        stood = "none" if fell_beside else learned.verdict  # a score that stands still, beside a reward that fell
        assert change["verdict"] in (learned.verdict, stood, "unknown"), (change, said["verdict"])
        assert change["verdict"] == learned.verdict or not learned.outcome.heldout
        assert sign is None or sign * change["value"] > 0, (change, said["verdict"])
        assert {"up": "−", "down": "+"}.get(change["verdict"], "x") not in re.findall(
            "The change is (.)", said["page"][0]
        )
    return learned.verdict


@pytest.mark.slow
def test_no_two_statements_disagree(tmp_path: Path) -> None:
    seen = Counter(check(made(tmp_path / str(number), number)) for number in range(RUNS))
    assert all(seen[where] >= 20 for where in ("up", "down", "none", "unknown")), seen


def test_a_small_rise_beyond_chance_is_one_everywhere(tmp_path: Path) -> None:
    """The rise from 0.40 ± 0.022 to 0.455 in ten evaluations, whose ends alone chance may explain."""
    steps = np.linspace(0, 60, 10).astype(int)
    folder = record(tmp_path / "run", np.full(60, 0.4), steps, np.linspace(0.4, 0.455, 10), 0.022, 200)
    assert check(folder) == "up"
    assert learning.of_run(read(folder)).sentence.startswith("Held-out accuracy rose from 40% to 45% ")
