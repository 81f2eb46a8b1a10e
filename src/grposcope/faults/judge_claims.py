"""What the rollouts of a run show beside the findings of its log: exploits of its texts, and the claims of a pipeline
that they break for certain, as `verify` tests them.

Claims are asked where rollouts have advantages, masks or log-probabilities, of MOST rollouts at most, whole steps
evenly over the run. Tests of chance are left to `verify`, and so is what shows only where all of a batch is there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from grposcope.core.finding import GRADES, Finding
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Run, once
from grposcope.core.text import listed
from grposcope.faults import judge, judge_texts
from grposcope.faults.judge_rollouts import prove
from grposcope.logs.rollout_columns import with_groups
from grposcope.signs.rollouts import pipeline_settings, recipe_fit, recipes
from grposcope.signs.rollouts.claims import (
    advantages,
    first_update,
    gradient,
    groups,
    rewards,
    tokens,
    trajectory_weights,
    turns,
)
from grposcope.signs.rollouts.evidence import PipelineEvidence, Stated
from grposcope.signs.texts import sample

ASKED = (
    rewards.PROOF, advantages.PROOF, tokens.PROOF, groups.PROOF, turns.PROOF, trajectory_weights.PROOF,
    first_update.PROOF, gradient.PROOF,
)  # fmt: skip
"""The claims that rollouts break without a model."""

MOST, TOKENS = 2048, 2_500_000
"""Rollouts that are looked at, and their tokens; one step at least."""

_OF_LOGS = ("learning rate off schedule", "wrong reference", "reference moves along", "metric logged wrongly")
_OF_BATCHES = ("wrong group size", "split groups")
"""Faults of these claims that the log itself is tested for, and that some rollouts of a batch seem to have, as what
nothing explains may be rollouts that were left out."""

_CLAUSES = ("remedy", "effect")

FOLLOWS = (
    "reward decline", "held-out decline", "no learning", "lost gradient", "reward hacking", "kl blow-up",
    "entropy explosion", "entropy collapse", "degenerate output", "oscillation", "growing oscillation",
    "gradient explosion", "gradient spikes", "length",
)  # fmt: skip
"""Faults of a log that may follow from a pipeline that does not do what it says."""


def with_rollouts(run: Run, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of a log with what its rollouts show, in the order of what to look at first: exploits of their texts
    that are present, and those that spread and are no right form of an answer, whose true score is not known; claims
    that they break, before what may follow from them in the log.

    A fault that log and claims both show is the finding of the log, with what the rollouts show. A run whose log says
    nothing of its rollouts, or that has too few, keeps its findings.
    """
    shown, broken = judge_texts.of_run(run), {own.fault: own for own in _broken(run)}
    if not shown and not broken:
        return tuple(findings)
    every = [*findings, *shown]
    seen = {finding.fault for finding in every if finding.present}
    both = [
        replace(finding, because=f"{finding.because}; {broken[finding.fault].because}")
        if finding.present and finding.fault in broken
        else finding
        for finding in every
        if finding.present or finding.fault not in broken
    ]
    causes = [_as_cause(own, every) for own in broken.values() if own.fault not in seen]
    return judge.in_order([*causes, *both])


@once
def _broken(run: Run) -> tuple[Finding, ...]:
    """What rollouts show of a pipeline without any chance, the first of each fault."""
    first = sample.recorded(run, 1)
    if not (any(map(_says_more, first)) or _has_lost_rewards(first)) or run.meta.engine == "prime-rl":
        return ()
    tokens_of_one = sum(_tokens(row) for row in first) // len(first)
    rows = sample.recorded(run, min(MOST, TOKENS // max(tokens_of_one, 1)))
    stated = pipeline_settings.named(
        pipeline_settings.of_run(run), tuple(dict.fromkeys(name for row in rows for name in row.rewards))
    )
    ours = run.meta.engine == "grposcope"  # whose rollouts are some groups of a step
    if ours and not recipes.states(stated):
        return ()
    grouped = with_groups([_as_logged(row, run, stated) for row in rows], stated.group)
    part = ours or not _are_whole(grouped, stated)
    of_batch = ours or stated.scale in ("batch", "each")
    source, whole = str(run.meta.source), False if part and of_batch else None
    evidence = PipelineEvidence(source, run.meta.engine, grouped, stated, run, whole=whole)
    left_out = (*_OF_LOGS, recipe_fit.UNEXPLAINED, *(_OF_BATCHES if part else ()))
    shown: dict[str, Finding] = {}
    for claims in prove(evidence, ASKED).values():
        for own in claims:
            if own.present and own.basis == "fact" and own.fault not in left_out:
                shown.setdefault(own.fault, _in_words(own))
    return tuple(shown.values())


def _in_words(own: Finding) -> Finding:
    """The finding of a claim as a log has it: remedy and effect as clauses, and its fault for the first line."""
    clauses = {name: text[:1].lower() + text[1:].rstrip(".") for name, text in vars(own).items() if name in _CLAUSES}
    return replace(own, brief="", **clauses)


def _has_lost_rewards(rows: Sequence[Rollout]) -> bool:
    """Whether some rewards of a step are no number beside others that are."""
    lost = [math.isnan(row.reward) for row in rows]
    return any(lost) and not all(lost)


def _says_more(row: Rollout) -> bool:
    """Whether a rollout has what it was trained by, beside its reward."""
    return any(own is not None for own in (row.advantages, row.mask, row.sampler, row.old, row.loss_weights))


def _tokens(row: Rollout) -> int:
    """Tokens of which a rollout says anything."""
    return max(len(own) for own in (row.completion_ids, row.mask, row.sampler, row.old, ()) if own is not None)


def _are_whole(rows: Sequence[Rollout], stated: Stated) -> bool:
    """Whether every group of the rows is known to have all of its rollouts."""
    sizes = [len(places) for places in PipelineEvidence("", rows=tuple(rows)).groups.values()]
    return stated.group is not None and bool(sizes) and set(sizes) == {stated.group}


def _as_logged(row: Rollout, run: Run, stated: Stated) -> Rollout:
    """A row with the weighted sum of its functions in place of the plain one that its reader made, NaN where the
    weights are not stated; a reward by one function tells nothing beside the reward."""
    if len(row.rewards) == 1 and math.isfinite(row.reward):
        return replace(row, rewards={})
    if len(row.rewards) < 2 or not (run.groups.summed or math.isnan(row.reward)):
        return row
    weights = stated.weights or {}
    if set(row.rewards) - set(weights):
        return replace(row, reward=math.nan)
    values = [weights[name] * value for name, value in row.rewards.items() if math.isfinite(value)]
    return replace(row, reward=math.fsum(values) if values else math.nan)


def _as_cause(own: Finding, findings: Sequence[Finding]) -> Finding:
    """What the rollouts show, as the cause of what is present in the log: as bad as the worst that may follow."""
    cause = replace(own, explains=FOLLOWS)
    behind = [finding for finding in findings if judge.explains(cause, finding) and finding.present]
    if not behind:
        return cause
    grades = [finding.grade for finding in (own, *behind) if finding.grade is not None]
    signs = [f"{finding.fault}{f' {finding.since}' if finding.since else ''}" for finding in behind]
    because = f"{own.because}; what may follow is in the log: {listed(signs)}"
    return replace(cause, because=because, grade=min(grades, key=GRADES.index, default=own.grade))
