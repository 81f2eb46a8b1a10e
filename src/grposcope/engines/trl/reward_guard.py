"""A guard for reward functions of TRL: a time limit, and a policy for rollouts on which they fail.

    from grposcope.engines.trl import guarded

    trainer = GRPOTrainer(…, reward_funcs=[guarded(my_reward, seconds=60, errors="zero")])

Without it, a function that raises ends the run without saying on which rollout, and one that hangs holds the run, on
all ranks, for ever. Policies as in `lab.tasks.faults`: "fail" ends the run and names the rollout, "zero" gives it 0.
"drop" takes it out of its group: TRL has no such thing, so the rollout gets the mean reward of the others that this
process has of its prompt. Its advantage is then 0, and those of the others are as without it up to a factor: 1 for
scale_rewards "none", √((G−1)/(k−1)) for "group", with k of G rollouts left.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from grposcope.core.errors import UserError
from grposcope.lab.tasks import faults
from grposcope.lab.tasks.base import number, raised_in
from grposcope.lab.tasks.limits import OutOfTime, time_limit

SHARE = "reward_error_share"
"""Metric of a guarded function: share of a batch's rollouts on which it failed."""


def guarded(function: Callable[..., Any], seconds: float = 300.0, errors: faults.ErrorPolicy = "fail") -> Any:
    """The reward function with a limit of `seconds` per batch, 0 for none, and a policy for rollouts on which it fails.

    The limit interrupts the main thread of a POSIX process, where TRL calls reward functions. Failures are counted in
    the metric SHARE (TRL 1.0 or newer) and said on stderr. UserError for an unknown policy and for an async function.
    """
    if errors not in faults.POLICIES:
        raise UserError(f"errors {errors!r} is unknown; use one of {', '.join(faults.POLICIES)}")
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise UserError(
            "only plain functions can be guarded, neither async functions nor reward models; pass it to TRL directly"
        )

    @functools.wraps(function)
    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        rows = {"prompts": prompts, "completions": completions, **columns}
        if errors == "fail":
            return _or_fail(function, rows, seconds)
        values, said = _singly(function, rows, seconds)
        if said:
            print(f"grposcope: {len(said)} of {len(values)} rewards failed; {said[0]}", file=sys.stderr)
        if log := columns.get("log_metric"):
            log(SHARE, len(said) / len(values))
        return [_replaced(values, prompts, i, errors) for i in range(len(values))]

    return reward


def _or_fail(function: Callable[..., Any], rows: dict[str, Any], seconds: float) -> list[float | None]:
    """The rewards; UserError that names the first rollout on which the function fails alone."""
    name = getattr(function, "__name__", "reward")
    try:
        with time_limit(seconds):
            values: list[float | None] = list(function(**rows))
        reason = ""
    except UserError:
        raise
    except OutOfTime:
        reason = f"took longer than {seconds:g} s"
    except (Exception, SystemExit) as error:
        reason = f"raised {type(error).__name__}: {error}{raised_in(error)}"
    if not reason:
        bad = [i for i, value in enumerate(values) if value is not None and not math.isfinite(number(value))]
        if not bad:
            return values
        reason = f"is {values[bad[0]]!r}"
        raise UserError(
            f"the reward function {name} {reason} for {_name(rows, bad[0])}; return a finite number or None"
        )
    try:
        _, said = _singly(function, rows, seconds, together=False)
        which = said[0] if said else "no single rollout fails when graded alone"
    except UserError as error:
        which = str(error)
    raise UserError(
        f"the reward function {name} {reason} ({which}); correct it, or guard it with errors='zero' or 'drop'"
    )


def _singly(
    function: Callable[..., Any], rows: dict[str, Any], seconds: float, together: bool = True
) -> tuple[list[float | None], list[str]]:
    """Rewards, NaN where they fail and None where the function gives none; and a clause for each that failed."""
    count = len(rows["completions"])
    nothing: set[int] = set()

    def seen(value: Any, i: int) -> Any:
        if value is not None:
            return value
        nothing.add(i)
        return 0.0

    def alone(i: int) -> Any:
        row = {
            name: [values[i]] if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == count
            else values
            for name, values in rows.items()
        }  # fmt: skip
        return seen(next(iter(function(**row))), i)

    def all_at_once() -> list[Any]:
        if not together:
            raise OutOfTime
        return [seen(value, i) for i, value in enumerate(function(**rows))]

    names = [_name(rows, i) for i in range(count)]
    what = f"the reward function {getattr(function, '__name__', 'reward')}"
    values, said = faults.singly(all_at_once, alone, names, seconds, what)
    return [None if i in nothing and not math.isnan(value) else value for i, value in enumerate(values)], said


def _name(rows: dict[str, Any], i: int) -> str:
    """Number, prompt and completion of a rollout, shortened."""
    return f"rollout {i}, prompt {str(rows['prompts'][i])[-60:]!r}, completion {str(rows['completions'][i])[:60]!r}"


def _replaced(
    values: Sequence[float | None], prompts: Sequence[Any], i: int, errors: faults.ErrorPolicy
) -> float | None:
    """The reward of rollout i, with that of the policy in place of NaN."""
    value = values[i]
    if value is None or not math.isnan(value):
        return value
    if errors == "zero":
        return 0.0
    others = [
        other for other, prompt in zip(values, prompts, strict=True)
        if prompt == prompts[i] and other is not None and not math.isnan(other)
    ]  # fmt: skip
    return math.fsum(others) / len(others) if others else 0.0
