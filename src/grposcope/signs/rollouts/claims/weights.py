"""These weights wrote these tokens: the checkpoint's log-probabilities against those that were recorded.

For tokens that the sampler μ drew, ρ = π/μ, the mean of ρ − 1 − log ρ is KL(μ‖π) per token without bias and never below
0 (Schulman's k3). Beyond what the sampler's number format makes of the same weights (`numerics`) it is a fault, and
what explains it best is named: log-probabilities of another temperature, those after truncation, another checkpoint.
The mean is over tokens, each cut at LARGEST nats, which can only lower it: few tokens with a large ρ, of which nothing
is known but that they are rare, would hide what all the others show. Its standard error is by jackknife over groups, p
by Student's t. In sentences stand mean |log ρ| and the share of tokens that are off, which have no such tail.

Where the trainer's own old log-probabilities are there too, they are held to the same, or to the weights before their
step where they are nearer to those.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.run import Floats
from grposcope.core.text import percent
from grposcope.maths import evalues
from grposcope.signs.rollouts import coverage, drawn_tokens, numerics
from grposcope.signs.rollouts.drawn_tokens import RowTokens
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import by_chance
from grposcope.signs.rollouts.sampling_grids import POWERS

FAR = 0.05
"""p above which a distance beyond rounding may be chance."""

EXPLAINED = 0.2
"""Share of the divergence that may be left by what is said to explain it."""

ABOVE, ROUNDING = 0.05, 1e-5
"""Share of tokens with ρ above 1 below which recorded log-probabilities look processed; |log ρ| that is rounding."""


@dataclass(frozen=True)
class _RecordedTokens:
    """A row's drawn tokens whose recorded log-probability is a number: its place, log π and log μ, (T,) each."""

    place: int
    kept: np.ndarray
    logp: Floats
    recorded: Floats

    @property
    def divergence(self) -> Floats:
        """ρ − 1 − log ρ of each token."""
        return k3(self.logp - self.recorded)


def k3(log_ratio: Floats) -> Floats:
    """ρ − 1 − log ρ, cut where ρ would overflow."""
    bounded = np.minimum(log_ratio, 50.0)
    return np.asarray(np.expm1(bounded) - bounded)


LARGEST = 1.0
"""Nats at which ρ − 1 − log ρ of a token is cut: its mean can only fall by that, and no single token makes it."""


def size(log_ratios: Sequence[Floats]) -> str:
    """How far log-probabilities are apart, as a clause: mean |log ρ|, and the share of tokens beyond rounding."""
    every = np.abs(np.concatenate(list(log_ratios)))
    return (
        f"by {every.mean():.2g} nats on average over {len(every):,} tokens, "
        f"at {percent(float((every > OFF).mean()))} of them by more than {OFF:g}"
    )


OFF = 0.05
"""|log ρ| of a token beyond what rounding makes."""


def recorded(evidence: PipelineEvidence, rows: Sequence[RowTokens], column: str) -> list[_RecordedTokens]:
    """The rows that have recorded log-probabilities in a column, "sampler" or "old"."""
    found = []
    for row in rows:
        values = getattr(evidence.rows[row.place], column)
        if values is None or len(values) != len(row.kept):
            continue
        kept = row.kept & np.isfinite(values)
        if kept.any():
            logp = evidence.scored[row.checkpoint].logp[row.place][kept]
            found.append(_RecordedTokens(row.place, kept, logp, values[kept]))
    return found


@dataclass(frozen=True)
class _MeanOfTokens:
    """A mean over tokens, its standard error by jackknife over groups, and the degrees of freedom of that."""

    value: float
    se: float
    freedom: int

    def p_above(self, bound: float) -> float:
        """One-sided p of a mean of at most `bound`; 1 without a standard error."""
        if not self.se > 0:
            return 1.0 if not self.freedom or self.value <= bound else 0.0
        from scipy.special import stdtr

        return float(stdtr(self.freedom, (bound - self.value) / self.se))

    def seen_above(self, bound: float) -> float:
        """The mean that would be above `bound` at p = FAR in half of all cases, at this standard error."""
        from scipy.special import stdtrit

        return float(bound + stdtrit(self.freedom, 1 - FAR) * self.se)


def mean_of(values: Sequence[Floats], groups: Sequence[str]) -> _MeanOfTokens:
    """Mean of values of tokens, with rows of a group together; of single tokens where there is one group."""
    sums, counts = np.array([value.sum() for value in values]), np.array([float(len(value)) for value in values])
    _, number = np.unique(np.array(groups), return_inverse=True)
    if number.max(initial=0) == 0:
        number = np.arange(len(sums))
    if len(sums) == 1:
        sums, counts, number = values[0], np.ones(len(values[0])), np.arange(len(values[0]))
    sums, counts = np.bincount(number, sums), np.bincount(number, counts)
    value = float(sums.sum() / counts.sum())
    if len(sums) < 2:
        return _MeanOfTokens(value, math.nan, 0)
    left_out = (sums.sum() - sums) / (counts.sum() - counts)
    se = math.sqrt((len(sums) - 1) * float(((left_out - left_out.mean()) ** 2).mean()))
    return _MeanOfTokens(value, se, len(sums) - 1)


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """The sampler's recorded log-probabilities, and the trainer's old ones."""
    rows = drawn_tokens.rows_of(evidence)
    if reason := drawn_tokens.lacking(evidence, rows):
        yield cannot_tell(reason)
        return
    found = recorded(evidence, rows, "sampler")
    if found:
        yield _test(evidence, found, "sampler")
    else:
        yield cannot_tell(
            "The sampler's log-probabilities were not recorded, and similar policies can hardly be told apart by "
            "tokens alone; log them (vLLM: logprobs=0), or give other checkpoints for comparison."
        )
    if old := recorded(evidence, _of_old(evidence, rows), "old"):
        yield _test(evidence, old, "old")


def _of_old(evidence: PipelineEvidence, rows: Sequence[RowTokens]) -> list[RowTokens]:
    """The rows under the weights that their old log-probabilities are of.

    Some trainers keep those of the weights that drew (TRL), others compute them with the weights before the step (for
    stale rollouts): of both, those that are nearer, for all rows of a step alike.
    """
    before = {checkpoint.step: number for number, checkpoint in enumerate(evidence.scored)}
    chosen: list[RowTokens] = []
    for step in dict.fromkeys(evidence.rows[row.place].step for row in rows):
        drawn = [row for row in rows if evidence.rows[row.place].step == step]
        trained = [replace(row, checkpoint=before.get(step - 1, row.checkpoint)) for row in drawn]
        of_either = [(_distance(recorded(evidence, tokens, "old")), tokens) for tokens in (drawn, trained)]
        chosen += min(of_either, key=lambda pair: pair[0])[1]
    return chosen


def _distance(tokens: Sequence[_RecordedTokens]) -> float:
    """Sum over all tokens, infinite where one is not scored."""
    total = sum(float(row.divergence.sum()) for row in tokens)
    return total if math.isfinite(total) else math.inf


def _test(evidence: PipelineEvidence, tokens: Sequence[_RecordedTokens], column: str) -> Finding:
    """The mean distance of recorded log-probabilities from the weights', or why the tokens are too few.

    Too few for an error of the mean, or to be sure of a distance.
    """
    allowed = numerics.of(evidence.stated.precision)
    divergence = [np.minimum(one.divergence, LARGEST) for one in tokens]
    mean = mean_of(divergence, [group_name(evidence, one.place) for one in tokens])
    if not mean.freedom:
        return cannot_tell("One token has a recorded log-probability, too few to compare with the weights; write more.")
    drawn = float(np.mean([(one.recorded - one.logp).sum() for one in tokens]))
    per_rollout = max(drawn, float(np.mean([one.sum() for one in divergence])))
    whose = "sampler's" if column == "sampler" else "trainer's old"
    shown = size([one.logp - one.recorded for one in tokens])
    began = evalues.began(np.array([one.sum() - len(one) * allowed.k3 for one in divergence]))
    why = _explained(evidence, tokens, mean.value, column)
    p = mean.p_above(allowed.k3)
    worst = _worst_group(evidence, tokens, divergence)
    of = coverage.share(len(tokens), len(evidence.rows), "none or no scored token")
    held = f"The {whose} recorded log-probabilities of {of} differ from those of the weights {shown}; "
    if mean.value > allowed.k3:
        held += (
            f"{allowed.name} explains a KL of {allowed.k3:g} nats per token, and it is {mean.value:.2g}, but the "
            "tokens are too few to be sure; give more."
        )
        if p > FAR:
            return cannot_tell(held)
    else:
        held += (
            f"{allowed.name} may cause a KL of {allowed.k3:g} nats per token, and {mean.seen_above(allowed.k3):.2g} "
            "would have been detected."
        )
    return by_chance(
        fault=why.fault,
        brief=why.brief,
        broken=mean.value > allowed.k3,
        evidence=(
            f"The {whose} recorded log-probabilities differ from those of the weights {shown}; "
            f"{allowed.name} explains a KL of {allowed.k3:g} nats per token, and it is {mean.value:.2g}"
            f"{why.words}{worst}"
        ),
        held=held,
        effect=(
            f"On average a rollout is {per_rollout:.3g} nats from the policy, so about "
            f"{percent(drawn_tokens.relative_error(per_rollout))} of the gradient does not come from the stated loss."
        ),
        remedy=why.remedy,
        p=p,
        onset=evidence.rows[tokens[began].place].step if len(evidence.steps) > 1 else None,
    )


@dataclass(frozen=True)
class _Explanation:
    """What explains a distance: its fault, the same in a few words, a clause with numbers, and the remedy."""

    fault: str
    brief: str
    words: str
    remedy: str


def _explained(
    evidence: PipelineEvidence, tokens: Sequence[_RecordedTokens], divergence: float, column: str
) -> _Explanation:
    """What explains the distance best; old log-probabilities of the trainer are wrong whatever explains it."""
    why = _of_sampler(evidence, tokens, divergence)
    return why if column == "sampler" else replace(why, fault="wrong old log-probabilities")


def _of_sampler(evidence: PipelineEvidence, tokens: Sequence[_RecordedTokens], divergence: float) -> _Explanation:
    log = _joined([one.logp - one.recorded for one in tokens])
    ratio, above = np.exp(np.minimum(log, 50)), float((log > ROUNDING).mean())
    stated = evidence.stated.temperature or 1.0
    beta, left = _power(evidence, tokens)
    fault, best, other = _checkpoint(evidence, tokens)
    if left < EXPLAINED * divergence and left <= other:
        return _Explanation(
            "sampler temperature differs",
            "log-probabilities of another temperature",
            f"; at a temperature of {stated / beta:.3g} instead of {stated:g} they agree to {left:.2g}",
            "Record log-probabilities after the temperature (vLLM: logprobs_mode processed_logprobs), or state the "
            "temperature that the sampler has.",
        )
    if other < EXPLAINED * divergence:
        return _Explanation(
            fault,
            f"log-probabilities of {best}",
            f"; {best} agrees with them to {other:.2g}",
            "Send the trainer's weights to the sampler after every step, and check that they arrived.",
        )
    if above < ABOVE and ratio.mean() + 3 * ratio.std() / math.sqrt(len(ratio)) < 1:
        return _Explanation(
            "truncated sampler",
            "log-probabilities after truncation",
            f"; mean π/μ is {ratio.mean():.3g} and {percent(above)} of the ratios lie above 1: the recorded "
            "probabilities were divided by the mass that top-k or top-p keeps",
            "Sample without truncation, or keep the processed log-probabilities for the correction only.",
        )
    return _Explanation(
        "wrong weights at the sampler",
        "log-probabilities of other weights",
        "; no other temperature, truncation or given checkpoint explains it",
        "Compare the sampler's weights with the trainer's (give both to grposcope verify), and check the chat "
        "template of the prompts; give earlier checkpoints for comparison.",
    )


def _power(evidence: PipelineEvidence, tokens: Sequence[_RecordedTokens]) -> tuple[float, float]:
    """The β whose p^β the recorded log-probabilities fit best, and k3 per token that is left; inf without columns."""
    from scipy.interpolate import CubicSpline

    betas = np.array(sorted((*POWERS, 1.0)))
    logs, normalizers, recorded_ = [], [], []
    stated = drawn_tokens.stated(evidence)
    for one in tokens:
        scored = evidence.scored[stated[one.place]]
        if not len(scored.log_powers):
            return 1.0, math.inf
        powers = scored.log_powers[one.place][one.kept]
        logs.append(one.logp)
        normalizers.append(np.insert(powers, int(np.searchsorted(POWERS, 1.0)), 0.0, axis=1))
        recorded_.append(one.recorded)
    logp, recorded_all = np.concatenate(logs), np.concatenate(recorded_)
    normalizer = CubicSpline(betas, np.concatenate(normalizers), axis=1)

    def left(beta: float) -> float:
        return float(k3(beta * logp - normalizer(beta) - recorded_all).mean())

    coarse = min(betas, key=left)
    fine = min(np.linspace(max(betas[0], 0.8 * coarse), min(betas[-1], 1.25 * coarse), 61), key=left)
    return float(fine), left(float(fine)) if abs(fine - 1) > 0.02 else math.inf


def _checkpoint(evidence: PipelineEvidence, tokens: Sequence[_RecordedTokens]) -> tuple[str, str, float]:
    """The fault, the checkpoint whose log-probabilities are nearest to the recorded ones, and k3 per token left.

    Not row by row in truth: one that fits all rows, or the one so many checkpoints before the stated one.
    """
    stated = drawn_tokens.stated(evidence)
    of_stated = {one.place: int(stated[one.place]) for one in tokens}
    nearest = ("", "", math.inf)
    own = _left(evidence, tokens, of_stated)
    for j, other in enumerate(evidence.scored):
        first = j == 0 and max(of_stated.values()) > 0
        alternatives = [("weights never arrived" if first else "wrong weights at the sampler", other.name,
                         dict.fromkeys(of_stated, j))]  # fmt: skip
        if j and min(of_stated.values()) >= j:
            lag = {name: checkpoint - j for name, checkpoint in of_stated.items()}
            alternatives.append(("stale sampler", f"the checkpoint {j} before the expected one", lag))
        for fault, name, of in alternatives:
            left = _left(evidence, tokens, of)
            if left != own and left < nearest[2]:
                nearest = fault, name, left
    for factor in set.intersection(*(set(evidence.scored[place].at_scale) for place in of_stated.values())):
        left = _left_at(evidence, tokens, of_stated, factor)
        if left < nearest[2]:
            fault = "adapters at another scale" if factor else "weights never arrived"
            nearest = fault, f"the expected checkpoint with {factor:g} times its adapters", left
    return nearest


def _joined(parts: list[Floats]) -> Floats:
    """Arrays of rows as one."""
    return np.concatenate(parts) if parts else np.empty(0)


def _left_at(evidence: PipelineEvidence, tokens: Sequence[_RecordedTokens], of: dict[int, int], factor: float) -> float:
    """The same from those of the stated checkpoints with `factor` times their adapters."""
    at = [(evidence.scored[of[one.place]].at_scale[factor][one.place][one.kept], one) for one in tokens]
    return float(np.nanmean(np.concatenate([k3(logp - one.recorded) for logp, one in at])))


def _left(evidence: PipelineEvidence, tokens: Sequence[_RecordedTokens], of: dict[int, int]) -> float:
    """k3 per token of the recorded log-probabilities from those of a checkpoint per row."""
    parts = [k3(evidence.scored[of[one.place]].logp[one.place][one.kept] - one.recorded) for one in tokens]
    return float(np.nanmean(np.concatenate(parts)))


def group_name(evidence: PipelineEvidence, index: int) -> str:
    """What tells the group of a row from those of all steps; a row without one is its own."""
    row = evidence.rows[index]
    return f"{row.step}:{row.group if row.group is not None else index}"


def _worst_group(evidence: PipelineEvidence, tokens: Sequence[_RecordedTokens], divergence: Sequence[Floats]) -> str:
    """A clause where one of several prompts has half of the divergence or more."""
    by_group: dict[str, float] = {}
    for one, values in zip(tokens, divergence, strict=True):
        key = evidence.rows[one.place].group or evidence.rows[one.place].where
        by_group[key] = by_group.get(key, 0.0) + float(values.sum())
    total, most = sum(by_group.values()), max(by_group, key=by_group.__getitem__)
    if len(by_group) < 4 or not total or by_group[most] < total / 2:
        return ""
    return f"; {percent(by_group[most] / total)} of the difference is in prompt {most[:40]}"


PROOF = Proof(
    "weights",
    "The given weights drew these rollouts",
    "token ids, the sampler's log-probabilities, and the checkpoint that drew them",
    _tests,
)
