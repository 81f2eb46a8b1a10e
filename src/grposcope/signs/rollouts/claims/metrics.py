"""The log's metrics mean what they are called: worked out again from the rollouts of the same step. Exact.

The mean reward says whether rollouts and row are of one batch. Where it does, spread, dead groups, length, cut
completions and KL have to be those of the same rollouts; where they are not, another definition that fits is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Bools, Floats, Run
from grposcope.logs.columns import COMPUTED
from grposcope.logs.trainers import DEFECTS
from grposcope.signs.rollouts import coverage
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import exact

FEWEST = 2
"""Steps below which nothing is compared."""

FAULT = "metric logged wrongly"

Groups = Sequence[Floats]
Definition = Callable[[Sequence[Rollout], Groups], float]


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Each metric of the log that the rollouts have."""
    run = evidence.run
    if run is None:
        yield cannot_tell("There is no log of the run to compare with; give it together with the rollouts.")
        return
    if COMPUTED in run.meta.notes:
        yield cannot_tell("The metrics are those of the rollouts themselves; give the log of the run beside them.")
        return
    for name in run.reading.defects if run.reading is not None else ():
        defects = [defect for defect in DEFECTS if defect.name == name and defect.engine == run.meta.engine]
        if defects and defects[0].left_out:
            yield cannot_tell(f"Not used, because of a known defect of this engine: {defects[0]}.")
    steps = _steps(evidence, run)
    if len(steps) < FEWEST or "reward" not in run.table:
        yield cannot_tell("The log and the rollouts have fewer than two steps in common; log both at every step.")
        return
    if run.window > 1:
        yield cannot_tell(f"Each row of the log is a mean over {run.window} steps, but rollouts belong to one step; "
                          "log every step (logging_steps=1).")  # fmt: skip
        return
    offset, share = max(
        ((by, _agreeing(run, steps, by)) for by in (0, -1, 1)), key=lambda pair: (pair[1], -abs(pair[0]))
    )
    if share < 0.5:
        yield from _other_reward(run, steps)
        return
    same = {step: value for step, value in steps.items() if _near(_at(run, "reward", step + offset), _mean(*value))}
    of = coverage.share(len(same), len(_logged_steps(run)), "no rollouts, or others", "step")
    yield exact(FAULT, False, "", f"The logged mean reward agrees with the rollouts of {of}.")
    for name, definitions in METRICS.items():
        if name not in run.table:
            continue
        if name == "dead_fraction" and evidence.filtered:
            yield cannot_tell(f"{run.keys.get(name, name)} is of all groups that were drawn, but some were left out "
                              "before they were written; write all of them.")  # fmt: skip
            continue
        yield _compared(run, name, definitions, same, offset)


def _steps(evidence: PipelineEvidence, run: Run) -> Mapping[int, tuple[Sequence[Rollout], Groups]]:
    """Step -> rows and rewards by group; of a record that keeps all rewards apart, those."""
    groups_of_step: dict[int, tuple[Sequence[Rollout], Groups]] = {}
    logged = _logged_steps(run)
    if evidence.whole is False:
        parts = np.split(run.groups.rewards, run.groups.offsets[1:-1]) if len(run.groups) else []
        for step in logged:
            here = [parts[index] for index in np.flatnonzero(run.groups.step == step)]
            if here:
                groups_of_step[step] = ((), here)
        return groups_of_step
    for step, places in evidence.steps.items():
        rows = [evidence.rows[index] for index in places]
        if step in logged and all(np.isfinite(row.reward) for row in rows):
            names: dict[str, list[float]] = {}
            for row in rows:
                names.setdefault(str(row.group), []).append(row.reward)
            groups_of_step[step] = (rows, [np.array(indices) for indices in names.values()])
    return groups_of_step


def _logged_steps(run: Run) -> set[int]:
    """The steps that have a row in the log."""
    return set(run.table["step"][np.isfinite(run.table["step"])].astype(int).tolist())


def _at(run: Run, name: str, step: int) -> float:
    place = np.flatnonzero(run.table["step"] == step)
    return float(run.table[name][place[-1]]) if len(place) else float("nan")


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-3 * abs(other) + 6e-5


def _mean(rows: Sequence[Rollout], groups: Groups) -> float:
    return float(np.concatenate(groups).mean())


def _plain_sum(rows: Sequence[Rollout]) -> float:
    return float(np.mean([np.nansum(list(row.rewards.values())) for row in rows]))


def _agreeing(run: Run, steps: Mapping[int, tuple[Sequence[Rollout], Groups]], offset: int) -> float:
    return float(np.mean([_near(_at(run, "reward", step + offset), _mean(*part)) for step, part in steps.items()]))


def _other_reward(run: Run, steps: Mapping[int, tuple[Sequence[Rollout], Groups]]) -> Iterator[Finding]:
    """The logged reward is no mean of the rollouts' rewards: a plain sum of functions, or other rollouts."""
    plain = [
        (step, _at(run, "reward", step), _plain_sum(rows), _mean(rows, parts))
        for step, (rows, parts) in steps.items() if rows and all(len(row.rewards) > 1 for row in rows)
    ]  # fmt: skip
    if plain and np.mean([_near(logged, summed) for _, logged, summed, _ in plain]) > 0.9:
        step, logged, _, mean = plain[0]
        known = next(one for one in DEFECTS if one.name == "weights of rewards")
        yield exact(
            FAULT, True,
            f"The logged reward is the unweighted sum of its functions: {logged:.4g} at step {step}, but the weighted "
            f"reward that is trained on is {mean:.4g} ({known.thread})", "", step,
            effect="The gradient is correct, but curves and alarms show a different reward from the one trained on.",
            remedy="Use the weighted sum of rewards/NAME/mean instead.", brief="reward without weights",
        )  # fmt: skip
        return
    yield cannot_tell("The rollouts do not belong to the logged steps: their mean reward differs; write all "
                      "rollouts of a step, and log every step.")  # fmt: skip


def _compared(
    run: Run, name: str, definitions: Mapping[str, Definition],
    steps: Mapping[int, tuple[Sequence[Rollout], Groups]], offset: int,
) -> Finding:  # fmt: skip
    """One metric of the log against its definition, in the steps whose mean reward agrees."""
    (own, due), *others = definitions.items()
    logged = np.array([_at(run, name, step + offset) for step in steps])
    made = np.array([due(*step) for step in steps.values()])
    known = np.isfinite(logged) & np.isfinite(made)
    key = run.keys.get(name, name)
    if known.sum() < FEWEST:
        return cannot_tell(f"{key} was not compared: fewer than {FEWEST} steps have both its value and rollouts that "
                           "it can be taken from.")  # fmt: skip
    wrong = known & np.array([not _near(a, b) for a, b in zip(logged, made, strict=True)])
    if not wrong.any():
        if others and np.ptp(made[known]) == 0 and not _differs(others, steps, made, known):
            return cannot_tell(f"{key} is {made[known][0]:g} in all {int(known.sum()):,} steps under every definition; "
                               "write steps whose rollouts differ.")  # fmt: skip
        of = coverage.share(int(known.sum()), len(_logged_steps(run)), "nothing to compare with", "step")
        return exact(FAULT, False, "", f"{key} is {own} to within 0.1%, in {of}.")
    if wrong.sum() < max(FEWEST, 2 / 3 * known.sum()):
        return cannot_tell(f"{key} is {own} in {int((known & ~wrong).sum()):,} of {int(known.sum()):,} steps only, so "
                           "some rollouts may be of other steps; write all rollouts of a step.")  # fmt: skip
    fits = ""
    for words, other in others:
        values = [other(*step) for step in steps.values()]
        if all(_near(a, b) for a, b, here in zip(logged, values, wrong, strict=True) if here):
            fits = f"; it agrees with {words}"
            break
    first = int(np.flatnonzero(wrong)[0])
    step = list(steps)[first]
    return exact(
        fault=FAULT,
        brief=f"metric {name}",
        broken=True,
        evidence=f"{key} is not {own} in {int(wrong.sum()):,} of {int(known.sum()):,} steps: {logged[first]:.4g} at "
        f"step {step}, but the rollouts give {made[first]:.4g}{fits}",
        held="",
        effect="The gradient is correct, but this metric does not show the quantity that its name says.",
        remedy="Read the metric as what it measures, or log the right quantity under this name.",
        onset=step,
    )


def _differs(
    others: Sequence[tuple[str, Definition]], steps: Mapping[int, tuple[Sequence[Rollout], Groups]], made: Floats,
    bools: Bools,
) -> bool:  # fmt: skip
    """Whether another definition has another value than `made` (S,) in a step that is known (S,)."""
    values = np.array([[other(*step) for step in steps.values()] for _, other in others])
    return any(not _near(a, b) for row in values for a, b, here in zip(row, made, bools, strict=True) if here)


def _within(ddof: int) -> Definition:
    return lambda rows, groups: float(
        np.mean([group.std(ddof=ddof) for group in groups if len(group) > ddof] or [np.nan])
    )


def _over_all(ddof: int) -> Definition:
    return lambda rows, groups: float(np.concatenate(groups).std(ddof=ddof))


def _dead(rows: Sequence[Rollout], groups: Groups) -> float:
    return float(np.mean([np.ptp(group) < 1e-8 for group in groups]))


def _unpaid(rows: Sequence[Rollout], groups: Groups) -> float:
    return float(np.mean([not group.any() for group in groups]))


def _lengths(rows: Sequence[Rollout]) -> Floats:
    if not rows or any(row.completion_ids is None for row in rows):
        return np.full(1, np.nan)
    return np.array([_length(row) for row in rows], np.float64)


def _length(row: Rollout) -> int:
    """Tokens that the model wrote: TRL counts those of tools in no length."""
    if row.written is not None:
        return int(row.written.sum())
    return 0 if row.completion_ids is None else len(row.completion_ids)


def _cut(rows: Sequence[Rollout], groups: Groups) -> float:
    if not rows or any(row.truncated is None for row in rows):
        return float("nan")
    return float(np.mean([bool(row.truncated) for row in rows]))


def _ended(rows: Sequence[Rollout], groups: Groups) -> float:
    ended = [float(length) for row, length in zip(rows, _lengths(rows), strict=False) if row.truncated is False]
    return float(np.mean(ended)) if ended else float("nan")


def _k3(sign: float) -> Definition:
    def made(rows: Sequence[Rollout], groups: Groups) -> float:
        parts = [
            sign * (row.current - row.sampler) for row in rows if row.current is not None and row.sampler is not None
        ]
        if not parts or len(parts) < len(rows):
            return float("nan")
        ratio = np.concatenate(parts)
        return float(np.nanmean(np.expm1(ratio) - ratio))

    return made


WITHIN: Mapping[str, Definition] = {
    "the mean standard deviation within groups": _within(1),
    "the standard deviation of the whole batch": _over_all(1),
    "the mean standard deviation within groups with ddof 0": _within(0),
    "the standard deviation of the whole batch with ddof 0": _over_all(0),
}
BATCH = {name: WITHIN[name] for name in ("the standard deviation of the whole batch", *WITHIN)}

METRICS: Mapping[str, Mapping[str, Definition]] = {
    "reward_std": WITHIN,
    "reward_std_batch": BATCH,
    "dead_fraction": {
        "the share of groups with equal rewards": _dead,
        "the share of groups whose rewards are all 0": _unpaid,
    },
    "length": {
        "the mean number of tokens of a completion": lambda rows, groups: float(_lengths(rows).mean()),
        "the mean number of tokens of completions that ended": _ended,
    },
    "truncated": {
        "the share of truncated completions": _cut,
        "the share of completions as long as the longest of the batch": (
            lambda rows, groups: float((_lengths(rows) == _lengths(rows).max()).mean())
        ),
    },
    "mismatch/k3": {
        "the k3 estimate of KL(sampler, trainer)": _k3(1.0),
        "the k3 estimate of KL with sampler and trainer swapped": _k3(-1.0),
    },
}  # fmt: skip
"""Metric -> its definition, and others that it may be in truth."""

PROOF = Proof("metrics", "Logged metrics are what their names say", "a log and the rollouts of the same steps", _tests)
