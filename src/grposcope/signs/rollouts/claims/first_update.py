"""The first update on a batch begins where the sampler was: ratio 1, KL 0; the learning rate is as scheduled. Exact.

With one update per batch the loss is taken at the weights that made the old log-probabilities: both are equal up to
the order of sums: 1e-3 in float32, and up to 0.05 in bfloat16, where log-probabilities are rounded to 2⁻⁸ of their
size. Dropout, or old log-probabilities of another number format, are seen as differences above that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.run import Bools, Floats, Run
from grposcope.signs.rollouts import alignment, coverage
from grposcope.signs.rollouts.claims import weights
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import LEVEL, by_chance, exact

EXACT = 1e-3
"""Mean distance of log-probabilities, in nats, that sums in another order may have in float32."""

IN_FORCE = 0.05
"""Share by which the rate that a step took may differ from the scheduler's, and a decay from the stated one."""

DECAY = 0.02
"""What a decay may differ by beside that."""

COARSE = 0.05
"""The same where they are rounded to bfloat16 or float16, or computed in them."""


def _allowed(training: str | None) -> float:
    """Mean distance that one policy may have from itself, in the number format that the trainer computes in."""
    return COARSE if training in ("bfloat16", "float16") else EXACT


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """The sampler's against the trainer's log-probabilities, old against current ones, KL at step 1, the schedule."""
    yield from _sampler(evidence)
    yield from _ratio(evidence)
    yield from _in_force(evidence)
    if evidence.run is not None:
        yield from _kl(evidence.run)
        yield from _schedule(evidence, evidence.run)
    else:
        yield cannot_tell("There is no log, so KL and learning rate were not tested; give the log of the run.")


def _sampler(evidence: PipelineEvidence) -> Iterator[Finding]:
    """The sampler's log-probabilities are those of the trainer's weights, at the places of their tokens."""
    pairs = alignment.paired([row for row in evidence.rows if not row.dropped])
    if not pairs:
        return
    distances = [pair.distance for pair in pairs]
    cut = [np.minimum(weights.k3(distance), weights.LARGEST) for distance in distances]
    mean = weights.mean_of(cut, [f"{pair.row.step}:{pair.row.group}" for pair in pairs])
    said = f"The sampler's and the trainer's log-probabilities differ {weights.size(distances)}"
    if (why := alignment.reading(pairs)) is not None:
        fault, words, distance = why
        yield exact(
            fault=fault,
            brief=words,
            broken=True,
            evidence=f"{said}: {words}, and so read they agree to {distance:.1g}; the first is {pairs[0].row.where}",
            held="",
            effect="Ratios and corrections are of other tokens or another unit than they should be.",
            onset=pairs[0].row.step,
        )
        return
    plain = evidence.stated.temperature in (None, 1.0) and not evidence.stated.top_k
    if not plain or evidence.stated.top_p not in (None, 1.0):
        return  # the sampler's may be of before or after temperature and truncation
    p = mean.p_above(MISMATCH) if mean.freedom else 1.0
    if mean.value > MISMATCH and p > LEVEL:
        yield cannot_tell(f"{said}, but these are too few groups to be sure; write more.")
        return
    yield by_chance(
        fault="inputs differ",
        p=p,
        broken=mean.value > MISMATCH,
        evidence=f"{said}; no number format makes so much",
        held=f"{said}; more than {MISMATCH:g} nats of KL per token would have been detected.",
        effect="What is reinforced was drawn under another prompt, template or policy than it is scored under.",
        onset=pairs[0].row.step,
    )


MISMATCH = 0.1
"""KL per token in nats that no number format makes of one policy: FP8 stays below it."""


def _ratio(evidence: PipelineEvidence) -> Iterator[Finding]:
    rows = [row for row in evidence.rows if row.old is not None and row.current is not None]
    if not rows:
        yield cannot_tell("No rollout has both old and current log-probabilities; write old_logprobs and logprobs of "
                          "the first update on a batch.")  # fmt: skip
        return
    if evidence.stated.iterations != 1:
        yield cannot_tell(
            "The settings do not say that each batch is used for one update (num_iterations); with more updates, "
            "old and current log-probabilities differ."
        )
        return
    distances = [np.abs(row.current - row.old)[_of(row.mask, row.old)] for row in rows
             if row.current is not None and row.old is not None]  # fmt: skip
    every = np.concatenate(distances)
    absent = int(np.isnan(every).sum())
    finite = every[np.isfinite(every)]
    if not len(finite):
        yield cannot_tell("No trained token has both an old and a current log-probability that is a number; write both "
                          "for the first update on a batch.")  # fmt: skip
        return
    counted = sum(bool(np.isfinite(distance).any()) for distance in distances)
    of = coverage.share(counted, sum(not row.dropped for row in evidence.rows), "not both on a trained token")
    mean = float(finite.mean())
    rounded = in_bfloat16(np.concatenate([row.old for row in rows if row.old is not None]))
    first = next(
        (row for row, distance in zip(rows, distances, strict=True) if np.nanmax(distance, initial=0.0) > EXACT),
        rows[0],
    )
    limit = _allowed(evidence.stated.training)
    words = (
        "old log-probabilities are in bfloat16"
        if rounded and mean <= 0.05
        else "they come from different weights or a different mode (dropout)"
    )
    yield exact(
        fault="wrong old log-probabilities",
        brief="old log-probabilities in bfloat16" if rounded and mean <= 0.05 else "ratio is not 1",
        broken=mean > limit,
        evidence=f"Old and current log-probabilities of the first update differ by {mean:.2g} nats on average "
        f"(largest {finite.max():.2g}): {words}; the first is {first.where}",
        held=f"Old and current log-probabilities of {of} differ by {mean:.1g} nats on average"
        f"{f', without {absent:,} NaN tokens' if absent else ''}; {limit:g} would have been detected.",
        effect="Ratios that should be 1 are not, so numerical noise clips and weights tokens.",
        remedy="Compute both with the same weights, in float32 and with dropout off.",
        onset=first.step,
    )


def _of(trained: Bools | None, values: Floats) -> Bools:
    return trained if trained is not None and len(trained) == len(values) else np.ones(len(values), bool)


def in_bfloat16(values: Floats) -> bool:
    """Whether numbers are those of bfloat16."""
    numbers = values[np.isfinite(values) & (values != 0)].astype(np.float32)
    return bool(len(numbers)) and not bool((numbers.view(np.uint32) & 0xFFFF).any())


def _kl(run: Run) -> Iterator[Finding]:
    """KL to the starting policy is 0 at the first step and not from then on."""
    if not run.setting("kl"):
        return
    name = next((name for name in ("kl", "kl_k1", "kl_loss") if name in run.table), None)
    logged = np.zeros(0, bool) if name is None else np.isfinite(run.table[name])
    if name is None or run.window > 1 or not logged.any() or run.table["step"][logged][0] != 1:
        yield cannot_tell("The log has no KL of step 1 by itself, so where the reference begins was not tested; log KL "
                          "at every step from the first on (logging_steps=1).")  # fmt: skip
        return
    step, kl = run.table["step"][logged], run.table[name][logged]
    yield exact(
        fault="wrong reference",
        brief="KL at the first step",
        broken=abs(float(kl[0])) > 0.02,
        evidence=f"{run.keys.get(name, name)} is {kl[0]:.3g} nats at step 1, before any update",
        held=f"{run.keys.get(name, name)} is {kl[0]:.1g} nats at step 1; 0.02 would have been detected.",
        effect="The KL term pulls the policy to a reference other than the starting model.",
        remedy="Load reference and policy from the same weights, with dropout off.",
        onset=1,
    )
    if name == "kl" and len(kl) >= 10:
        lr = run.table.get("lr")
        moved = lr is None or bool((np.nan_to_num(lr) > 0).any())
        still = bool(np.abs(kl).max() < 1e-9)
        yield exact(
            fault="reference moves along",
            broken=still and moved,
            evidence=f"The KL to the reference is 0 in all {len(kl):,} rows although the policy moves",
            held=f"The KL to the reference grows to {np.abs(kl).max():.2g} nats.",
            effect="The KL term has no gradient: nothing keeps the policy near the reference.",
            remedy="Keep a frozen copy of the starting weights as the reference.",
            onset=int(step[0]),
        )


def _linear(step: Floats, peak: float, warmup: float, updates: float) -> Floats:
    down = np.clip((updates - step) / max(updates - warmup, 1), 0, 1)
    return peak * np.where(step < warmup, step / max(warmup, 1), down)


def _cosine(step: Floats, peak: float, warmup: float, updates: float) -> Floats:
    share = np.clip((step - warmup) / max(updates - warmup, 1), 0, 1)
    return peak * np.where(step < warmup, step / max(warmup, 1), 0.5 * (1 + np.cos(np.pi * share)))


def _constant(step: Floats, peak: float, warmup: float, updates: float) -> Floats:
    return peak * np.where(step < warmup, step / max(warmup, 1), 1.0)


SCHEDULES: Mapping[str, Callable[[Floats, float, float, float], Floats]] = {
    "linear": _linear, "cosine": _cosine, "constant": _constant, "constant_with_warmup": _constant,
}  # fmt: skip


def _schedule(evidence: PipelineEvidence, run: Run) -> Iterator[Finding]:
    """The logged learning rate against the stated schedule, which counts updates from 0 or from 1."""
    said = evidence.stated
    made = SCHEDULES.get(str(said.schedule))
    if "lr" not in run.table or made is None or not said.learning_rate:
        yield cannot_tell("The learning rate was not compared with its schedule; log the rate, and state the schedule "
                          "(lr_scheduler_type), the peak rate, the warm-up and the number of steps.")  # fmt: skip
        return
    logged = np.isfinite(run.table["lr"]) & np.isfinite(run.table["step"])
    step, rate = run.table["step"][logged], run.table["lr"][logged]
    if said.updates is None and said.schedule in ("linear", "cosine"):
        yield cannot_tell("The length of the learning-rate schedule is unknown; state max_steps.")
        return
    if run.window > 1 or len(step) < 2:
        yield cannot_tell("The log has too few learning rates of single steps to compare with the schedule; log the "
                          "rate at every step (logging_steps=1).")  # fmt: skip
        return
    peak, updates, warmup = said.learning_rate, float(said.updates or 0), float(said.warmup or 0)
    due = [made(step - by, peak, warmup, updates) for by in (0.0, 1.0, -1.0)]
    wrong = min(
        (np.abs(rate - scheduled) > 1e-3 * peak for scheduled in due), key=lambda wrong_rows: int(wrong_rows.sum())
    )
    first = int(np.flatnonzero(wrong)[0]) if wrong.any() else None
    index = 0 if first is None else first
    if first is not None and said.warmup is None:
        yield cannot_tell("The learning rate does not follow the schedule without a warm-up, and the settings state "
                          "none; state the warm-up (warmup_steps).")  # fmt: skip
        return
    yield exact(
        fault="learning rate off schedule",
        broken=first is not None,
        evidence=f"The learning rate at step {step[index]:.0f} is {rate[index]:.4g}, but the schedule "
        f"{said.schedule} gives {due[1][index]:.4g}; {int(wrong.sum()):,} of {len(step):,} rows differ",
        held=f"The learning rate of {len(step):,} rows follows the schedule {said.schedule}.",
        effect="Steps are larger or smaller than the settings state.",
        remedy="Step the scheduler once per optimiser step, and restore it with the checkpoint.",
        onset=int(step[index]),
    )


def _in_force(evidence: PipelineEvidence) -> Iterator[Finding]:
    """The rate and the decay that steps took, by the weights before and after them, against what is stated."""
    seen = [state for state in evidence.optimizer if state.rate >= 0 and state.scheduled > 0]
    if seen:
        wrong = [state for state in seen if abs(state.rate / state.scheduled - 1) > IN_FORCE]
        worst = max(seen, key=lambda state: abs(state.rate / state.scheduled - 1))
        yield exact(
            fault="learning rate off schedule",
            brief="learning rate in force",
            broken=bool(wrong),
            evidence=f"Step {worst.step:,} changed the weights with a learning rate of {worst.rate:.4g}, and the "
            f"scheduler has {worst.scheduled:.4g}; {len(wrong):,} of {len(seen):,} steps that were measured differ",
            held=f"{len(seen):,} steps changed the weights with the learning rate of the scheduler, to {IN_FORCE:.0%}.",
            effect="Steps are larger or smaller than the settings state and the log says.",
            remedy="Look at the rate of each group of parameters when the optimiser takes its step.",
            onset=min((state.step for state in wrong), default=worst.step),
        )
    stated = evidence.stated.decay
    shrunk = [state for state in evidence.optimizer if np.isfinite(state.decay)]
    if stated is None or not shrunk:
        return
    decay = float(np.median([state.decay for state in shrunk]))
    yield exact(
        fault="weight decay not in force",
        broken=abs(decay - stated) > DECAY + IN_FORCE * stated,
        evidence=f"Steps shrink the weights with a decay of {decay:.3g}, and {stated:.3g} is stated",
        held=f"Steps shrink the weights with the stated decay of {stated:.3g}; {DECAY:g} more or less would show.",
        effect="Weights are drawn to 0 more, or less, than the settings state.",
        remedy="Look at the decay of each group of parameters that the optimiser has.",
        onset=shrunk[0].step,
    )


PROOF = Proof("first update",
              "The first update starts from the sampler's policy, and the learning rate follows its schedule",
              "old and current log-probabilities of the first update, or a log with KL and rate", _tests)  # fmt: skip
