"""The rollout viewer: prompts and completions as text, each token shaded by what the policy thought of it.

The rollouts of a probe are shaded by credit, the token's weight in the loss × the norm of its score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.facts import geometry
from grposcope.formatting import CONTROLS, UNSEEN
from grposcope.report.charts.thinning import rounded
from grposcope.report.elements import Section
from grposcope.runs.probe import ProbeRecord, ProbeRollout
from grposcope.runs.run import Rollout, Run, labels

BUDGET = 1_200_000
"""Characters of rollouts that a page may hold, all runs together."""

TEXT, TOKENS, PROMPT, PROBLEMS = 4_000, 1_500, 4_000, 12
"""Largest completion and prompt in characters, completion in tokens, and problems per step."""


def section(runs: Sequence[Run]) -> Section | None:
    """As many recorded steps as fit, spread over the run, the first and the last come first; and each last probe's."""
    shown: list[dict[str, Any]] = []
    numbers: dict[str, Any] = {}
    unread: list[str] = []
    last = geometry.latest(runs)
    budget = BUDGET // (len(runs) + len(last))
    for label, run in zip(labels(runs), runs, strict=True):
        steps, notes = _steps(run, budget)
        numbers[label] = {"recorded_steps": len(run.rollouts), "shown_steps": [step["step"] for step in steps]}
        if steps:
            more = f"{len(steps)} of {len(run.rollouts)} recorded steps are in this page, spread over the run."
            notes = ([more] if len(steps) < len(run.rollouts) else []) + notes
            shown.append({"run": label, "steps": steps, "notes": notes})
    for label, run, probe in last:
        steps, notes = _of_probe(probe, budget)
        numbers[label]["shown_of_probe"] = sum(len(step["problems"]) for step in steps)
        unread += notes
        if steps:
            name = f"{label}, probe" if run.rollouts else label
            shown.append({"run": name, "steps": steps, "notes": [], "probe": True})
    if not shown:
        return Section("rollouts", "Rollouts", text=unread, numbers=numbers) if unread else None
    text = [
        "What the policy wrote. Arrow keys: left and right change the step, up and down the problem. "
        "Characters that are not seen are shown by name, as ESC or U+202E.",
        *unread,
    ]
    if any("probe" in one for one in shown):
        text.append(
            "Of a probe, tokens are shaded by credit: their weight in the loss × the norm of their score ‖e_y − π‖, "
            "green where the gradient makes them more likely. What several completions of a group wrote alike has one "
            "score, so there successes and failures cancel."
        )
    data = {"runs": shown, "unseen": UNSEEN, "controls": CONTROLS}
    return Section("rollouts", "Rollouts", text=text, numbers=numbers, widget="rollouts", data=data)


def spread_out(count: int) -> Iterator[int]:
    """0 … count − 1 in an order whose every beginning is spread over all: the ends, then middles of gaps."""
    seen: set[int] = set()
    parts = 1
    while len(seen) < count:
        for i in range(parts + 1):
            place = round(i * (count - 1) / parts)
            if place not in seen:
                seen.add(place)
                yield place
        parts *= 2


def _steps(run: Run, budget: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Steps in order, and notes on files that could not be read."""
    recorded, left = sorted(run.rollouts), budget
    found: list[dict[str, Any]] = []
    notes: list[str] = []
    for place in spread_out(len(recorded)):
        try:
            step = _step(recorded[place], run.rollouts[recorded[place]])
        except UserError as error:
            notes.append(str(error))
            continue
        left -= _weight(step)
        if left < 0 and found:
            break
        found.append(step)
    return sorted(found, key=lambda step: step["step"]), notes


def _step(step: int, rollouts: Sequence[Rollout]) -> dict[str, Any]:
    problems: dict[str, dict[str, Any]] = {}
    for rollout in rollouts:
        key = rollout.problem
        if key not in problems and len(problems) == PROBLEMS:
            continue
        entry = problems.setdefault(
            key, {"problem": cut(key, 300), "prompt": cut(rollout.prompt, PROMPT), "rollouts": []}
        )
        entry["rollouts"].append(_rollout(rollout))
    left = len({rollout.problem for rollout in rollouts}) - len(problems)
    return {"step": step, "problems": list(problems.values()), "left_out": left}


def _rollout(rollout: Rollout) -> dict[str, Any]:
    reward = rollout.reward if math.isfinite(rollout.reward) else "NaN" if math.isnan(rollout.reward) else "∞"
    tokens, kept = [], 0
    for token in rollout.tokens[:TOKENS]:
        if kept >= TEXT:
            break
        tokens.append(token[: TEXT - kept])
        kept += len(token)
    whole = sum(len(token) for token in rollout.tokens)
    shown = sum(len(token) for token in tokens)
    found: dict[str, Any] = {"index": rollout.rollout, "reward": reward, "truncated": rollout.truncated,
                             "count": len(rollout.tokens)}  # fmt: skip
    if not rollout.tokens:
        return {**found, "text": cut(rollout.completion, TEXT)}
    found["tokens"] = tokens
    if shown < whole:
        found["cut"] = f"cut here: the first {shown:,} of {whole:,} characters"
    for name in ("logp", "entropy", "weight"):
        values = getattr(rollout, name)
        if values is not None and len(values):
            found[name] = rounded(values[: len(tokens)], 3)
    return found


def _of_probe(probe: ProbeRecord, budget: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The probe's rollouts as one step, groups with unequal rewards first; notes on what could not be read."""
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
    problems.sort(key=lambda one: one["dead"])
    kept: list[dict[str, Any]] = []
    for one in problems[:PROBLEMS]:
        budget -= _weight(one)
        if budget < 0 and kept:
            break
        kept.append(one)
    return [{"step": probe.step, "problems": kept, "left_out": len(problems) - len(kept)}], []


def _problem_of_probe(rows: Sequence[ProbeRollout]) -> dict[str, Any]:
    return {
        "problem": cut(rows[0].problem, 300),
        "prompt": cut(rows[0].prompt, PROMPT),
        "dead": len({row.reward for row in rows}) == 1,
        "rollouts": [_rollout_of_probe(i, row) for i, row in enumerate(rows)],
    }


def _rollout_of_probe(index: int, row: ProbeRollout) -> dict[str, Any]:
    """As `_rollout`, with credit = weight × norm, net (what is left of its size) and sharers for each token."""
    nothing = np.empty(0)
    found = _rollout(
        Rollout("", "", index, row.completion, row.reward, False, row.tokens, logp=nothing, entropy=nothing)
    )
    kept = len(found.get("tokens", ()))
    weight, norm, net = (np.array(column[:kept]) for column in (row.weight, row.norm, row.net))
    return found | {
        "credit": rounded(weight * norm, 3),
        "net": rounded(net, 3),
        "sharers": list(row.sharers[:kept]),
        "weight": rounded(weight, 3),
    }


def cut(text: str, limit: int) -> dict[str, str]:
    """The beginning of a text, and a note if that is not all of it."""
    if len(text) <= limit:
        return {"text": text}
    return {"text": text[:limit], "cut": f"cut here: the first {limit:,} of {len(text):,} characters"}


def _weight(step: Any) -> int:
    """About how many characters of JSON this is."""
    if isinstance(step, dict):
        return sum(len(key) + 4 + _weight(value) for key, value in step.items())
    if isinstance(step, list):
        return sum(_weight(value) for value in step) + 2
    if isinstance(step, str):
        return 4 + sum(6 if c in "<>&" or ord(c) < 32 else len(c.encode()) for c in step)
    return 8
