"""The rollout viewer: prompts and completions as text, each token shaded by a number of its own.

Tokens of a run are shaded by log-probability, entropy or weight in the loss; those of a probe by credit, the weight in
the loss × the norm of the score. assets/rollouts.js draws the data of this section.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from grposcope.core.answer import Answer
from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout, plain_text
from grposcope.core.run import Run, labels
from grposcope.core.text import CONTROLS, UNSEEN, number, visible
from grposcope.instruments.runs import ROLLOUTS, measurements
from grposcope.render.rollout_viewer import BUDGET, NAME, PROBLEMS, PROMPT, TEXT, TOKENS, cut
from grposcope.render.thinning import rounded

if TYPE_CHECKING:
    from grposcope.instruments.credit.record import CreditRecord
    from grposcope.instruments.gradient.probe_record import ProbeRecord


PLACES, EXAMPLES = 12, 4
"""Places of a rollout that are shown with continuations, and continuations of each."""

HOW_TO = (
    "Arrow keys: left and right change the step, up and down the problem. Components of the reward "
    "disagree about a completion where one is above its group's mean and another below. Invisible "
    "characters are shown by name, such as ESC or U+202E."
)
OF_PROBES = (
    "Tokens of a probe are shaded by credit: their weight in the loss × the norm of their score ‖e_y "
    "− π‖, green if the gradient makes them more likely. Text that several completions of a group "
    "share has the same score, so there successes and failures cancel."
)

OF_CREDIT = (
    "Tokens of a comparison of credit are shaded by the credit of the chosen source, and beside it "
    "by that of another; each has its own scale."
)


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """What the policies wrote, to be read."""
    result = _section(runs)
    return [] if result is None else [result]


def _section(runs: Sequence[Run]) -> Answer | None:
    """The steps of every run that fit into the page, then the rollouts of its last probe and comparison of credit."""
    shown: list[dict[str, Any]] = []
    numbers: dict[str, Any] = {}
    unread: list[str] = []
    probed = {label: measurements.last_probe(run) for label, run in zip(labels(runs), runs, strict=True)}
    credited = {label: measurements.last_credit(run) for label, run in zip(labels(runs), runs, strict=True)}
    budget = BUDGET // (len(runs) + sum(record is not None for record in (*probed.values(), *credited.values())))
    for label, run in zip(labels(runs), runs, strict=True):
        steps, notes = _steps(run, budget)
        numbers[label] = {"recorded_steps": len(run.rollouts), "shown_steps": [step["step"] for step in steps]}
        if steps:
            more = f"{len(steps)} of {len(run.rollouts)} recorded steps are in this page, spread over the run."
            notes = ([more] if len(steps) < len(run.rollouts) else []) + notes
            shown.append({"run": label, "steps": steps, "notes": notes})
        else:
            unread += notes
    for label, run in zip(labels(runs), runs, strict=True):
        if (probe := probed[label]) is not None:
            steps, notes = _step_of_probe(probe, budget)
            numbers[label]["shown_of_probe"] = sum(len(step["problems"]) for step in steps)
            unread += notes
            if steps:
                name = f"{label}, probe" if run.rollouts else label
                shown.append({"run": name, "steps": steps, "notes": [], "probe": True})
    for label, run in zip(labels(runs), runs, strict=True):
        if (record := credited[label]) is not None:
            credit_document, notes = _of_credit(record, budget)
            numbers[label]["shown_of_credit"] = sum(len(step["problems"]) for step in credit_document.get("steps", ()))
            unread += notes
            if credit_document:
                shown.append(credit_document | {"run": f"{label}, credit" if run.rollouts or probed[label] else label})
    if not shown:
        lost = "The completions cannot be read."
        return (
            Answer("rollouts", ROLLOUTS.question, "cannot tell", lost, text=_grouped(unread), document=numbers)
            if unread
            else None
        )
    text = [
        HOW_TO,
        *_grouped(unread),
        *([OF_PROBES] if any(run_document.get("probe") for run_document in shown) else []),
    ]
    text += [OF_CREDIT] if any("credit" in run_document for run_document in shown) else []
    data = {"runs": shown, "unseen": UNSEEN, "controls": CONTROLS}
    return Answer(
        "rollouts",
        ROLLOUTS.question,
        "told",
        _counted(shown),
        text=text,
        document=numbers,
        widget="rollouts",
        data=data,
    )


def _counted(shown: Sequence[dict[str, Any]]) -> str:
    """How much there is to read."""
    problems = [problem for run_document in shown for step in run_document["steps"] for problem in step["problems"]]
    written = sum(len(problem["rollouts"]) for problem in problems)
    return f"What the policy wrote: {written:,} completions of {len(problems):,} prompts."


def _spread_out(count: int) -> Iterator[int]:
    """0 … count − 1 in an order of which every beginning is spread over all: both ends, then the middles of gaps."""
    seen: set[int] = set()
    parts = 1
    while len(seen) < count:
        for i in range(parts + 1):
            index = round(i * (count - 1) / parts)
            if index not in seen:
                seen.add(index)
                yield index
        parts *= 2


def _steps(run: Run, budget: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Steps of a run within `budget` characters, in order, and notes on files that could not be read."""
    recorded = sorted(run.rollouts)
    steps: list[dict[str, Any]] = []
    notes: list[str] = []
    for index in _spread_out(len(recorded)):
        try:
            step = _step(recorded[index], run.rollouts[recorded[index]])
        except UserError as error:
            notes.append(str(error))
            continue
        budget -= _size(step)
        if budget < 0 and steps:
            break
        steps.append(step)
    return sorted(steps, key=lambda step: step["step"]), notes


def _step(step: int, rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """The first problems of one step with their rollouts."""
    problems: dict[str, dict[str, Any]] = {}
    for rollout in rollouts:
        name = rollout.problem
        if name not in problems and len(problems) == PROBLEMS:
            continue
        empty = {"problem": cut(name, NAME), "prompt": cut(plain_text(rollout.prompt or ""), PROMPT), "rollouts": []}
        problems.setdefault(name, empty)["rollouts"].append(
            _answer(rollout) | _columns(rollout) | _components(rollout) | _branches(rollout)
        )
    left_out = len({rollout.problem for rollout in rollouts}) - len(problems)
    return {"step": step, "problems": list(problems.values()), "left_out": left_out}


def _answer(rollout: Rollout) -> dict[str, Any]:
    """One completion, as its first tokens or, where these are not recorded, as text."""
    tokens = rollout.tokens
    about = {
        "index": rollout.index,
        "reward": rollout.reward if math.isfinite(rollout.reward) else number(rollout.reward),
        "truncated": bool(rollout.truncated),
        "count": len(tokens),
    }
    if not tokens:
        return {**about, "text": cut(plain_text(rollout.completion or ""), TEXT)}
    first = _first(tokens)
    shown, whole = sum(map(len, first)), sum(map(len, tokens))
    note = {"cut": f"cut here: the first {shown:,} of {whole:,} characters"} if shown < whole else {}
    return {**about, "tokens": first, **note}


def _first(tokens: Sequence[str]) -> list[str]:
    """The first TOKENS tokens, up to TEXT characters."""
    first, length = [], 0
    for token in tokens[:TOKENS]:
        if length >= TEXT:
            break
        first.append(token[: TEXT - length])
        length += len(token)
    return first


def _columns(rollout: Rollout) -> dict[str, Any]:
    """The recorded numbers of the tokens that are shown."""
    columns = {"logp": rollout.sampler, "entropy": rollout.entropy, "weight": rollout.loss_weights}
    shown = len(_first(rollout.tokens))
    return {name: rounded(values[:shown], 3) for name, values in columns.items() if shown and values is not None}


def _components(rollout: Rollout) -> dict[str, Any]:
    """The recorded parts of the reward."""
    values = zip(rollout.rewards, rounded(rollout.rewards.values(), 4), strict=True)
    return {"components": {visible(name, 60): value for name, value in values}} if rollout.rewards else {}


def _branches(rollout: Rollout) -> dict[str, Any]:
    """The completion that a leaf of a tree branched from, and by place what else the policy wrote from there."""
    document: dict[str, Any] = {}
    if rollout.parent is not None:
        document["parent"], document["shared"] = rollout.parent, rollout.shared
    if rollout.continuations:
        places: dict[int, list[Rollout]] = {}
        for continuation in rollout.continuations:
            places.setdefault(continuation.shared, []).append(continuation)
        document["continued"] = [
            {
                "place": position,
                "count": len(some),
                "mean": rounded([sum(one.reward for one in some) / len(some)], 3)[0],
                "examples": [
                    {"reward": number(one.reward), **cut(plain_text(one.completion or ""), NAME)}
                    for one in some[:EXAMPLES]
                ],
            }
            for position, some in sorted(places.items())[:PLACES]
        ]
    return document


def _step_of_probe(probe: ProbeRecord, budget: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Rollouts of a probe as one step, groups with unequal rewards first, and notes on what could not be read."""
    group = probe.group
    try:
        rows = probe.read_rollouts()
        if not rows:
            return [], []
        if group is None or group < 1 or len(rows) % group:
            raise UserError(f"{probe.folder}: its rollouts do not make whole groups of {group}, so they are not shown")
    except UserError as error:
        return [], [str(error)]
    problems = [_problem_of_probe(rows[i : i + group]) for i in range(0, len(rows), group)]
    problems.sort(key=lambda problem: problem["dead"])
    shown: list[dict[str, Any]] = []
    for problem in problems[:PROBLEMS]:
        budget -= _size(problem)
        if budget < 0 and shown:
            break
        shown.append(problem)
    return [{"step": probe.step, "problems": shown, "left_out": len(problems) - len(shown)}], []


def _grouped(notes: Sequence[str]) -> list[str]:
    """Notes on files, "path: reason", once for each reason: the first path, and how many further files there are."""
    reasons: dict[str, list[str]] = {}
    for note in notes:
        path, colon, reason = note.partition(": ")
        reasons.setdefault(reason if colon else note, []).append(path)
    said = []
    for reason, paths in reasons.items():
        more = f" and {len(paths) - 1:,} further file{'s' * (len(paths) > 2)}" if len(paths) > 1 else ""
        said.append(reason if paths[0] == reason else f"{paths[0]}{more}: {reason}")
    return said


def _of_credit(record: CreditRecord, budget: int) -> tuple[dict[str, Any], list[str]]:
    """Rollouts of a comparison of credit as one step, with the names of its sources; notes on what was not read."""
    try:
        rows = record.read_rollouts()
    except UserError as error:
        return {}, [str(error)]
    if not rows:
        return {}, []
    names = list(rows[0].measures)
    problems: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.problem not in problems and (len(problems) == PROBLEMS or budget < 0):
            continue
        empty = {"problem": cut(row.problem, NAME), "prompt": cut(plain_text(row.prompt or ""), PROMPT), "rollouts": []}
        own = problems.setdefault(row.problem, empty)["rollouts"]
        first = len(_first(row.tokens))
        columns = [rounded(row.measures[name][:first] if name in row.measures else (), 3) for name in names]
        own.append(_answer(replace(row, index=len(own))) | {"credits": columns})
        budget -= _size(own[-1])
    step = {"step": record.step, "problems": list(problems.values()), "left_out": record.prompts - len(problems)}
    return {"steps": [step], "notes": [], "credit": [visible(name, 60) for name in names]}, []


def _problem_of_probe(rows: Sequence[Rollout]) -> dict[str, Any]:
    return {
        "problem": cut(rows[0].problem, NAME),
        "prompt": cut(plain_text(rows[0].prompt or ""), PROMPT),
        "dead": len({row.reward for row in rows}) == 1,
        "rollouts": [_answer(replace(row, index=i)) | _columns_of_probe(row) for i, row in enumerate(rows)],
    }


def _columns_of_probe(row: Rollout) -> dict[str, Any]:
    """Credit = weight × norm, net (credit that does not cancel), sharers and weight of the tokens that are shown."""
    shown = len(_first(row.tokens))
    weight = np.empty(0) if row.loss_weights is None else row.loss_weights[:shown]
    norm, net, sharers = (row.measures[name][:shown] for name in ("norm", "net", "sharers"))
    return {
        "credit": rounded(weight * norm, 3),
        "net": rounded(net, 3),
        "sharers": sharers.astype(int).tolist(),
        "weight": rounded(weight, 3),
    }


def _size(content: Any) -> int:
    """Characters of the content as JSON, about."""
    if isinstance(content, dict):
        return sum(len(key) + 4 + _size(value) for key, value in content.items())
    if isinstance(content, list):
        return sum(_size(value) for value in content) + 2
    if isinstance(content, str):
        return 4 + sum(6 if c in "<>&" or ord(c) < 32 else len(c.encode("utf-8", "surrogatepass")) for c in content)
    return 8
