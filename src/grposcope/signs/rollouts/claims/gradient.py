"""The gradient is the objective's: weights of the loss, its reference, and norms recomputed at a checkpoint. Exact.

∂L/∂log π of every token, as the backward pass began from it, is compared with the closed form of the stated loss
(`token_weights`): to 1e-4 of the batch's largest in float32 and to 2e-2 where numbers are in bfloat16. What they are
instead is found by least squares over surrogate and KL term, w = a w_surrogate + b w_KL, and by other reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Floats
from grposcope.signs.kl_gradient import KlTerm
from grposcope.signs.rollouts import clip_fit, coverage, token_weights
from grposcope.signs.rollouts.claims.first_update import EXACT, in_bfloat16
from grposcope.signs.rollouts.evidence import GradientEvidence, OptimizerEvidence, PipelineEvidence, ScoredTokens
from grposcope.signs.rollouts.findings import exact, was_tested
from grposcope.signs.rollouts.stated_loss import StatedLoss
from grposcope.signs.rollouts.token_weights import REDUCTIONS

FLOAT32, BFLOAT16 = 1e-4, 2e-2
"""Largest difference of weights that rounding explains, as a share of the batch's largest weight."""

NORMS = {"float32": 1e-3, "bfloat16": 5e-2, "float16": 2e-2}
"""Number format -> relative difference of two norms of one gradient that rounding and the order of sums explain."""


SURE = 4.0
"""Times the usual norm of rounding that is still rounding."""

FAULTS = {
    "KL sign": "wrong kl term", "KL left out": "wrong kl term", "KL coefficient": "wrong kl term",
    "sign of the loss": "reversed sign", "another aggregation": "wrong aggregation",
    "accumulation not scaled": "accumulation not scaled", "factor of the loss": "scaled by a factor",
    "ratio always 1": "ratio always 1", "clip range": "wrong clip range", "clip on both sides": "wrong clip range",
}  # fmt: skip
"""How the weights differ from those of the loss -> its fault; "another loss" where nothing explains it."""


OWN_REMEDY = ("ratio always 1", "clip range", "clip on both sides")
"""Kinds whose remedy is that of their fault."""


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Token weights, or norms at checkpoints in their place; then the reference."""
    yield from _not_finite(evidence)
    both = [list(_weights(evidence)), list(_norms(evidence))]
    made = [findings for findings in both if any(was_tested(finding) for finding in findings)]
    for findings in made or both:
        yield from findings
    yield from _taken(evidence)
    yield from _reference(evidence)


COLUMNS = {
    "loss_weights": "derivatives of the loss", "current": "log-probabilities of the loss",
    "old": "old log-probabilities", "reference": "the reference's log-probabilities",
    "sampler": "the sampler's log-probabilities",
    "last_weights": "derivatives of the loss of the last update", "last": "log-probabilities of the last update",
}  # fmt: skip
"""Lists of a rollout with a number for every trained token -> what they are."""


def _not_finite(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Numbers of trained tokens are finite. A list that is NaN throughout was not recorded; of the sampler, any NaN."""
    wrong: dict[str, list[Rollout]] = {}
    count = 0
    for row in evidence.rows:
        for name in COLUMNS:
            values = getattr(row, name)
            if row.dropped or values is None or not len(values):
                continue
            bad = np.isinf(values) if name == "sampler" or np.isnan(values).all() else ~np.isfinite(values)
            if name == "loss_weights" and row.current is not None and len(row.current) == len(values):
                bad |= np.isnan(values) & np.isfinite(row.current)
            if row.mask is not None and len(row.mask) == len(values):
                bad = bad & row.mask
            count += int(bad.sum())
            if bad.any():
                wrong.setdefault(name, []).append(row)
    if not wrong and not any(row.loss_weights is not None and row.loss_weights.any() for row in evidence.rows):
        return  # nothing of the gradient itself was looked at
    rows = [row for rows_of_column in wrong.values() for row in rows_of_column]
    what = " and ".join(f"{COLUMNS[name]} in {len(rows_of_column):,} rollout{'s' * (len(rows_of_column) != 1)}"
                        for name, rows_of_column in wrong.items())  # fmt: skip
    yield exact(
        fault="non-finite",
        brief="numbers of trained tokens are not finite",
        broken=bool(wrong),
        evidence=f"{count:,} numbers of trained tokens are NaN or infinite: {what}; the first is {rows[0].where}"
        if rows
        else "",
        held="All recorded numbers of trained tokens are finite.",
        effect="One NaN in the loss makes every weight NaN; a log-probability of −∞ makes ratio and KL term infinite.",
        remedy="Look at the tokens of the named rollout: a token that a mask or top-k rules out, log(0), or logits "
        "that overflowed.",
        onset=min((row.step for row in rows), default=None),
    )


def _updates(evidence: PipelineEvidence) -> Iterator[tuple[int, list[Rollout], list[Rollout]]]:
    """(optimiser step, rollouts that it took, all of their batch) of each update whose derivatives were recorded.

    The rollouts of a later update of a batch have what that update took as what the loss was taken at.
    """
    for step, places in evidence.steps.items():
        rows = [evidence.rows[index] for index in places]
        if some := [rows[index] for index in token_weights.of_update(rows) if _computed(rows[index])]:
            yield step, some, rows
        later: dict[int, list[Rollout]] = {}
        for row in rows:
            if row.last is not None and row.last_weights is not None and not row.dropped:
                taken = replace(row, current=row.last, loss_weights=row.last_weights, micro_batch=row.last_part)
                later.setdefault(row.last_step, []).append(taken)
        for at in sorted(later):
            yield at, later[at], rows


def _computed(row: Rollout) -> bool:
    """Whether derivatives were written, and beside them what they were computed from, a value per token."""
    if row.loss_weights is None or row.advantages is None:
        return False
    return token_weights.length(row) == len(row.loss_weights)


def _weights(evidence: PipelineEvidence) -> Iterator[Finding]:
    loss, kl = evidence.stated.loss, evidence.stated.kl
    if not any(row.loss_weights is not None for row in evidence.rows):
        yield cannot_tell("The derivatives of the loss were not recorded; train with verify_every, or write "
                          "loss_weights, the gradient of the loss with respect to the log-probabilities.")  # fmt: skip
        return
    if loss is None or kl is None:
        yield cannot_tell("The loss is unknown: either the settings do not state it (loss_type, epsilon, beta), or "
                          "verify does not know it.")  # fmt: skip
        return
    wrong: list[tuple[int, str, str]] = []
    largest, tokens, taken, size, pulled = 0.0, 0, 0, 0.0, False
    for step, some, rows in _updates(evidence):
        derivatives = np.concatenate([_given(row) for row in some])
        wanted = _wanted(loss, kl, some, rows)
        compared = np.isfinite(derivatives) & np.isfinite(wanted)
        if kl and not compared.any() and _without_term(evidence, step, some, rows, derivatives):
            wrong.append((step, "KL left out", f"have no KL term, although its coefficient is {kl:.3g}: no "
                          "log-probabilities of a reference were taken"))  # fmt: skip
            tokens, taken = tokens + len(derivatives), taken + len(some)
        if not compared.any():
            continue
        distances, scale = (
            np.abs(derivatives - wanted)[compared],
            max(np.abs(derivatives[compared]).max(), np.abs(wanted[compared]).max()),
        )
        if not scale:
            continue  # no advantage and no KL term, so every loss has derivatives of 0
        share = float(distances.max() / scale)
        tolerance = _tolerance(derivatives, evidence.stated.training)
        tokens += int(compared.sum())
        taken += len(some)
        pulled |= bool(kl) and _pulls(loss, kl, some, rows, tolerance * scale)
        largest = max(largest, share)
        if share > tolerance:
            kind, words = _explained(loss, kl, some, rows, derivatives, tolerance)
            wrong.append((step, kind, words))
            reach = float(np.linalg.norm(wanted[compared]))
            size = size or float(np.linalg.norm((derivatives - wanted)[compared])) / max(reach, 1e-300)
    if not tokens:
        yield cannot_tell(_not_compared(evidence))
        return
    first = wrong[0] if wrong else (0, "weights of another loss", "")
    yield exact(
        fault=FAULTS.get(first[1], "another loss"),
        brief=first[1],
        broken=bool(wrong),
        evidence=f"The derivatives of the loss at step {first[0]} {first[2]}"
        + (f"; their relative difference from the stated loss is {size:.2g}" if size else ""),
        held=f"The derivatives of the loss match the settings at {tokens:,} tokens of "
        f"{coverage.share(taken, len(evidence.rows), 'none, or only zeros')}, to {largest:.1g} of the largest; "
        f"{FLOAT32:g} would have been detected ({BFLOAT16:g} in bfloat16)." + _pulls_towards(loss, kl),
        effect="The gradient is that of a different objective"
        + (f": the token weights are off by {size:.0%} of their size." if size else "."),
        remedy=""
        if first[1] in OWN_REMEDY
        else "Compare the sign and factor of each loss term with the settings, and "
        "check what the loss is divided by in gradient accumulation.",
        onset=first[0] if wrong else None,
    )
    if kl and not pulled:
        yield cannot_tell(f"The KL term is too small in these batches to see its coefficient {kl:g}; record batches "
                          "of later steps, at which the policy has left its reference.")  # fmt: skip


def _not_compared(evidence: PipelineEvidence) -> str:
    """Why no derivative could be compared with the stated loss, a sentence; of our own record with its recipe."""
    if (
        evidence.run is None
        or evidence.engine != "grposcope"
        or any(row.advantages is not None for row in evidence.rows)
    ):
        return (
            "No batch has both derivatives of its loss that are not all 0 and what they are computed from: advantages, "
            "and log-probabilities of the policy and of the reference."
        )
    recipe = evidence.run.setting("recipe")
    return (
        f"The loss is that of {f'recipe {recipe}' if recipe else 'the settings'}, but rollouts of this kind have no "
        "advantages to compute it from; train with verify_every, which keeps them."
    )


def _tolerance(derivatives: Floats, training: str | None) -> float:
    """The difference that rounding explains, as a share of the largest; training: number format of the model."""
    return BFLOAT16 if in_bfloat16(derivatives) or training in ("bfloat16", "float16") else FLOAT32


def _pulls_towards(loss: StatedLoss, kl: float) -> str:
    """What the KL term of the loss has the gradient of, a sentence; empty without a term."""
    clause = KlTerm(loss.divergence, weighted=loss.kl_weighted).climbs() if kl else ""
    return f" Its KL term: {clause}." if clause else ""


RECORDS_REFERENCE = ("trl", "grposcope")
"""Engines whose evidence has the reference's log-probabilities wherever the loss had them."""


def _without_term(
    evidence: PipelineEvidence, step: int, some: Sequence[Rollout], rows: Sequence[Rollout], derivatives: Floats
) -> bool:
    """Whether the weights `derivatives` are those of the surrogate alone, at moved weights, without a reference."""
    unrecorded = evidence.engine in RECORDS_REFERENCE and all(row.reference is None for row in some)
    if evidence.stated.loss is None or not unrecorded or not _moved(evidence, step):
        return False
    alone = _wanted(evidence.stated.loss, 0.0, some, rows)
    both = np.isfinite(derivatives) & np.isfinite(alone)
    return bool(np.abs(alone[both]).max(initial=0.0)) and bool(
        np.abs(derivatives - alone)[both].max() <= BFLOAT16 * np.abs(derivatives[both]).max()
    )


def _pulls(loss: StatedLoss, kl: float, some: Sequence[Rollout], rows: Sequence[Rollout], visible: float) -> bool:
    """Whether the KL term of some rows is large enough for a wrong coefficient to be seen."""
    found = token_weights.of(loss, some, [row for row in rows if not row.dropped])
    pull = np.abs(np.concatenate(found.kl))
    return bool((kl * pull[np.isfinite(pull)] > visible).any())


def _given(row: Rollout) -> Floats:
    return np.zeros(0) if row.loss_weights is None else row.loss_weights


def _wanted(loss: StatedLoss, kl: float, some: Sequence[Rollout], rows: Sequence[Rollout]) -> Floats:
    """Weights of all tokens of some rows, one after the other; without a KL term no reference is asked for."""
    weights_of_step = token_weights.of(loss, some, [row for row in rows if not row.dropped])
    return np.concatenate(weights_of_step.total(kl) if kl else weights_of_step.policy)


def _explained(
    loss: StatedLoss, kl: float, some: Sequence[Rollout], rows: Sequence[Rollout], derivatives: Floats,
    tolerance: float,
) -> tuple[str, str]:  # fmt: skip
    """What the weights are instead: a key of FAULTS, and words for it."""
    parts = len({row.micro_batch for row in some})
    if (clip := clip_fit.explained(loss, kl, some, rows, derivatives, tolerance)) is not None:
        return clip
    for reduction in dict.fromkeys((loss.reduction, *REDUCTIONS)):
        if reduction == "constant length" and not loss.length:
            continue
        weights_of_reduction = token_weights.of(
            replace(loss, reduction=reduction), some, [row for row in rows if not row.dropped]
        )
        policy, pull = np.concatenate(weights_of_reduction.policy), np.concatenate(weights_of_reduction.kl)
        pulls = kl * np.abs(np.nan_to_num(pull)).max(initial=0.0) > tolerance * np.nanmax(np.abs(derivatives))
        columns = np.stack([policy, np.nan_to_num(pull)], 1)[:, : 2 if pulls else 1]  # a term of 0 has no coefficient
        finite = np.isfinite(derivatives) & np.isfinite(columns).all(1)
        (a, *b), *_ = np.linalg.lstsq(columns[finite], derivatives[finite], rcond=None)
        residuals = np.abs(columns[finite] @ np.array([a, *b]) - derivatives[finite])
        if residuals.max() > tolerance * np.abs(derivatives[finite]).max() or not np.abs(policy[finite]).max() > 0:
            continue
        return _named(float(a), float(b[0]) if b else None, kl, reduction, loss.reduction, parts)
    return "weights of another loss", "match none of the losses that were tried"


def _named(a: float, b: float | None, kl: float, reduction: str, stated: str, parts: int) -> tuple[str, str]:
    """What is wrong with weights that are a times those of the surrogate plus b times those of the KL term."""
    if b is not None and abs(a) > 1e-6 and abs(b / a - kl) > 0.02 * abs(kl):
        ratio = b / a
        if abs(ratio + kl) <= 0.02 * abs(kl):
            return "KL sign", f"have the KL term with the opposite sign ({ratio:.3g} instead of {kl:.3g})"
        if abs(ratio) <= 0.02 * abs(kl):
            return "KL left out", f"have no KL term, although its coefficient is {kl:.3g}"
        return "KL coefficient", f"have the KL term with the coefficient {ratio:.3g} instead of {kl:.3g}"
    if a < 0:
        return "sign of the loss", "have the opposite sign"
    if reduction != stated:
        times = f"{a:.4g} × " if abs(a - 1) > 0.01 else ""
        return "another aggregation", f"match {times}{REDUCTIONS[reduction]} instead of {REDUCTIONS[stated]}"
    if parts > 1 and abs(a - parts) < 0.01 * parts:
        return "accumulation not scaled", f"are {parts} times as large: {parts} passes are added up without division"
    twice = f", as when the loss is divided by {parts} passes twice" if abs(a * parts - 1) < 0.01 < parts - 1 else ""
    return "factor of the loss", f"are {a:.4g} times as large{twice}"


def _norms(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Logged norms of the gradient against those taken again."""
    kl = evidence.stated.kl or 0.0
    if not evidence.gradients:
        yield cannot_tell("No gradient norm could be recomputed; give the checkpoint before a step, all rollouts of "
                          "the step, and its logged norm.")  # fmt: skip
        return
    if not any(max(gradient.norm(1, kl), gradient.logged) > 0 for gradient in evidence.gradients):
        yield cannot_tell("Every gradient is 0, logged and recomputed, as under any loss; give steps whose groups have "
                          "different rewards.")  # fmt: skip
        return
    wrong = [
        gradient
        for gradient in evidence.gradients
        if abs(gradient.logged - gradient.norm(1, kl)) > _allowed(gradient, kl)
    ]
    real = [gradient for gradient in evidence.gradients if gradient.norm(1, kl) > SURE * gradient.rounding]
    far = max((abs(gradient.logged / gradient.norm(1, kl) - 1) for gradient in real), default=0.0)
    first = wrong[0] if wrong else evidence.gradients[0]
    yield exact(
        fault="another loss",
        brief="gradient norm",
        broken=bool(wrong),
        evidence=f"The logged gradient norm at step {first.step} is {first.logged:.5g}, but recomputed at "
        f"{first.checkpoint} from {first.rollouts:,} rollouts it is {first.norm(1, kl):.5g}"
        f"{_instead(first, kl, evidence)}",
        held=f"The gradient norm recomputed at {len(evidence.gradients):,} checkpoints agrees with the log to "
        f"{far:.1g}; {NORMS.get(first.precision, 1e-3):g} would have been detected.",
        effect="The optimiser follows a gradient that is not that of the stated loss.",
        remedy="Compare the sign and factor of each loss term with the settings, and look for dropout, and for frozen "
        "or unscaled parts.",
        onset=first.step if wrong else None,
    )


def _allowed(gradient: GradientEvidence, kl: float) -> float:
    """How far two norms of one gradient may be apart."""
    return (
        NORMS.get(gradient.precision, 1e-3) * max(gradient.norm(1, kl), gradient.logged)
        + 1e-7
        + SURE * gradient.rounding
    )


def _instead(gradient: GradientEvidence, kl: float, evidence: PipelineEvidence) -> str:
    """What would explain the norm, as a clause."""
    tried = [(1.0, -kl, "with the opposite sign of the KL term"), (1.0, 0.0, "without the KL term")] if kl else []
    count = evidence.stated.accumulation or 1
    if count > 1:
        tried += [(float(count), count * kl, f"summed over {count} passes without division"),
                  (1 / count, kl / count, f"divided twice by the number of passes ({count})")]  # fmt: skip
    for a, b, words in tried:
        if abs(gradient.logged - gradient.norm(a, b)) <= _allowed(gradient, kl):
            return f"; the log has the norm of a gradient {words}"
    return ""


TAKEN = 0.05
"""Relative difference of the norm that Adam took from the logged one that sums of squares in float32 explain."""


def _taken(evidence: PipelineEvidence) -> Iterator[Finding]:
    """The optimiser takes the logged gradient, clipped as stated.

    Adam's second moments sum to v after a step and to u before it, so that (v − β₂ u)/(1 − β₂) is the squared norm of
    the gradient that it took.
    """
    said, run = evidence.stated, evidence.run
    if run is None or "grad_norm" not in run.table or run.window > 1 or said.beta2 is None or said.clip is None:
        return
    logged = dict(zip(run.table["step"].tolist(), run.table["grad_norm"].tolist(), strict=True))
    before = OptimizerEvidence(0, 0.0, 0.0)
    compared: list[tuple[int, float, float]] = []
    for state in evidence.optimizer:
        norm = logged.get(state.step, float("nan"))
        if state.step == before.step + 1 and state.updates == state.step and np.isfinite(state.second) and norm > 0:
            square = (state.second - said.beta2 * before.second) / (1 - said.beta2)
            visible = state.second * 1e-4 < square * (1 - said.beta2)  # else what was added is lost in rounding
            due = min(norm, said.clip) if said.clip else norm
            if visible or square <= 0:
                compared.append((state.step, float(np.sqrt(max(square, 0.0))), due))
        before = state
    if not compared:
        return
    wrong = [(step, took, due) for step, took, due in compared if abs(took - due) > TAKEN * due]
    step, took, due = wrong[0] if wrong else compared[0]
    yield exact(
        fault="clip norm not in force",
        brief="clipped to almost nothing" if took < due / 100 else "another norm than the clipped one",
        broken=bool(wrong),
        evidence=f"At {len(wrong):,} of {len(compared):,} steps Adam took a gradient of another norm than the logged "
        f"one, clipped at {said.clip:g}: {took:.3g} instead of {due:.3g} at step {step}",
        held=f"At {len(compared):,} steps Adam took a gradient of the logged norm, clipped at {said.clip:g}.",
        effect=f"Steps follow a gradient that is {took / due:.3g} times as large as it should be; where ε is no longer "
        "small beside it, Adam hardly moves.",
        onset=step if wrong else None,
    )


def _reference(evidence: PipelineEvidence) -> Iterator[Finding]:
    """The KL term is to the weights that the run began from, all along."""
    if not evidence.stated.kl:
        return
    if all(row.reference is None for row in evidence.rows):
        yield cannot_tell("The reference's log-probabilities are missing; write ref_logprobs.")
        return
    if evidence.stated.reference != "start":
        yield cannot_tell("The settings do not say whether the reference stays fixed.")
        return
    start = next((checkpoint for checkpoint in evidence.scored if checkpoint.step == 0), None)
    tested, wrong, far = _against_policy(evidence) if start is None else _against_start(evidence, start)
    if not tested:
        yield cannot_tell("It is unknown whether the reference stays fixed; give the starting weights, or rollouts of "
                          "a step at which the weights have moved.")  # fmt: skip
        return
    since, words = min(wrong, default=(0, ""))
    yield exact(
        fault="reference moves along",
        broken=bool(wrong),
        evidence=words,
        held="The reference's log-probabilities of "
        f"{coverage.share(tested, len(evidence.rows), 'none that could be compared')} agree with a fixed policy"
        f"{f', to {far:.1g} nats' if start is not None else ''}; {EXACT:g} nats would have been detected.",
        effect="The KL term holds the policy near its latest weights instead of its starting weights.",
        remedy="Keep a frozen copy of the starting weights as the reference, and update it only if you intend to.",
        onset=since if wrong else None,
    )


def _against_start(evidence: PipelineEvidence, start: ScoredTokens) -> tuple[int, list[tuple[int, str]], float]:
    """The reference's log-probabilities against those of the starting weights: how many rollouts were compared, the
    step and words of each that differs, and the largest mean distance in nats."""
    wrong: list[tuple[int, str]] = []
    tested, far = 0, 0.0
    for index, row in enumerate(evidence.rows):
        if row.reference is None or len(start.logp[index]) != len(row.reference):
            continue
        distances = np.abs(start.logp[index] - row.reference)
        counted = np.isfinite(distances) & (True if row.mask is None else row.mask)
        if not counted.any():
            continue
        distance = float(distances[counted].mean())
        tested, far = tested + 1, max(far, distance)
        limit = 0.05 if in_bfloat16(row.reference) else EXACT
        if distance > limit:
            near = [checkpoint.name for checkpoint in evidence.scored if checkpoint is not start and np.nanmean(
                np.abs(checkpoint.logp[index] - row.reference)[counted]) <= limit]  # fmt: skip
            words = f"; {near[0]} agrees with them" if near else ""
            wrong.append((row.step, f"At step {row.step} the reference's log-probabilities differ by "
                          f"{distance:.2g} nats per token from those of the starting weights{words}"))  # fmt: skip
    return tested, wrong, far


def _against_policy(evidence: PipelineEvidence) -> tuple[int, list[tuple[int, str]], float]:
    """The reference's log-probabilities against the policy's once its weights have moved: how many rollouts were
    compared, and the step and words of each step at which they are the same; no distance is known, so it is 0."""
    wrong: list[tuple[int, str]] = []
    tested = 0
    for step, own in evidence.steps.items():
        pairs = [(row.reference, row.current) for row in (evidence.rows[index] for index in own)
                 if row.reference is not None and row.current is not None]  # fmt: skip
        if not pairs or not _moved(evidence, step):
            continue
        tested += len(pairs)
        if all(np.array_equal(logp, other, equal_nan=True) or np.nanmax(np.abs(logp - other), initial=0) < 1e-6
               for logp, other in pairs):  # fmt: skip
            wrong.append((step, f"At step {step} the reference's log-probabilities equal the policy's in all "
                          f"{len(pairs):,} rollouts, although the weights have moved"))  # fmt: skip
    return tested, wrong, 0.0


def _moved(evidence: PipelineEvidence, step: int) -> bool:
    """Whether a gradient has moved the weights before a step."""
    return any(state.step < step and state.second > 0 and state.lr > 0 for state in evidence.optimizer)


PROOF = Proof("gradient", "The gradient is that of the stated loss",
              "derivatives of the loss by log-probability; or the checkpoint before a step, its rollouts and its norm; "
              "the reference's log-probabilities", _tests)  # fmt: skip
