"""A resume went on: learning rate, data order, level and gradient at the first step after a restart.

That no prompt comes twice within an epoch and that data do not begin anew is exact; so is the learning rate. Level and
gradient norm are compared with how much they change from row to row elsewhere: by rank, and beyond all of them by the
heavy tail of a t distribution, which is an approximation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Floats, Run
from grposcope.signs import lost_weights
from grposcope.signs.quantities import NotLoggedError, Quantities
from grposcope.signs.rollouts.evidence import OptimizerEvidence, PipelineEvidence
from grposcope.signs.rollouts.findings import by_chance, exact, was_tested

FEWEST = 20
"""Changes from row to row that a jump is compared with."""

DEGREES = 4
"""Of Student's t, whose tail is given to changes beyond all others: as heavy as that of gradient norms."""


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Prompts of the rollouts, then what the log says at each restart."""
    prompts, run = prompts_of(evidence.rows), evidence.run
    data = [*_drawn_again(evidence, prompts), *_epochs(evidence, prompts)]
    state = list(_optimizer(evidence))
    if run is not None:
        yield from _back_at_the_start(run)
    if run is None or len(run.segments) < 2:
        yield from (*data, *state)
        yield cannot_tell("There is no log, so restarts are unknown; give the log of the run." if run is None
                          else "The log shows no restart.")  # fmt: skip
        return
    norms: list[Finding] = []
    for segment in run.segments[1:]:
        at = int(segment.table["step"][0])
        data += _order(evidence, prompts, at)
        norms.append(_jump(run, "grad_norm", at, "optimiser state lost", "The optimiser restarts without its moments, "
                           "so its first steps are too large."))  # fmt: skip
        yield _rate(run, at)
        yield _jump(run, "reward", at, "weights lost at a restart", "The run continues from different weights.")
    yield from data
    if not data:
        yield cannot_tell(
            "The order of the data was not tested; write the prompts of all rollouts around each restart."
        )
    yield from _either(norms, state)


def _back_at_the_start(run: Run) -> Iterator[Finding]:
    """That KL and reward go back to their first levels at one step, whether or not the log marks a restart there."""
    try:
        seen = lost_weights.check(Quantities(run))
    except NotLoggedError:
        return
    if seen.present:
        effect = "What was learned before that step is gone."
        yield exact(lost_weights.LOST, True, seen.because, "", onset=seen.onset, effect=effect)


def _either(norms: Sequence[Finding], state: Sequence[Finding]) -> Iterator[Finding]:
    """Both looks at the optimiser's state; why one could not be had is told only where the other could not either."""
    whole = [all(was_tested(one) for one in found) for found in (norms, state)]
    for found, other in ((norms, whole[1]), (state, whole[0])):
        yield from (one for one in found if was_tested(one) or not other)


def prompts_of(rows: Sequence[Rollout]) -> dict[int, frozenset[str]]:
    """Step -> its prompts."""
    found: dict[int, set[str]] = {}
    for row in rows:
        name = str(row.prompt) if row.prompt is not None else None
        if name is None and row.prompt_ids is not None and len(row.prompt_ids):
            name = row.prompt_ids.tobytes().hex()
        if name is not None:
            found.setdefault(row.step, set()).add(name)
    return {step: frozenset(found[step]) for step in sorted(found)}


EQUAL_PROMPTS = cannot_tell(
    "Some prompts appear twice within an epoch, so the data may hold duplicates; remove them to test the data order."
)

FEWEST_STEPS = 3
"""Steps of an epoch, at least, by which a data set without repeats is known from its rollouts."""

IN_ORDER = 4
"""Prompts that have to come again at the same distance before the order of the data is said to be repeated."""


def _in_order(again: Sequence[tuple[int, int]], prompts: Mapping[int, frozenset[str]]) -> bool:
    """Whether data come again: IN_ORDER prompts or more at one distance in steps, and half of those of their steps.

    again: step at which a prompt comes, and step at which it had come, of each. Prompts that the data hold twice come
    again one by one, at any distance.
    """
    at: dict[int, Counter[int]] = {}
    for step, before in again:
        at.setdefault(step - before, Counter())[step] += 1
    return any(
        count.total() >= IN_ORDER and 2 * count.total() >= sum(len(prompts.get(step, ())) for step in count)
        for count in at.values()
    )


def _shown_epoch(prompts: Mapping[int, frozenset[str]]) -> tuple[int, int, int] | None:
    """Prompts of an epoch, prompts of a step, and 1, where the first steps have every prompt there is exactly once and
    the steps of two such epochs at least follow without a gap; else None."""
    sizes = {len(names) for names in prompts.values()}
    if len(sizes) != 1 or list(prompts) != list(range(1, len(prompts) + 1)):
        return None
    (size,), data = sizes, len(frozenset().union(*prompts.values()))
    steps = data // size
    first = frozenset().union(*(prompts[step] for step in range(1, min(steps, len(prompts)) + 1)))
    if data % size or steps < FEWEST_STEPS or len(prompts) < 2 * steps or len(first) != data:
        return None
    return data, size, 1


def _drawn_again(evidence: PipelineEvidence, prompts: Mapping[int, frozenset[str]]) -> Iterator[Finding]:
    """No prompt in two batches of an epoch, where the settings say how long it is and that prompts come in turn."""
    data, size, interval = evidence.stated.data, evidence.stated.prompts, evidence.stated.interval or 1
    every = {**evidence.earlier, **prompts}
    shown = not data and _shown_epoch(every)
    if shown:
        data, size, interval = shown
    if not data or not size or len(every) < 2:
        return
    seen: dict[tuple[int, str], int] = {}
    again: list[tuple[int, int]] = []
    inside: Counter[int] = Counter()
    for step in sorted(every):
        first = (step - 1) // interval * size
        epoch = first // data
        if (first + size - 1) // data != epoch:
            continue  # a batch across the end of an epoch has prompts of both
        inside[epoch] += 1
        for prompt in every[step]:
            before = seen.setdefault((epoch, prompt), step)
            if (before - 1) // interval != (step - 1) // interval and step in prompts:
                again.append((step, before))
    if again and not shown and not _in_order(again, prompts):
        yield EQUAL_PROMPTS
        return
    compared = sum(count for count in inside.values() if count > 1)
    if not compared:
        return
    step, before = min(again, default=(0, 0))
    yield exact(
        fault="repeated data",
        broken=bool(again),
        evidence=f"{len(again):,} prompts are repeated within an epoch of {data:,}; the first appears at step {before} "
        f"and again at step {step}",
        held=f"No prompt is repeated in {compared:,} batches within an epoch of {data:,}; a single repeat would have "
        "been seen.",
        effect="Some prompts are trained on twice and others never.",
        remedy="Restore the position in the data with the checkpoint.",
        onset=step if again else None,
    )


def _optimizer(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Adam's state goes on: its count of updates grows with the steps, its second moments decay no faster than β₂."""
    beta2 = evidence.stated.beta2
    known = [one for one in evidence.optimizer
             if one.updates == one.updates or (one.second == one.second and beta2 is not None)]  # fmt: skip
    if not known:
        yield cannot_tell("The optimiser's state was not recorded, or its β₂ is not stated; save it with the "
                          "checkpoints, or train with verify_every.")  # fmt: skip
        return
    counts = all(one.updates == one.updates for one in known)
    lost: list[tuple[int, str]] = []
    before = OptimizerEvidence(0, 0.0, 0.0)
    for one in known:
        steps = one.step - before.step
        missing = steps - (one.updates - before.updates)
        if one.updates < before.updates or missing > max(1.0, 0.5 * steps):
            lost.append((one.step, f"it counts {one.updates:.0f} updates after step {one.step}, but "
                         f"{before.updates:.0f} after step {before.step}"))  # fmt: skip
        elif beta2 is not None and steps > 0 and one.second < 0.99 * beta2**steps * before.second:
            lost.append((one.step, f"its second moments sum to {one.second:.3g} after step {one.step} "
                         f"and to {before.second:.3g} after step {before.step}; with β₂ = {beta2:g} they decay "
                         "more slowly"))  # fmt: skip
        before = one
    yield exact(
        fault="optimiser state lost",
        broken=bool(lost),
        evidence=f"The optimiser's state was reset: {lost[0][1]} ({known[0].where or 'in training'})" if lost else "",
        held=f"The optimiser's state continues over {len(known):,} checks"
        + (f": it counts {before.updates:.0f} updates after step {before.step}" if counts else "")
        + f"; a reset of its {'count' if beta2 is None else 'moments or count' if counts else 'moments'} would have "
        "been detected.",
        effect="The optimiser restarts without its moments, so its first steps are too large.",
        remedy="Restore the optimiser's state with the checkpoint, and create the optimiser only once.",
        onset=lost[0][0] if lost else None,
    )


def _epochs(evidence: PipelineEvidence, prompts: Mapping[int, frozenset[str]]) -> Iterator[Finding]:
    """No prompt twice within an epoch, where the log has epochs and the rollouts of every step are there."""
    run = evidence.run
    if run is None or "epoch" not in run.table or len(prompts) < 2 or evidence.whole is False:
        return
    epochs = {int(step): float(epoch) for step, epoch in zip(run.table["step"], run.table["epoch"], strict=True)
              if np.isfinite(step) and np.isfinite(epoch)}  # fmt: skip
    steps = [step for step in prompts if step in epochs]
    if len(steps) < 2 or steps[-1] - steps[0] + 1 != len(steps):
        return
    seen: dict[tuple[int, str], int] = {}
    again: list[tuple[int, int]] = []
    inside = 0
    for step in steps:
        before = epochs.get(step - 1, 0.0)
        number = int(np.floor(before + 1e-9))
        if number != int(np.floor(epochs[step] - 1e-9)):
            continue  # a step across the end of an epoch has prompts of both
        inside += 1
        for prompt in prompts[step]:
            first = seen.setdefault((number, prompt), step)
            if step - first > 1 and prompts[step - 1].isdisjoint({prompt}):
                again.append((step, first))
    if inside < 2:
        return
    if again and not _in_order(again, prompts):
        yield EQUAL_PROMPTS
        return
    first_again = min(again, default=None)
    yield exact(
        fault="repeated data",
        broken=bool(again),
        evidence="" if first_again is None else (
            f"{len(again):,} prompts are repeated within an epoch; the first appears at step {first_again[1]} and "
            f"again at step {first_again[0]}"
        ),
        held=f"No prompt is repeated within an epoch, over {inside:,} steps.",
        effect="Some prompts are trained on twice and others never.",
        remedy="Restore the state of the data loader with the checkpoint (ignore_data_skip=False in TRL).",
        onset=None if first_again is None else first_again[0],
    )  # fmt: skip


def _order(evidence: PipelineEvidence, prompts: Mapping[int, frozenset[str]], at: int) -> Iterator[Finding]:
    """After a restart the prompts are not those of the beginning, step by step."""
    begin = min(prompts, default=at)
    lag = at - begin
    pairs = [(step, step - lag) for step in prompts if step >= at and step - lag in prompts and step - lag < at]
    if lag < 2 or len(pairs) < 2 or evidence.whole is False:
        return
    same = [step for step, before in pairs if prompts[step] == prompts[before]]
    once = all(prompts[one].isdisjoint(prompts[other]) for one in range(begin, min(begin + 5, at)) if one in prompts
               for other in range(one + 1, min(begin + 5, at)) if other in prompts)  # fmt: skip
    if not once:
        return
    yield exact(
        fault="repeated data",
        broken=len(same) == len(pairs),
        evidence=f"After the restart at step {at} the prompts of {len(pairs)} steps repeat those of the first steps",
        held=f"After the restart at step {at} the data do not start again from the beginning.",
        effect="Some prompts are trained on twice and others never.",
        remedy="Restore the state of the data loader with the checkpoint (ignore_data_skip=False in TRL).",
        onset=at,
    )


def _rate(run: Run, at: int) -> Finding:
    """The learning rate goes on where it was, and does not begin anew."""
    if "lr" not in run.table:
        return cannot_tell("The log has no learning rate; log it at every step.")
    step, rate = _column(run, "lr")
    before, after = np.flatnonzero(step < at), np.flatnonzero(step >= at)
    if len(before) < 3 or len(after) < 2:
        return cannot_tell(f"The learning rate was logged too seldom around the restart at step {at}; log it at every "
                           "step.")  # fmt: skip
    changes = np.abs(np.diff(rate[before]) / np.maximum(np.diff(step[before]), 1))
    gap = max(step[after[0]] - step[before[-1]], 1)
    jump = abs(rate[after[0]] - rate[before[-1]])
    least = 1e-6 * float(np.abs(rate).max())
    count = min(len(after), len(before))
    anew = bool(np.allclose(rate[after[:count]], rate[before[:count]], rtol=1e-6, atol=0)) and jump > least
    wrong = anew or jump > 3 * gap * changes.max() + least
    return exact(
        fault="learning rate off schedule",
        brief="learning rate restarted" if anew else "learning rate jumps",
        broken=wrong,
        evidence=f"The learning rate jumps from {rate[before[-1]]:.4g} to {rate[after[0]]:.4g} at the restart at step "
        f"{at}" + (", and then repeats the start of the schedule" if anew else ""),
        held=f"The learning rate continues from {rate[before[-1]]:.4g} at the restart at step {at}.",
        effect="Steps are larger or smaller than the schedule states.",
        remedy="Restore the scheduler with the checkpoint.",
        onset=at,
    )


def _jump(run: Run, name: str, at: int, fault: str, effect: str) -> Finding:
    """The change of a metric across the restart among its changes elsewhere; p by rank."""
    if name not in run.table:
        return cannot_tell(f"The log has no {name}; log it at every step.")
    step, values = _column(run, name)
    if name == "grad_norm":
        step, values = step[values > 0], np.log(values[values > 0])
    place = int(np.searchsorted(step, at))
    width = 3 if name == "reward" else 1
    if place < width or place + width > len(values) or len(values) < FEWEST + 2 * width:
        return cannot_tell(
            f"{len(values)} rows of {name} are too few to detect a jump at the restart at step {at}; about "
            f"{FEWEST + 2 * width} are enough, and more rows reveal smaller jumps."
        )
    if not np.ptp(values) > 0:
        return cannot_tell(
            f"{name} is {values[0]:.3g} in every row, so what a restart changes would not be seen in it."
        )

    def change(where: int) -> float:
        return float(values[where : where + width].mean() - values[where - width : where].mean())

    others = [abs(change(where)) for where in range(width, len(values) - width + 1) if abs(where - place) >= 2 * width]
    seen = change(place)
    p = (1 + sum(other >= abs(seen) for other in others)) / (1 + len(others))
    usual = 1.4826 * float(np.median(others))
    if abs(seen) > max(others) and usual > 0:
        from scipy import stats

        p = min(p, 2 * float(stats.t.sf(abs(seen) / usual, DEGREES)))
    return by_chance(
        fault=fault,
        broken=p < 0.05,
        evidence=f"{name} changes by {np.expm1(seen):+.0%} at the restart at step {at}, more than elsewhere "
        f"(p = {p:.2g})" if name == "grad_norm"
        else f"{name} changes by {seen:+.3g} at the restart at step {at} (p = {p:.2g})",
        held=f"{name} changes no more at the restart at step {at} than elsewhere.",
        effect=effect,
        remedy="Restore optimiser, weights and random state with the checkpoint.",
        p=p,
        onset=at,
    )  # fmt: skip


def _column(run: Run, name: str) -> tuple[Floats, Floats]:
    step, values = run.table["step"], run.table[name]
    known = np.isfinite(step) & np.isfinite(values)
    return step[known], values[known]


PROOF = Proof("resume", "Training continued unchanged after each restart",
              "a log with its restarts; prompts and epochs for the data order",
              _tests)  # fmt: skip
