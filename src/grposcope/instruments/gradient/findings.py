"""What a probe found, in words: each statement with the number it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from grposcope.core.answer import KeyNumber, exactly
from grposcope.core.estimate import Estimate
from grposcope.core.run import Run
from grposcope.core.text import number, percent, span, visible
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient.baseline import BestBaseline
from grposcope.instruments.gradient.probe_record import ProbeRecord
from grposcope.maths.intervals import Z, interval

Range = tuple[float, float]
"""The least and the largest value that a quantity can have."""

ANY: Range = (-math.inf, math.inf)
SHARE: Range = (0.0, 1.0)
RANK: Range = (1.0, math.inf)
EXCESS: Range = (0.0, math.inf)
"""Ranges of what may be anything, of shares, of ranks, and of variances that are added."""

BRACKETS = (
    "In brackets: 95% intervals; those of shares are normal in the log odds, and others are cut at the least possible "
    "value."
)
"""What numbers in brackets are."""

TITLES = {"trl": "TRL", "verl": "verl"}
"""Names of the trainers whose rollouts a probe takes."""


@dataclass(frozen=True)
class _Fact:
    """One statement. value: the number it rests on; NaN with the reason where nothing can be said."""

    name: str
    value: Estimate
    sentence: str


def facts(record: ProbeRecord) -> tuple[_Fact, ...]:
    """All that is said of a probe, in the order in which to read it."""
    return (_rank(record), _group_rank(record), _class_means(record), _dead_groups(record), _tokens(record),
            _parameters(record), _baseline(record))  # fmt: skip


def subject(record: ProbeRecord) -> str:
    """Sentence part that names the model, the task, the step and the batch of a probe."""
    model, task = (visible(name or "?", 80) for name in (record.model, record.task))
    after = "" if record.step is None else f" after step {record.step:,}"
    prompts, group = ("?" if count is None else count for count in (record.prompts, record.group))
    return f"{model} on {task}{after}, {prompts} prompts × {group} rollouts"


def solved(record: ProbeRecord) -> str:
    """The share of rollouts that were solved, or the mean reward where rewards are not 0 and 1."""
    if math.isfinite(record.groups.dead_if_alike):
        return f"{percent(record.solved)} of rollouts solved"
    return f"mean reward {number(record.solved)}"


def conclusion(record: ProbeRecord) -> str:
    """What a probe found, in one sentence."""
    model, task = (visible(name or "?", 80) for name in (record.model, record.task))
    stable = record.rank("stable").value
    if not math.isfinite(stable):
        return f"{model} on {task} was probed; the rank of its gradient is unknown."
    return (
        f"The gradients of {model} on {task} have a mean stable rank of {number(stable)}; 5% of the tokens hold "
        f"{percent(record.token_sparsity['top_5'])} of the squared score norms, and "
        f"{percent(record.groups.dead.value)} of the groups are dead."
    )


def numbers(record: ProbeRecord) -> tuple[KeyNumber, ...]:
    """The numbers of a probe that are shown large."""
    stable, control = record.rank("stable"), record.rank("stable", "nll").value
    dead, alike = record.groups.dead, record.groups.dead_if_alike
    top, cancelled = record.token_sparsity["top_5"], record.credit.cancelled
    without_reward = f"{number(control)} without reward" if math.isfinite(control) else ""
    expected = f"{percent(alike)} if prompts were equally hard" if math.isfinite(alike) else ""
    return (
        KeyNumber("stable rank", stable, number(stable.value), without_reward),
        KeyNumber("dead groups", dead, percent(dead.value), expected),
        KeyNumber("top 5% of tokens hold", exactly(top), percent(top), "of the score"),
        KeyNumber("cancels on shared text", exactly(cancelled), percent(cancelled), "of the credit"),
    )


def brief(record: ProbeRecord) -> str:
    """A probe in one sentence, to compare it with others."""
    return (
        f"{subject(record)}. Stable rank {ranged(record.rank('stable'), possible=RANK)}; the top 5% of tokens hold "
        f"{percent(record.token_sparsity['top_5'])}; baseline: {visible(record.baseline.verdict, 400)}."
    )


def _rank(record: ProbeRecord) -> _Fact:
    """Stable rank of the weight matrices' gradients, next to other definitions and to the control without reward."""
    stable = record.rank("stable")
    if not math.isfinite(stable.value):
        return _Fact("rank", stable, f"Rank: cannot tell ({stable.flag or 'not finite'}).")
    others = ", ".join(
        f"{name} {number(record.rank(definition).value)}"
        for definition, name in {"participation": "participation ratio", "entropy_sq": "entropy of σ²"}.items()
    )
    text = (
        f"Rank: the gradient of a weight matrix has a stable rank Σσ²/σ₁² of {ranged(stable, possible=RANK)}, the mean "
        f"over {stable.n} matrices with its 95% interval. Other definitions give different numbers: {others}; "
        f"{number(record.rank('energy_90').value)} directions hold 90% of its squared norm."
    )
    control = record.rank("stable", "nll")
    if math.isfinite(control.value):
        text += (
            " Control: with the same weight on every rollout, whatever its reward, the stable rank is "
            f"{ranged(control, possible=RANK)}; compare the two before you attribute a low rank to the reward."
        )
    return _Fact("rank", stable, text)


def _group_rank(record: ProbeRecord) -> _Fact:
    """Rank of the rows A_i ψ_i of a group in one layer, beside that of isotropic scores and that of a cut at two."""
    rank = record.group_rank
    if not math.isfinite(rank.rank.value):
        return _Fact("group_rank", rank.rank, f"Rank of a group's rollouts: cannot tell ({rank.rank.flag}).")
    group = record.group or 0
    rows = (1.0, float(group or math.inf))
    top = ranged(rank.top, percent, (1.0 / group if group else 0.0, 1.0))
    text = (
        f"Rank of a group's rollouts: the {group} rows advantage × score of one layer have (Σσ)²/Σσ² = "
        f"{ranged(rank.rank, number, rows)} over {rank.rank.n} live groups (median matrix), and {top} of "
        f"their energy in one direction; rewards have a standard deviation of {number(rank.deviation.value)}. "
        f"Orthogonal scores of equal norm would give {number(rank.null.value)}, 4K(R−K)/R for K of R right"
    )
    if math.isfinite(rank.null_of_lengths.value):
        text += f", and of the lengths that these have {number(rank.null_of_lengths.value)}"
    if group == 2:
        text += ": 2 by algebra at R = 2, so this size cannot show whether a rank of 2 comes from the gradient"
    return _Fact(
        "group_rank", rank.rank,
        f"{text}. Cut at two singular values it is {number(rank.rank_of_two.value)}, at most 2 whatever the gradient.",
    )  # fmt: skip


def _class_means(record: ProbeRecord) -> _Fact:
    """Share of the gradient's squared norm held by the mean scores of successes and failures."""
    shares = record.class_means
    if not math.isfinite(shares.plain.value):
        return _Fact("class_means", shares.plain, f"Two classes: cannot tell ({shares.plain.flag}).")
    text = (
        "Two classes: the direction from the mean of a group's failures to the mean of its successes "
        f"holds {ranged(shares.plain, _fine, SHARE)} of the squared "
        f"norm of a live group's gradient, over {shares.plain.n} groups. With the rollout weights of the objective it "
        f"holds {_fine(shares.reduced.value)}"
    )
    if shares.distinct.value > shares.plain.value + 1e-6:
        text += f"; one class per distinct reward holds {_fine(shares.distinct.value)}."
    else:
        text += " (all of it by algebra where rewards have two values)."
    return _Fact("class_means", shares.plain, text)


def _dead_groups(record: ProbeRecord) -> _Fact:
    """Observed share of dead groups, next to the share expected if all prompts were equally hard."""
    observed, alike = record.groups.dead, record.groups.dead_if_alike
    low, high = interval(observed)
    text = (
        f"Dead groups: {percent(observed.value)} ({span(low, high, percent)}) of {observed.n} groups had equal rewards "
        "and taught nothing"
    )
    if not math.isfinite(alike):
        text += "; the expected share is unknown, because rewards are not 0 and 1."
    else:
        text += f"; if all prompts were equally hard, it would be {percent(alike)}"
        if low <= alike <= high:
            text += ", which is within the interval."
        else:
            text += f"; {'prompts differ in difficulty' if observed.value > alike else 'fewer groups are dead'}."
    return _Fact("dead_groups", observed, text)


def _tokens(record: ProbeRecord) -> _Fact:
    """Share of the squared score norms in the largest tokens, and share of the credit on shared text."""
    sparsity, credit = record.token_sparsity, record.credit
    count = math.nan if record.tokens is None else record.tokens
    text = (
        f"Tokens: the top 5% of {count:,.0f} tokens hold {percent(sparsity['top_5'])} of the squared "
        f"score norms, and the top 20% hold {percent(sparsity['top_20'])} (Gini {number(sparsity['gini'])}; 0 "
        "if all are equal, 1 if one holds all). Completions of a group that begin alike push the same "
        f"tokens in opposite directions when one succeeds and another fails: {percent(credit.cancelled)} "
        f"of the credit cancels this way. {percent(credit.shared)} of the credit lies on text that two "
        f"completions share, {percent(credit.common)} on text common to all."
    )
    return _Fact("tokens", Estimate(sparsity["top_5"], math.nan, record.tokens or 0), text)


def _parameters(record: ProbeRecord) -> _Fact:
    """Unevenness of the gradient's entries, and the share of bfloat16 weights that a step would change."""
    measured = record.parameter_sparsity
    if not measured:
        text = "Parameters: cannot tell, because the entries of the gradient were not measured."
        return _Fact("parameters", measured["gini"], text)
    text = (
        f"Parameters: the gradient's entries have Gini index {number(measured['gini'].value)} and Hoyer "
        f"sparsity {number(measured['hoyer'].value)} (0 if all are equal, 1 if one holds all). "
    )
    adam, sgd = measured["visible_adam"].value, measured["visible_sgd"].value
    if math.isfinite(adam):
        text += (
            f"If weights were kept in bfloat16, a step of this learning rate would change {percent(adam, 1)} of them "
            f"with Adam (its first step) and {percent(sgd, 2)} with plain SGD."
        )
    else:
        text += "It is unknown how many bfloat16 weights a step would change, because there is no learning rate."
    return _Fact("parameters", measured["gini"], text)


def _baseline(record: ProbeRecord) -> _Fact:
    """Whether the group mean is the best constant baseline."""
    best = record.baseline
    verdict = visible(best.verdict, 400)
    if not math.isfinite(best.covariance.value):
        return _Fact("baseline", best.covariance, f"Baseline: {verdict}.")
    paid = SHARE if math.isfinite(record.groups.dead_if_alike) else ANY  # rewards of 0 and 1
    text = (
        f"Baseline: {verdict}. Best constant {ranged(best.optimal, number, paid)}, group mean "
        f"{ranged(best.mean, number, paid)}; the first less the second, without bias and prompt by prompt, "
        f"{ranged(best.covariance)}, over {best.covariance.n} prompts. "
        f"Excess variance over the best: {ranged(best.excess_mean, percent, EXCESS)} for the group mean, "
        f"{ranged(best.excess_none, percent, EXCESS)} without a baseline.{_assumption(best)}"
    )
    note = f" Note: {best.covariance.flag}." if best.covariance.flag else ""
    return _Fact("baseline", best.covariance, text + note)


def _assumption(best: BestBaseline) -> str:
    """What the covariance of rewards and score norms says of assumption A2, and what the best constant would save."""
    low, high = best.covariance.interval(Z)
    if not (math.isfinite(low) and math.isfinite(best.saving.value)):
        return ""
    status = "fails here" if low > 0 or high < 0 else "is not refuted here"
    return (
        f" Assumption A2 of arXiv:2603.01162, Cov(‖s‖², r | x) = 0, {status}: Cov/E‖s‖² is the difference above. "
        f"Knowing the best constant of each prompt would save {ranged(best.saving, percent, SHARE)} of the variance "
        "per rollout."
    )


def by_step(run: Run) -> dict[int, ProbeRecord]:
    """The probes of a run that name a step, in its order."""
    return {record.step: record for record in probes.of_run(run) if record.step is not None}


def ranged(value: Estimate, form: Callable[[float], str] = number, possible: Range = ANY) -> str:
    """A number with its 95% interval in brackets; with the reason where nothing can be said.

    possible: the range of what is estimated, which neither leaves.
    """
    if not math.isfinite(value.value):
        return f"cannot tell ({value.flag or 'not finite'})"
    inner, low, high = value.within(*possible)
    alone = not math.isfinite(value.se) or (possible != ANY and form(low) == form(high))
    return form(inner) if alone else f"{form(inner)} ({span(low, high, form)})"


def _fine(share: float) -> str:
    """A share as a percentage of three significant digits."""
    return f"{number(100 * share)}%"
