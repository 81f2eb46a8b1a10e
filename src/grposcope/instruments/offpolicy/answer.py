"""Answer on rollouts with both log-probabilities: how far the sampler is, what each correction keeps, which pays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from grposcope.core.answer import Answer, KeyNumber, Table, Word, exactly
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.text import listed, number, percent
from grposcope.instruments.offpolicy import INSTRUMENT, distance, error
from grposcope.instruments.offpolicy.distance import Distance, DistanceParts, KeptWeight, classes, of
from grposcope.instruments.offpolicy.error import CorrectionChoice, GradientError, GradientProducts
from grposcope.instruments.offpolicy.khat import NO_NUMBER, khat
from grposcope.instruments.offpolicy.read import MismatchedRollouts
from grposcope.maths.corrections import ALL, FULL, NONE, named
from grposcope.maths.importance import Floats, effective, exp

HALF = 0.5
"""Kept weight below which a correction is named for what it throws away."""


@dataclass(frozen=True)
class ProbeOfStep:
    """One probe of a run: of the step that trained on its rollouts, their mean lag in steps, NaN where not known.

    prompts: of the probe; live: those whose rewards differ. k3: KL per token. ess: ESS/n of rollouts.
    """

    step: int
    lag: float
    prompts: int
    live: int
    k3: float
    ess: float


@dataclass(frozen=True)
class PooledProbes:
    """The probes of a run that were pooled.

    left_out: probes of another size or source. source: what drew, as of `probe_file.Source`. drifts: whether KL per
    token changed in the course of the run; halves: its mean over the earlier and the later half of the probes; later:
    the choice by the later half alone. The last two are None for few probes.
    """

    steps: tuple[ProbeOfStep, ...]
    left_out: int
    source: str
    drifts: bool
    halves: tuple[Estimate, Estimate] | None
    later: CorrectionChoice | None


@dataclass(frozen=True)
class OffPolicyFound:
    """All that was measured.

    k: k̂ of w ‖A s‖. errors, choice: None without products of scores. parts: None without three log-probabilities.
    pooled: None but for the probes of a run.
    """

    distance: Distance
    kept: Mapping[str, KeptWeight]
    k: float = math.nan
    errors: Mapping[str, GradientError] | None = None
    choice: CorrectionChoice | None = None
    parts: DistanceParts | None = None
    classes: Mapping[str, tuple[tuple[str, ...], Mapping[str, tuple[float, ...]]]] = field(default_factory=dict)
    pooled: PooledProbes | None = None


def measure(drawn: MismatchedRollouts, gram: Floats | None = None) -> OffPolicyFound:
    """What these rollouts say; gram (B, B): of their scores, in the order of the rows, for errors of the gradient."""
    return found(drawn, None if gram is None else _errors_of_gram(drawn, gram))


Errors = tuple[float, dict[str, GradientError]]
"""k̂ of w ‖A s‖, and the error under each correction."""


def found(
    drawn: MismatchedRollouts, errors: Errors | None = None, pooled: PooledProbes | None = None
) -> OffPolicyFound:
    """What these rollouts say, with errors of the gradient where they were measured; pooled: of which probes."""
    ratios = drawn.ratios
    usual = {estimator.name for estimator in ALL}
    further = [named(name) for name in (errors[1] if errors else ()) if name not in usual]
    used = [estimator for estimator in (*ALL, *further) if estimator.known(ratios)]
    weights = {estimator.name: of(estimator, ratios, drawn.prompts) for estimator in used}
    far = distance.measure(ratios, drawn.prompts)
    parts = None if drawn.mismatch is None else distance.split(ratios, drawn.mismatch, drawn.prompts)
    by_class = {
        title: (classes.names, {each.name: classes.means(each.coefficients(ratios)) for each in used})
        for title, classes in classes(ratios, drawn.lags, drawn.environments).items()
    }
    if errors is None:
        return OffPolicyFound(far, weights, parts=parts, classes=by_class)
    k, by_name = errors
    return OffPolicyFound(far, weights, k, by_name, error.choose(by_name, k), parts, by_class, pooled)


def errors_of(
    drawn: MismatchedRollouts, products: Mapping[str, GradientProducts], norms: Floats, batch: int | None = None
) -> Errors:
    """The errors under corrections from products of the estimates of prompts; norms ‖s‖ (B,), NaN without a credit.

    batch: prompts of the batch whose variance is told, by default those of the batches at hand.
    """
    ratios, by_name = drawn.ratios, {name: named(name) for name in products}
    assert drawn.rewards is not None
    advantages = error.leave_one_out(drawn.rewards.reshape(int(drawn.prompts.max()) + 1, -1))
    weights = exp(ratios.sequence)
    k = _tail(weights, advantages, norms)
    return k, {
        name: error.measure(
            product, k, by_name[name].beyond(ratios) or name == FULL.name, float(weights.mean()), batch
        )
        for name, product in products.items()
    }  # fmt: skip


def _errors_of_gram(drawn: MismatchedRollouts, gram: Floats) -> Errors:
    """The errors under corrections with one coefficient per rollout, no correction among them."""
    order, shape = _groups(drawn)
    if gram.shape != (len(order), len(order)) or not np.isfinite(gram).all():
        raise UserError(
            f"the Gram matrix has shape {gram.shape} or values that are not finite; {len(order)} rollouts need "
            f"({len(order)}, {len(order)}), in the order of the rows"
        )
    assert drawn.rewards is not None
    advantages, ratios = error.leave_one_out(drawn.rewards[order].reshape(shape)), drawn.ratios
    weights, sorted_gram = exp(ratios.sequence)[order], gram[np.ix_(order, order)]
    k = _tail(weights, advantages, np.sqrt(np.maximum(np.diag(sorted_gram), 0.0)))
    return k, {
        estimator.name: error.measure(
            _error_from_gram(sorted_gram, estimator.coefficients(ratios)[ratios.starts][order], weights, advantages),
            k, estimator.beyond(ratios) or estimator is FULL, float(weights.mean()),
        )
        for estimator in ALL if (estimator.level == "sequence" or estimator is NONE) and estimator.known(ratios)
    }  # fmt: skip


def _groups(drawn: MismatchedRollouts) -> tuple[np.ndarray, tuple[int, int]]:
    """Order of the rows prompt after prompt, and (P, G); UserError for groups of several sizes and without rewards."""
    sizes = np.bincount(drawn.prompts)
    if drawn.centred is None or len(set(sizes.tolist())) != 1 or sizes[0] < 2:
        raise UserError(
            "errors of the gradient need a reward and a group in every row, and groups of one size, at least 2; add "
            "the columns, or leave the Gram matrix out"
        )
    return np.argsort(drawn.prompts, kind="stable"), (len(sizes), int(sizes[0]))


def of_drawn(drawn: MismatchedRollouts, measured: OffPolicyFound) -> Answer:
    """What is said of these rollouts."""
    far = measured.distance
    equal = not drawn.ratios.log.any()
    return Answer(
        INSTRUMENT.name,
        INSTRUMENT.question,
        word=_word(far, equal, len(drawn.log_ratios), drawn.cut),
        sentence=_equal(drawn) if equal else f"{_far(far, len(drawn.log_ratios))} {_worth(measured)}",
        because="" if equal else _because(measured, len(drawn.log_ratios), drawn.cut),
        do=_do(far, len(drawn.log_ratios), drawn.cut),
        text=_notes(drawn, measured),
        numbers=_numbers(far) + _parts(measured.parts),
        tables=[] if equal else _tables(drawn, measured),
        missing=[] if equal else _missing(drawn, measured),
        document=_document(drawn, measured),
    )


def _word(far: Distance, equal: bool, n: int, cut: str) -> Word:
    if equal:
        return "healthy"
    return "warning" if (far.processed and not cut) or _heavy(far, n) else "told"


def _heavy(far: Distance, n: int) -> bool:
    return far.tail > _trusted(n)


def _equal(drawn: MismatchedRollouts) -> str:
    tokens = int(drawn.ratios.lengths.sum())
    return (
        f"Sampler and trainer agree on all {tokens:,} tokens to the last digit: there is nothing to "
        "correct. If they are two programs, one column is probably a copy of the other."
    )


def _far(far: Distance, n: int) -> str:
    if far.none:
        return (
            "The sampler and the trainer give these rollouts the same probabilities, up to rounding. If the weights "
            "change between drawing and training, keep rollouts of later steps as well."
        )
    return (
        f"The sampler is {_shown(far.k3)} nats per token from the trainer, and {n:,} rollouts are worth "
        f"{n * far.ess.value:,.0f} drawn by the trainer itself (effective sample size ÷ n: {_ess(far)})."
    )


def _worth(measured: OffPolicyFound) -> str:
    """Which correction to take, and which of them drops much of the weight."""
    return " ".join(filter(None, [_choice(measured.choice), _dropped(measured.kept)]))


def _choice(choice: CorrectionChoice | None) -> str:
    if choice is None:
        return (
            "Cannot tell which correction is worth it from the ratios alone; add a Gram matrix or the model (gram, "
            "model), or probe during training (probe_every)."
        )
    if not choice.name:
        return f"Cannot tell which correction is worth it: {choice.reason}."
    if choice.name == NONE.name:
        return f"Correct nothing: no correction clearly saves rollouts (by a factor of {error.WORTH:g} or more)."
    return f"{_advice(choice.name)}: this needs {choice.ratio:.2f} × the rollouts of no correction."


ADVICE = {
    "token_ratio": "Weight every token by its ratio",
    "token_cap": "Cap the ratio of tokens at {}",
    "token_mask": "Drop tokens with a ratio above {}",
    "icepop": "Drop tokens with a ratio outside {} to {}",
    "one_sided": "Drop tokens whose ratio has already moved past 1 by {} in the direction of their advantage",
    "ppo_clip": "Weight tokens by their ratio, within PPO's clip of {} and {}, and {} for negative advantages",
    "probability_band": "Drop tokens whose probability has moved {} down or {} up, where their advantage pushes them",
    "gspo": "Weight completions by their geometric mean ratio, within GSPO's clip of {} and {}",
    "prefix_ratio": "Weight every token by the ratio of the text up to it",
    "sequence_cap": "Cap the sequence ratio at {}",
    "sequence_mask": "Drop completions with a sequence ratio above {}",
    "sequence_rejection": "Keep only completions with a sequence ratio from {} to {}, with weight 1",
    "geometric_band": "Keep only completions with a geometric mean ratio from {} to {}",
    "full": "Weight completions by the whole sequence ratio",
}
"""What to do, by form of the correction, with its bounds."""


def _advice(name: str) -> str:
    form, _, bounds = name.partition(":")
    return f"{ADVICE[form].format(*bounds.split(','))} ({name})"


def _dropped(weights: Mapping[str, KeptWeight]) -> str:
    """Corrections that drop most of the weight, and from which lengths."""
    lost = {name: weight for name, weight in weights.items() if weight.weight.value < HALF}
    clauses = [
        f"{name} drops {percent(1 - weight.weight.value)} of the weight{_of_lengths(weight)}"
        for name, weight in lost.items()
    ]
    return f"{listed(clauses)}." if clauses else ""


def _of_lengths(weight: KeptWeight) -> str:
    """Whether it is mostly the long or the short answers that lose, by thirds; empty where that is even."""
    if weight.thirds is None or abs(weight.thirds[2] - weight.thirds[0]) < 0.1:
        return ""
    return f", mostly of {'long' if weight.thirds[2] < weight.thirds[0] else 'short'} answers"


def _because(measured: OffPolicyFound, n: int, cut: str) -> str:
    far, whole = measured.distance, measured.kept[FULL.name].weight
    if cut:
        reach = f" ± {percent(whole.se)}" if math.isfinite(whole.se) else ""
        return (
            f"the sampler draws from {cut}, which have {percent(far.ratio.value, 1)} of the trainer's "
            f"probability per token and {percent(whole.value)}{reach} per completion; the sampler never draws the "
            "rest, so no number here includes it and no correction can restore it"
        )
    if far.processed:
        return (
            f"the ratio ρ is above 1 on only {percent(far.above, 1)} of the tokens and its mean is "
            f"{far.ratio.value:.3f}, which suggests that the sampler's log-probabilities were computed after top-k "
            "or top-p"
        )
    if _heavy(far, n):
        return (
            f"k̂ of the completions' ratios is {far.tail:.2f}, above {_trusted(n):.2f}: a few rollouts have "
            "most of the weight"
        )
    return ""


def _trusted(n: int) -> float:
    """Largest k̂ at which a mean over n weights is to be trusted."""
    return min(1 - 1 / math.log10(n), NO_NUMBER) if n > 1 else 0.0


def _do(far: Distance, n: int, cut: str) -> str:
    if far.processed and not cut:
        return "log the sampler's log-probabilities before processing, or sample without truncation"
    return "do not rely on numbers that use ratios of whole completions" if _heavy(far, n) else ""


def _shown(value: Estimate) -> str:
    return f"{number(value.value)} ± {number(value.se)}" if math.isfinite(value.se) else number(value.value)


def _third(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _ess(far: Distance) -> str:
    """ESS/n with its 95% interval, or how far down it may be."""
    low, high = far.ess_interval
    if not math.isfinite(low):
        return f"{far.ess.value:.2f}"
    return f"{far.ess.value:.2f}, 95% {f'up to {high:.2f}' if low == 0 else f'{low:.2f} to {high:.2f}'}"


def _numbers(far: Distance) -> list[KeyNumber]:
    return [
        KeyNumber("KL per token", far.k3, _shown(far.k3), f"nats, k3; by k1 {_shown(far.k1)}"),
        KeyNumber("ESS/n", far.ess, _ess(far), "of raw ratios of completions"),
        KeyNumber("Pareto k̂", exactly(far.tail), number(far.tail), "of ratios of completions"),
        KeyNumber("mean ρ", far.ratio, _shown(far.ratio), f"of tokens; above 1: {percent(far.above)}"),
    ]


def _parts(parts: DistanceParts | None) -> list[KeyNumber]:
    """Mismatch and staleness, where three log-probabilities tell them apart."""
    if parts is None:
        return []
    return [
        KeyNumber("part from mismatch", parts.mismatch, _shown(parts.mismatch),
                  f"nats, sampler to the weights that drew the rollouts; by k3 {_shown(parts.mismatch_k3)}"),
        KeyNumber("part from staleness", parts.stale, _shown(parts.stale),
                  "nats, from updates since then; both parts: KL by k1"),
    ]  # fmt: skip


def _tables(drawn: MismatchedRollouts, measured: OffPolicyFound) -> list[Table]:
    tables = [_table_of_kept(measured.kept)]
    tables += [_table_of_classes(title, *classes) for title, classes in measured.classes.items()]
    if measured.errors is not None and any(map(_known, measured.errors.values())):
        tables.append(_table_of_errors(measured.errors))
    if drawn.versions is not None and len(set(drawn.versions.tolist())) > 1:
        tables.append(_table_of_versions(drawn))
    if measured.pooled is not None:
        tables.append(_table_of_probes(measured.pooled))
    return tables


def _table_of_kept(weights: Mapping[str, KeptWeight]) -> Table:
    header = ("correction", "kept weight", "short", "middle", "long", "ESS/n", "k̂")
    cells = [
        (name, _shown(weight.weight), *(_third(share) for share in weight.thirds or [math.nan] * 3),
         f"{weight.ess:.2f}", number(weight.tail))
        for name, weight in weights.items()
    ]  # fmt: skip
    return Table(
        "What each correction keeps", header, cells,
        "Kept weight: mean coefficient, 1 if nothing is cut; short, middle, long: the same by thirds of "
        "the length. ESS/n of the corrected weights; k̂ of the ratios before the cut.",
    )  # fmt: skip


def _table_of_classes(title: str, names: tuple[str, ...], weights: Mapping[str, tuple[float, ...]]) -> Table:
    rows = [(name, *(number(value) for value in values)) for name, values in weights.items()]
    return Table(
        f"Kept weight by {title}", ("correction", *names), rows,
        "Mean coefficient of the tokens of a class. Compare a cut correction with the uncut ratio "
        "(token_ratio or full), whose mean within a class may differ from 1.", folded=True,
    )  # fmt: skip


def _table_of_errors(errors: Mapping[str, GradientError]) -> Table:
    header = ("correction", "bias²", "90% interval", "variance", "rollouts ÷ none")
    base = errors[NONE.name].need.value
    cells = [
        (name, _shown(error.bias2), f"{number(error.interval[0])} to {number(error.interval[1])}",
         _shown(error.variance),
         number(error.need.value / base))
        for name, error in errors.items()
    ]  # fmt: skip
    some = "" if "token_ratio" in errors else " Corrections of tokens need a model, not the Gram matrix alone."
    return Table(
        "Error of the gradient", header, cells,
        "bias²: of the mean gradient, relative to full weights; variance: of a batch; rollouts ÷ none: "
        "rollouts for a step of the same progress, relative to no correction." + some,
    )  # fmt: skip


def _known(error: GradientError) -> bool:
    """Whether any number of it is known."""
    return any(math.isfinite(estimate.value) for estimate in (error.bias2, error.variance, error.need))


def _table_of_versions(drawn: MismatchedRollouts) -> Table:
    assert drawn.versions is not None
    rows = []
    for version in np.unique(drawn.versions[~np.isnan(drawn.versions)])[::-1]:
        some = np.flatnonzero(drawn.versions == version).tolist()
        logs = [drawn.log_ratios[i] for i in some]
        of_tokens = np.concatenate(logs)
        k3 = float(np.mean(np.expm1(np.minimum(of_tokens, 300.0)) - of_tokens))
        weights = exp(np.array([log.sum() for log in logs]))
        rows.append((f"{version:g}", f"{len(some):,}", number(k3), f"{effective(weights):.2f}"))
    return Table("By version of the sampler's weights", ("version", "rollouts", "KL per token", "ESS/n"), rows)


def _table_of_probes(pooled: PooledProbes) -> Table:
    header = ("step", "steps behind", "prompts", "with a gradient", "KL per token", "ESS/n")
    rows = [
        (f"{step.step:,}", f"{step.lag:.1f}" if math.isfinite(step.lag) else "–", f"{step.prompts}", f"{step.live}",
         number(step.k3), f"{step.ess:.2f}")
        for step in pooled.steps
    ]  # fmt: skip
    return Table("By probe", header, rows, "Step: the one that trained on the rollouts.", folded=True)


def _of_probes(pooled: PooledProbes) -> list[str]:
    """Which probes were pooled, and what changed from the earlier to the later ones."""
    steps, drew = pooled.steps, "another sampler" if pooled.source == "sampler" else "the trainer's own earlier weights"
    prompts, live = sum(step.prompts for step in steps), sum(step.live for step in steps)
    several = f"{len(steps)} probes of steps {steps[0].step:,} to {steps[-1].step:,} pooled"
    of = several if len(steps) > 1 else f"The probe of step {steps[0].step:,}"
    notes = [f"{of}: {prompts:,} prompts, {live:,} of them with unequal rewards; {drew} drew the rollouts."]
    if pooled.left_out:
        notes.append(f"{pooled.left_out} probes of another size or with other rollouts are left out.")
    if pooled.halves is None:
        return [*notes, "Fewer than 4 probes cannot tell whether the distance drifts."]
    before, after = pooled.halves
    went = f"KL per token went from {_shown(before)} in the earlier half of the probes to {_shown(after)} in the later"
    if not pooled.drifts:
        return [*notes, f"{went}: no drift beyond chance."]
    assert pooled.later is not None
    alone = _choice(pooled.later)
    return [*notes, f"{went}: it drifts, and the numbers are means over the run. The later half alone says: {alone}"]


def _notes(drawn: MismatchedRollouts, measured: OffPolicyFound) -> list[str]:
    notes = [] if measured.pooled is None else _of_probes(measured.pooled)
    if drawn.absent:
        tokens = int(drawn.ratios.lengths.sum())
        notes.append(
            f"{drawn.absent:,} of {tokens:,} tokens have a log-probability of NaN; their ratio counts as 1, as in TRL."
        )
    if drawn.versions is not None and np.isnan(drawn.versions).any():
        notes.append(f"{int(np.isnan(drawn.versions).sum()):,} rollouts have no version; they are not in its table.")
    if measured.distance.ess_interval[0] == 0:
        notes.append("ESS/n may be anything below its upper end: a few completions have most of the weight.")
    return notes


def _missing(drawn: MismatchedRollouts, measured: OffPolicyFound) -> list[str]:
    missing = []
    if not drawn.grouped:
        missing.append('Standard errors treat every rollout as its own prompt: add a column "group".')
    if drawn.centred is None:
        missing.append('Corrections by sign need the sign of the advantage: add columns "reward" and "group".')
    if measured.errors is None:
        missing.append("Bias and variance of the gradient need the Gram matrix of scores of these rollouts.")
    return missing


def _document(drawn: MismatchedRollouts, measured: OffPolicyFound) -> dict[str, object]:
    return {
        "rollouts": len(drawn.log_ratios),
        "tokens": int(drawn.ratios.lengths.sum()),
        "absent": drawn.absent,
        "distance": {**asdict(measured.distance), "processed": measured.distance.processed},
        "parts": None if measured.parts is None else asdict(measured.parts),
        "corrections": {name: asdict(weight) for name, weight in measured.kept.items()},
        "classes": {
            title: {"names": names, "weights": weights} for title, (names, weights) in measured.classes.items()
        },
        "tail": measured.k,
        "errors": None if measured.errors is None else {name: _error(error) for name, error in measured.errors.items()},
        "choice": None if measured.choice is None else asdict(measured.choice),
        "pooled": None if measured.pooled is None else asdict(measured.pooled),
    }


def _error(error: GradientError) -> dict[str, object]:
    return {
        "bias2": error.bias2, "interval": error.interval, "told": error.told, "variance": error.variance,
        "need": error.need
    }  # fmt: skip


def _tail(weights: Floats, advantages: Floats, norms: Floats) -> float:
    """k̂ of w ‖A s‖ over the rollouts with a credit; weights and norms ‖s‖ (B,), advantages of any shape of B."""
    sizes = weights * np.abs(advantages.reshape(-1)) * norms
    with np.errstate(divide="ignore"):
        return khat(np.log(sizes[sizes > 0]))


def _error_from_gram(gram: Floats, coefficients: Floats, weights: Floats, advantages: Floats) -> GradientProducts:
    """Products under a correction with one coefficient per rollout, from the Gram (B, B) of scores, prompt-major.

    coefficients, weights (B,): of the rollouts under the correction and in full. advantages (P, G).
    """
    prompts, group = advantages.shape
    shares = advantages.reshape(-1) / group
    scaled, whole = coefficients * shares, weights * shares

    def between(remainder: Floats, right: Floats) -> Floats:
        entries = (remainder[:, None] * gram * right[None]).reshape(prompts, group, prompts, group)
        return np.asarray(entries.sum((1, 3)))

    return GradientProducts(between(scaled, scaled), between(scaled, whole), between(whole, whole))
