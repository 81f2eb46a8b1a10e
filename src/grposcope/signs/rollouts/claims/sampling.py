"""The tokens were drawn at the stated temperature, without truncation.

Under the policy that drew them log π(y_t) + H_t has mean 0 given all tokens before. A sampler at temperature T/β draws
by π^β / Σπ^β, and one with top-k or top-p never draws outside of a set: the likelihood ratio of each against π is known
token by token, without knowing who drew. The mixture of all of them is an e-value (`maths.evalues`), so its p holds at
any number of rollouts. A ratio that leaves a tenth of the cut tail allows for ranks that rounding has exchanged.

It is necessary, not sufficient: other weights of the same sureness pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.run import Floats
from grposcope.core.text import percent
from grposcope.maths import evalues
from grposcope.signs.rollouts import coverage, drawn_tokens, numerics
from grposcope.signs.rollouts.drawn_tokens import RowTokens
from grposcope.signs.rollouts.evidence import PipelineEvidence, Stated
from grposcope.signs.rollouts.findings import by_chance
from grposcope.signs.rollouts.numerics import SamplerNumerics
from grposcope.signs.rollouts.sampling_grids import POWERS, TOP_KS, TOP_PS

LEFT = (0.0, 0.1)
"""Share of the cut tail that a truncated sampler still draws, for ranks that its rounding has exchanged."""

MADE_OF_TEXT = (
    "No rollout has the ids of its tokens, and tokens made of its text may not be those that were drawn; "
    "write completion_ids."
)

FOREIGN = 0.75
"""Powers below which unlikely tokens are another model's, prompt's or template's sooner than a temperature's."""


@dataclass(frozen=True)
class SamplerAlternative:
    """A sampler other than the stated one. kind: "temperature", "top-k" or "top-p"; value: β, k or p; left: of LEFT."""

    kind: str
    value: float
    left: float = 0.0


ALTERNATIVES: tuple[SamplerAlternative, ...] = (
    *(SamplerAlternative("temperature", beta) for beta in POWERS),
    *(SamplerAlternative("top-k", k, left) for k in TOP_KS for left in LEFT),
    *(SamplerAlternative("top-p", p, left) for p in TOP_PS for left in LEFT),
)

_PRIOR = np.array(
    [
        0.5 / len(POWERS) if one.kind == "temperature" else 0.5 / (len(ALTERNATIVES) - len(POWERS))
        for one in ALTERNATIVES
    ]
)


@dataclass(frozen=True)
class _DrawnSums:
    """Sums over the drawn tokens of each row, R rows.

    tokens (R,). drift, variance (R,): of log π + H, and its variance under π. logp (R,). log_powers (R, POWERS).
    ratios (ALTERNATIVES, R): log likelihood ratios, widened by the sampler's numerics. beyond, expected (cuts, R):
    tokens drawn outside of each set of TOP_KS and TOP_PS, and how many π would draw at least.
    """

    tokens: Floats
    drift: Floats
    variance: Floats
    logp: Floats
    log_powers: Floats
    ratios: Floats
    beyond: Floats
    expected: Floats


def sums(evidence: PipelineEvidence, rows: Sequence[RowTokens], allowed: SamplerNumerics) -> _DrawnSums:
    """The sums of every row; the checkpoints must have their columns of powers and cuts."""
    parts = [_row(evidence, row, allowed) for row in rows]
    tokens, drift, variance, logp, powers, ratios, beyond, expected = (
        np.array(column, np.float64) for column in zip(*parts, strict=True)
    )
    return _DrawnSums(tokens, drift, variance, logp, powers, ratios.T, beyond.T, expected.T)


def _row(evidence: PipelineEvidence, tokens: RowTokens, allowed: SamplerNumerics) -> tuple[float | Floats, ...]:
    scored, place, kept = evidence.scored[tokens.checkpoint], tokens.place, tokens.kept
    logp, entropy, variance = (column[place][kept] for column in (scored.logp, scored.entropy, scored.variance))
    powers, betas = scored.log_powers[place][kept], np.array(POWERS)
    deviation = np.abs(betas - 1) * np.sqrt(variance)[:, None]
    temperature = (betas - 1) * logp[:, None] - powers - allowed.widening(deviation)
    outside = np.concatenate([scored.outside_k[place][kept], scored.outside_p[place][kept]], 1) * (1 - allowed.tail)
    rank, above = scored.rank[place][kept][:, None], scored.above[place][kept][:, None]
    beyond = np.concatenate([rank >= np.array(TOP_KS), above >= np.array(TOP_PS)], 1)
    cuts = []
    for left in LEFT:
        inside = np.log1p(-left * outside) - np.log1p(-np.minimum(outside, 1 - 1e-12))
        cuts.append(np.where(beyond, math.log(left) if left else -np.inf, inside).sum(0))
    in_order = np.stack(cuts, 1).reshape(-1)
    return (
        float(kept.sum()), float((logp + entropy).sum()), float(variance.sum()), float(logp.sum()),
        powers.sum(0), np.concatenate([temperature.sum(0), in_order]), beyond.sum(0), outside.sum(0),
    )  # fmt: skip


def fitted_power(sums: _DrawnSums) -> tuple[float, float, float]:
    """The β at which the tokens are likeliest, and the ends of its 95 % interval, within the range of POWERS.

    The log-likelihood β Σ log π − Σ log Σπ^β is concave; the interval is where it is within 1.92 of its largest.
    """
    from scipy.interpolate import CubicSpline

    betas = np.array(sorted((*POWERS, 1.0)))
    at = dict(zip(POWERS, sums.log_powers.sum(0), strict=True)) | {1.0: 0.0}
    normalizer = CubicSpline(betas, [at[beta] for beta in betas])
    fine = np.linspace(betas[0], betas[-1], 3001)
    value = fine * sums.logp.sum() - normalizer(fine)
    inside = fine[value >= value.max() - 1.92]
    return float(fine[value.argmax()]), float(inside[0]), float(inside[-1])


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Drift and truncation, as one mixture of alternatives."""
    every = [one for one in drawn_tokens.rows_of(evidence) if len(evidence.scored[one.checkpoint].log_powers)]
    rows = [one for one in every if evidence.rows[one.place].completion_ids is not None]
    if reason := drawn_tokens.lacking(evidence, every) or drawn_tokens.selection(evidence):
        yield cannot_tell(reason)
        return
    if not rows:
        yield cannot_tell(MADE_OF_TEXT)
        return
    allowed = numerics.of(evidence.stated.precision)
    found = sums(evidence, rows, allowed)
    _, low, high = fitted_power(found)
    if not found.variance.sum() > 0 or (low <= min(POWERS) and high >= max(POWERS)):
        yield cannot_tell(
            f"{_tokens(found)} fit every temperature, since they are few or have probabilities near 1; give more "
            "rollouts."
        )
        return
    seen = evalues.mixture(found.ratios, _PRIOR)
    best, began = ALTERNATIVES[seen.best], evalues.began(found.ratios[seen.best])
    said, as_stated = _alternative(evidence, found, best), _is_stated(evidence.stated, best)
    z = found.drift.sum() / math.sqrt(found.variance.sum())
    yield by_chance(
        said.fault,
        seen.p,
        not as_stated,
        evidence=f"{said.because} (log π + H drifts by z = {z:+.1f}; {seen.each[seen.best]:,.1f} nats of evidence)",
        held=f"{said.because}, as the settings say." if as_stated else _held(evidence, found, z, len(rows)),
        onset=evidence.rows[rows[began].place].step if len(evidence.steps) > 1 else None,
        brief=said.brief,
        effect=said.effect,
        remedy=said.remedy,
    )
    if not as_stated and not _visible(found):
        yield cannot_tell(f"{_tokens(found)} are too few to see a top-k or top-p that cuts off the tail, since the "
                          "policy itself would hardly draw from it; give more rollouts.")  # fmt: skip


def _visible(sums: _DrawnSums) -> list[int]:
    """The top-k cuts that would be seen, each beyond which the policy would draw enough tokens."""
    enough = math.log(20 * len(ALTERNATIVES))  # log(1/(1 - tail)) ≥ tail, so this many expected tokens would be seen
    return [k for column, k in enumerate(TOP_KS) if sums.expected[column].sum() > enough]


def _is_stated(stated: Stated, best: SamplerAlternative) -> bool:
    """Whether the settings say that the sampler is so."""
    if best.kind == "top-k":
        return bool(stated.top_k)
    return best.kind == "top-p" and stated.top_p is not None and stated.top_p < 1


def _alternative(evidence: PipelineEvidence, sums: _DrawnSums, best: SamplerAlternative) -> Finding:
    """What is said where the sampler is the alternative, before its p-value."""
    if best.kind == "temperature":
        return _temperature(sums, evidence.stated.temperature or 1.0)
    cuts = [("top-k", k) for k in TOP_KS] + [("top-p", p) for p in TOP_PS]
    column = cuts.index((best.kind, best.value))
    drawn, expected = int(sums.beyond[column].sum()), float(sums.expected[column].sum())
    mass = 1 - expected / sums.tokens.sum()
    place = f"the {best.value:g} likeliest" if best.kind == "top-k" else f"the top-p nucleus of {best.value:g}"
    per_rollout = -math.log(max(mass, 1e-9)) * sums.tokens.sum() / len(sums.tokens)
    return Finding(
        "truncated sampler",
        brief="top-k truncation" if best.kind == "top-k" else "nucleus truncation",
        because=f"The sampler cuts off the tail: {drawn} of {_tokens(sums)} lie outside {place}; the policy would "
        f"draw {expected:.1f} there",
        effect=f"The kept tokens have {mass:.2%} of the probability; {_cost(per_rollout)}",
        remedy="Sample with top_k 0 (or -1) and top_p 1, or log the sampler's own log-probabilities and correct with "
        "them.",
    )


def _cost(per_rollout: float) -> str:
    """What so many nats per rollout do to the gradient."""
    return (
        f"on average a rollout is {per_rollout:.3g} nats from the policy, so about "
        f"{percent(drawn_tokens.relative_error(per_rollout))} of the gradient does not come from the stated loss."
    )


def _temperature(sums: _DrawnSums, stated: float) -> Finding:
    beta, low, high = fitted_power(sums)
    shown = f"{stated / beta:.3g} ({stated / high:.3g} to {stated / low:.3g})"
    # KL of a power from π is (β − 1)² V / 2 where β is near 1
    effect = _cost((beta - 1) ** 2 * sums.variance.sum() / 2 / len(sums.tokens))
    effect = f"{effect[:1].upper()}{effect[1:]}"
    if beta < FOREIGN:
        return Finding(
            "unlikely tokens",
            because=f"The tokens are far less likely than the policy's own: the best-fitting temperature is {shown}, "
            f"not {stated:g}",
            effect=effect,
            remedy="Check first that prompts are rendered with the same chat template, then that these weights drew "
            "these rollouts, then the sampler's temperature.",
        )
    return Finding(
        "sampler temperature differs",
        because=f"The tokens were drawn at a temperature of {shown}, not {stated:g}",
        effect=effect,
        remedy="Set the same temperature in the sampler and the trainer (which divides its logits by it).",
    )


def _held(evidence: PipelineEvidence, sums: _DrawnSums, z: float, rows: int) -> str:
    stated = evidence.stated.temperature or 1.0
    _, low, high = fitted_power(sums)
    visible = _visible(sums)
    cut = f" and a top-k of {visible[-1]} or less" if visible else ""
    return (
        f"{_tokens(sums)} of {coverage.share(rows, len(evidence.rows), 'no scored token')} fit a temperature of "
        f"{stated / high:.3g} to {stated / low:.3g} (stated: {stated:g}; z = {z:+.1f}); other temperatures{cut} would "
        "have been detected."
    )


def _tokens(sums: _DrawnSums) -> str:
    return f"{int(sums.tokens.sum()):,} tokens"


PROOF = Proof(
    "sampling",
    "Rollouts were sampled at the stated temperature, without truncation",
    "token ids of all rollouts that were drawn, and the checkpoint that drew them",
    _tests,
)
