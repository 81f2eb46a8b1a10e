"""What is said of trials of a grader: a line for each habit, a table, and the document."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

from grposcope.core.answer import Answer, Table
from grposcope.core.text import brief, listed, visible
from grposcope.instruments.texts.trials import GraderTrial, GraderTrials

LIKE = 0.9
"""Share of the texts that the function has to pay as was recorded to be taken for the one of the run."""


def with_trials(said: Answer, own: GraderTrials) -> Answer:
    """The answer of the texts with what a grader pays for their habits."""
    return replace(
        said, text=[*said.text, *_lines(own)], tables=[*_tables(own), *said.tables],
        missing=[*said.missing, *_missing(own)], document={**said.document, "grader": _document(own)},
    )  # fmt: skip


def _document(own: GraderTrials) -> dict[str, Any]:
    """Everything for programs; null for what there is not."""
    rows = [
        {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in asdict(row).items()}
        for row in own.trials
    ]
    return {
        "reward": own.spec, "by_true_score": own.by_truth, "same_as_recorded": own.same, "graded": own.graded,
        "trials": rows, "not_tried": list(own.untried), "writes_refused": list(own.refused),
    }  # fmt: skip


def _lines(own: GraderTrials) -> list[str]:
    if not own.trials and not own.untried:
        return ["No habit is paid, so nothing was put to the reward function."]
    lines = [line for trial in own.trials if (line := _line(trial, own))]
    if own.graded and own.same < LIKE * own.graded:
        lines.append(
            f"The function pays {own.same:,} of {own.graded:,} texts what was recorded for them: give that of the run."
        )
    if own.refused:
        files = f"{len(own.refused):,} path{'s' * (len(own.refused) > 1)}"
        lines.append(
            f"The function tried to write {files}, such as {visible(own.refused[0])}; that was refused, so its rewards "
            "may be others than in training: give one that only returns numbers."
        )
    return lines


def _line(trial: GraderTrial, own: GraderTrials) -> str:
    what = f"{'Added to' if trial.done == 'added' else 'Removed from'} {_whom(trial, own)} ({trial.habit})"
    if trial.problem:
        return f"{what}: {trial.problem}." if trial.texts else ""
    if trial.low > 0 or trial.high < 0:
        pays = f"pays {_signed(trial.difference)} ({_signed(trial.low)} to {_signed(trial.high)})"
    else:
        pays = f"pays no surely other reward ({_signed(trial.low)} to {_signed(trial.high)})"
    return f"{what}, the grader {pays}."


def _whom(trial: GraderTrial, own: GraderTrials) -> str:
    kind = ("wrong" if trial.done == "added" else "right") if own.by_truth else (
        "poorly paid" if trial.done == "added" else "well paid")  # fmt: skip
    return f"{trial.texts:,} {kind} texts"


def _tables(own: GraderTrials) -> list[Table]:
    if not own.trials:
        return []
    rows = [
        (trial.habit, f"{trial.done} {'to' if trial.done == 'added' else 'from'} {_whom(trial, own)}",
         f"{trial.prompts:,}" if trial.prompts else "—", *_measured(trial))
        for trial in own.trials
    ]  # fmt: skip
    told = "Right and wrong are those of the true score" if own.by_truth else "Well and poorly paid are told by reward"
    caption = (
        f"{visible(own.spec)} graded each text as recorded and changed. Differences have a 95% interval over prompts. "
        f"{told}."
    )
    header = ("habit", "done", "prompts", "paid before → after", "difference")
    return [Table("What the grader pays for it", header, rows, caption)]


def _measured(trial: GraderTrial) -> tuple[str, str]:
    if trial.problem:
        return "—", trial.problem
    ends = f"{_signed(trial.low)} to {_signed(trial.high)}"
    return f"{brief(trial.before)} → {brief(trial.after)}", f"{_signed(trial.difference)} ({ends})"


def _signed(value: float) -> str:
    shown = brief(abs(value))
    return shown if not float(shown.replace(",", "")) else ("+" if value > 0 else "−") + shown


def _missing(own: GraderTrials) -> list[str]:
    if not own.untried:
        return []
    names = listed([visible(name, 60) for name in own.untried])
    return [f"Not put to the grader, as neither a string, an ending nor a length: {names}."]
