"""The rollout viewer: prompts and completions as text, each token shaded by what the policy thought of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from grposcope.errors import UserError
from grposcope.report.blocks import Section
from grposcope.report.figures import short
from grposcope.report.words import CONTROLS, UNSEEN, labels
from grposcope.runs.table import Rollout, Run

BUDGET = 1_200_000
"""Characters of rollouts that a page may hold, all runs together."""

TEXT, TOKENS, PROMPT, PROBLEMS = 4_000, 1_500, 4_000, 12
"""Largest completion and prompt in characters, completion in tokens, and problems per step."""


def section(runs: Sequence[Run]) -> Section | None:
    """As many recorded steps as fit, spread over the run; the first and the last come first."""
    shown, numbers = [], {}
    for label, run in zip(labels(runs), runs, strict=True):
        steps, notes = _steps(run, BUDGET // len(runs))
        numbers[label] = {"recorded_steps": len(run.rollouts), "shown_steps": [step["step"] for step in steps]}
        if steps:
            more = f"{len(steps)} of {len(run.rollouts)} recorded steps are in this page, spread over the run."
            notes = ([more] if len(steps) < len(run.rollouts) else []) + notes
            shown.append({"run": label, "steps": steps, "notes": notes})
    if not shown:
        return None
    text = [
        "What the policy wrote. Arrow keys: left and right change the step, up and down the problem. "
        "Characters that are not seen are shown by name, as ESC or U+202E."
    ]
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
            found[name] = short(values[: len(tokens)], 3)
    return found


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
