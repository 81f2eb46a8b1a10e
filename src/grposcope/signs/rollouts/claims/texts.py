"""The reward pays for what is meant, and for no habit of the texts: exploits by name (`signs.texts`).

A paid habit is a test by permutation, whose p-value is family-wise over all features of the texts; a state of the texts
one of groups over steps. What merely may be an exploit, as the true score is not known, is possible and has no p-value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, Interval, Sign, cannot_tell
from grposcope.core.text import number, percent
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.texts import exploits, foreign_turns, idle_tries, reading, right_answers, sample
from grposcope.signs.texts.exploits import Exploit
from grposcope.signs.texts.features import WORDS
from grposcope.signs.texts.habits import LEVEL
from grposcope.signs.texts.reading import DRAWS, FEW_PROMPTS

STEPS, TEXTS = 4, 64
"""Least steps and texts that are read."""

MOST = 8000
"""Most texts that are read for a verdict, whole groups evenly over the run."""


PAID = "The policy learns what is paid and not what is meant."
"""What a paid habit does."""

UNPAID = (
    "read one such text; they are paid less than others, so that no reward teaches them: compare the sampler's greedy "
    "text with that of the trainer's weights after one update; where the trainer writes sense, correct what is sent "
    "to the sampler, else go back to before the onset and lower the learning rate"
)
"""What to do about texts that repeat themselves, or are of another script, and earn less by it."""

FOLLOWS = ("reward hacking", "reward decline", "held-out decline", "length", "oscillation", "growing oscillation")
"""Faults of a log that what the texts show explains."""

WITNESS = (
    "log a score that does not train beside the reward of each rollout, such as an exact match, or grade some by hand"
)
"""What decides whether what is paid is right."""

GRADER = "correct the grader so that this alone earns nothing"
"""What to do about a habit that is paid where the fault's own remedy is for one that need not be."""


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Right answers that are not paid, turns that the policy makes up and a reward for trying nothing, which are facts;
    the exploits that the texts show; that there is none, where they could be read; whether what is paid is right."""
    yield from (own for own in (right_answers.unpaid(evidence.rows), foreign_turns.written(evidence.rows)) if own)
    habits = list(shown(evidence, LEVEL, DRAWS, WORDS))
    idle = idle_tries.paid_more(evidence.rows)
    if idle is not None and not any(own.fault == idle.fault and own.status == "possible" for own in habits):
        yield idle
    yield from habits


def shown(evidence: PipelineEvidence, level: float, draws: int, words: int) -> Iterator[Finding]:
    """The same with the level, permutations and words of `reading.read`."""
    rows = [row for row in evidence.rows if sample.is_readable(row) and not row.dropped]
    if len(rows) < TEXTS or len({row.step for row in rows}) < STEPS:
        yield cannot_tell(
            f"There are {len(rows):,} texts of {len({row.step for row in rows}):,} steps; {TEXTS} of {STEPS} steps are "
            "needed to see what spreads: write prompt, completion, reward and step with each rollout."
        )
        return
    texts = sample.of_rollouts(rows, most=MOST)
    if evidence.run is not None and len({row.step for row in rows}) < len(evidence.run.rollouts):
        texts = replace(texts, sampled=True)
    read = reading.read(texts, 0, draws, level, words)
    found = exploits.exploits(read)
    yield from map(finding, found)
    if found:
        return
    if not read.live or read.prompts < FEW_PROMPTS:
        yield cannot_tell(
            f"Rewards differ inside groups of {read.prompts:,} prompts; {FEW_PROMPTS} are needed to tell a habit from "
            "an answer."
        )
        return
    if read.doubt or read.unmeant:
        yield cannot_tell(read.doubt or read.unmeant)
        return
    form = next((f" but what {habit.part} is given for" for habit in read.habits if habit.part), "")
    live = f"{read.live:,} live groups"
    held = f"No habit of {len(read.sample):,} texts spread that pays without the prompt{form}, in {live}"
    yield Finding(exploits.MAGIC, because=f"{held}; {read.least}.")
    if read.sample.witness:
        yield cannot_tell(f"Whether what is paid is right was not tested: {read.sample.witness}; {WITNESS}.")


def finding(own: Exploit) -> Finding:
    """An exploit as a finding that a judge weighs by its p-value; one that is only possible has none."""
    since = None if own.since is None else Interval(own.since.step, own.since.low, own.since.high)
    p = own.p if own.status == "present" else np.nan
    also_unpaid = own.fault in (exploits.MIXING, exploits.REPETITION)  # which spread without being paid, too
    return Finding(
        own.fault, "possible", because=own.because, brief=own.brief, since=since, evidence=_signs(own), p=p,
        effect=PAID if own.habit is not None and own.fault != exploits.FINISHING else "",
        explains=FOLLOWS,
        grades=("warning", "warning") if also_unpaid and own.habit is not None else None,
        remedy=_remedy(own) if also_unpaid else "",
    )  # fmt: skip


def _remedy(own: Exploit) -> str:
    """What to do about texts that may spread without being paid; empty for what their fault says."""
    return GRADER if own.habit is not None else UNPAID if _earns_less(own) else ""


def _earns_less(own: Exploit) -> bool:
    """Whether the texts in a state are known to be paid less than the others."""
    state = own.state
    return state is not None and bool(np.isfinite([state.paid, state.other]).all()) and state.paid < state.other


def _signs(own: Exploit) -> tuple[Sign, ...]:
    habit, state = own.habit, own.state
    if habit is not None:
        share = Sign(f"share of reward differences, {habit.relation}", habit.r2, limit=percent(habit.r2))
        return Sign(f"reward that goes with {habit.feature}", habit.slope, habit.se), share
    return (
        ()
        if state is None
        else (Sign(f"{state.name}, last tenth of the steps", state.late, limit=number(state.early)),)
    )


PROOF = Proof(
    "texts", "The reward pays for what is meant, and for no habit of the texts",
    "texts and rewards of some steps; a true score where honest success would look the same", _tests,
)  # fmt: skip
