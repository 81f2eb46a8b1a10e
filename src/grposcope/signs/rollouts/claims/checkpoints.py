"""Which checkpoint wrote the rollouts: likelihood ratios between checkpoints, over all rollouts in the order drawn.

The null hypothesis is that each row was drawn by the checkpoint that should have. An alternative says of every row
which other one did: the one so many checkpoints before (lag), or the same one from some point on (frozen). Its
likelihood ratio over drawn tokens is a martingale under the null hypothesis; the mixture over all alternatives is an
e-value, so that p needs no approximation and no further correction for the number of checkpoints (`maths.evalues`). A
sampler's rounding widens the null by `SamplerNumerics.widening`, with the mean square of the log ratios of all earlier
rows. That takes checkpoints that were fixed before the rows were drawn: one that was trained on these rows makes them
likelier whoever drew them, so that its ratio is no martingale, and only recorded log-probabilities speak for it.

Where the sampler's log-probabilities were recorded they say more: those of the writer differ from them by rounding
alone, which knows nothing of the other checkpoints. So the squared distance to the stated checkpoint, less that to
another, has the mean −Δ² per token if the stated one drew and +Δ² if the other did, Δ² the mean square of their
difference; p by Student's t over groups, times the number of alternatives.

The likelihood ratio grows by KL(writer‖stated) per rollout: what is too near to be told is not told. Rollouts that were
filtered by what they turned out to be are no draw of any checkpoint, and nothing is said of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.run import Floats, Ints
from grposcope.core.text import percent
from grposcope.maths import evalues
from grposcope.signs.rollouts import coverage, drawn_tokens, numerics
from grposcope.signs.rollouts.claims import weights
from grposcope.signs.rollouts.drawn_tokens import RowTokens, factors
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import by_chance

FAR = 0.05
"""p from which on alternatives that could not have been seen are not told at all."""


@dataclass(frozen=True)
class WriterPath:
    """Who wrote each row, by one alternative. kind: "lag", "ahead", "frozen" or "scale"; number: of checkpoints, or
    which one, or the place of the factor on the adapters.

    writers (R,): a place among the checkpoints for each row; of a scale, behind all of them. trained: whether these
    may have been trained on the rows.
    """

    kind: str
    number: int
    writers: Ints
    trained: bool = False


def paths(
    stated: Ints, checkpoints: int, candidates: Sequence[int] = (), trained: Sequence[int] = ()
) -> list[WriterPath]:
    """The alternatives for rows (R,) that `stated` checkpoints should have drawn; candidates: those without a step.

    trained: those of the candidates that may have been trained on the rows.
    Where two say the same of all rows the first is kept: a sampler that kept the first weights lags by all steps.
    """
    stepped = [number for number in range(checkpoints) if number not in candidates]
    writers = [WriterPath("frozen", number, np.minimum(stated, number)) for number in stepped[:-1]]
    writers += [WriterPath("frozen", number, np.full(len(stated), number), number in trained) for number in candidates]
    for lag in range(1, len(stepped)):
        writers.append(WriterPath("lag", lag, np.maximum(stated - lag, stepped[0])))
    if len(stepped) > 1:
        writers.append(WriterPath("ahead", 1, np.minimum(stated + 1, stepped[-1]), trained=True))
    distinct: dict[bytes, WriterPath] = {}
    for writer in writers:
        if (writer.writers != stated).any():
            distinct.setdefault(writer.writers.tobytes(), writer)
    return list(distinct.values())


def log_likelihoods(evidence: PipelineEvidence, rows: Sequence[RowTokens]) -> tuple[Floats, Floats]:
    """Σ log π of the drawn tokens by checkpoint and row (C, R), and Σ of squared differences from the stated one.

    Behind the checkpoints follow the stated one with its adapters at each of `factors`. NaN where a checkpoint did not
    score a token.
    """
    sums = np.zeros((len(evidence.scored) + len(drawn_tokens.factors(evidence, rows)), len(rows)))
    squares = np.zeros_like(sums)
    for column, row in enumerate(rows):
        own = evidence.scored[row.checkpoint].logp[row.place][row.kept]
        for number in range(len(sums)):
            logp = _logp_of(evidence, rows, row, number)
            sums[number, column], squares[number, column] = logp.sum(), ((logp - own) ** 2).sum()
    return sums, squares


def ratios(
    sums: Floats, squares: Floats, tokens: Floats, stated: Ints, path: WriterPath, allowed: numerics.SamplerNumerics
) -> Floats:
    """Log likelihood ratio of a path against the stated checkpoints for each row (R,), widened by the numerics."""
    every = np.arange(len(stated))
    plain = sums[path.writers, every] - sums[stated, every]
    moved = path.writers != stated
    spread2, counted = np.where(moved, squares[path.writers, every], 0.0), np.where(moved, tokens, 0.0)
    before = np.cumsum(spread2) - spread2, np.cumsum(counted) - counted  # of earlier rows only
    positive = before[1] > 0
    spread = np.sqrt(np.divide(before[0], before[1], out=np.zeros(len(stated)), where=positive))
    return np.where(moved & positive, plain - tokens * allowed.widening(spread), 0.0)


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """The mixture of all alternatives against the stated checkpoints."""
    rows = drawn_tokens.rows_of(evidence)
    reason = drawn_tokens.lacking(evidence, rows) or drawn_tokens.selection(evidence)
    scales = drawn_tokens.factors(evidence, rows)
    if not reason and len(evidence.scored) < 2 and not scales:
        reason = "Only one checkpoint was given; give earlier ones too, for comparison."
    if reason:
        yield cannot_tell(reason)
        return
    stated = np.array([row.checkpoint for row in rows])
    without_step = [
        number for number, scored in enumerate(evidence.scored) if scored.step is None and number not in set(stated)
    ]
    trained = [number for number in without_step if not evidence.scored[number].untrained]
    alternatives = paths(stated, len(evidence.scored), without_step, trained)
    behind = len(evidence.scored)
    alternatives += [WriterPath("scale", k, np.full(len(stated), behind + k)) for k in range(len(scales))]
    if not alternatives:
        yield cannot_tell(
            "All of these rollouts should come from the first checkpoint, so there is none to compare it with; "
            "give rollouts of later steps, or other checkpoints."
        )
        return
    recorded = _by_recorded(evidence, rows, alternatives)
    alternatives = [path for path in alternatives if not path.trained]
    if not alternatives:
        yield recorded or cannot_tell(
            "The other checkpoints may have been trained on these rollouts, which makes them likelier whoever drew "
            "them; log the sampler's log-probabilities, or give earlier checkpoints with their steps."
        )
        return
    allowed, tokens = numerics.of(evidence.stated.precision), np.array([float(row.kept.sum()) for row in rows])
    sums, squares = log_likelihoods(evidence, rows)
    increments = np.stack([ratios(sums, squares, tokens, stated, path, allowed) for path in alternatives])
    seen = evalues.mixture(increments)
    path = alternatives[seen.best]
    expected = np.array([_expected(alternative, stated, squares, tokens, allowed) for alternative in alternatives])
    visible = int((expected > math.log(20 * len(alternatives))).sum())
    if recorded is None and not visible and seen.p > FAR:
        yield cannot_tell(
            f"The tokens of {len(rows):,} rollouts cannot tell the checkpoints apart: the most different one "
            f"gives {max(0.0, expected.max()):.2g} nats of evidence, and "
            f"{math.log(20 * len(alternatives)):.2g} are needed; give more rollouts, or log the sampler's "
            "log-probabilities."
        )
    elif visible or seen.p <= FAR:
        test_of_path = _test(
            evidence, rows, path, increments[seen.best], sums, stated, seen.p, (visible, len(alternatives))
        )
        yield replace(test_of_path, explains=OF_OTHERS)
    if recorded is not None:
        yield recorded


def _test(
    evidence: PipelineEvidence, rows: Sequence[RowTokens], path: WriterPath, increments: Floats, sums: Floats,
    stated: Ints, p: float, visible: tuple[int, int],
) -> Finding:  # fmt: skip
    """The test of tokens. increments (R,): of the path; visible: alternatives that would be seen, of how many."""
    moved = path.writers != stated
    plain = (sums[path.writers, np.arange(len(stated))] - sums[stated, np.arange(len(stated))])[moved]
    per_rollout = float(np.nanmean(plain))
    first = int(np.flatnonzero(moved)[evalues.began(increments[moved])])
    return by_chance(
        fault=_fault(evidence, path),
        brief=BRIEF[path.kind],
        broken=True,
        evidence=(
            f"{_said(evidence, path, rows)}: under those weights the tokens of {int(moved.sum()):,} rollouts "
            f"are {np.nansum(plain):,.1f} nats likelier than under the checkpoints that should have drawn them"
            f"{_by_step(evidence, sums, rows)}"
        ),
        held=(
            f"No other assignment of {_counted(evidence)} to "
            f"{coverage.share(len(rows), len(evidence.rows), 'no scored token')} is likelier; {visible[0]} of "
            f"{visible[1]} alternatives differ enough to be detected."
        ),
        effect=(
            f"On average a rollout is {per_rollout:.3g} nats from the policy being trained, so about "
            f"{percent(drawn_tokens.relative_error(per_rollout))} of the gradient does not come from the stated loss."
        ),
        remedy=_remedy(path),
        p=p,
        onset=evidence.rows[rows[first].place].step if len(evidence.steps) > 1 else None,
    )


def _counted(evidence: PipelineEvidence) -> str:
    """The checkpoints, in a few words."""
    count = len(evidence.scored)
    scales = " and scales of adapters" if any(checkpoint.at_scale for checkpoint in evidence.scored) else ""
    return f"{count} checkpoint{'s' * (count != 1)}{scales}"


def _expected(
    path: WriterPath, stated: Ints, squares: Floats, tokens: Floats, allowed: numerics.SamplerNumerics
) -> float:
    """Nats that the path would gain if it were true: half of the squared log ratios, less the widening."""
    every, moved = np.arange(len(stated)), path.writers != stated
    squared, counted = squares[path.writers, every][moved].sum(), tokens[moved].sum()
    if not squared > 0:
        return 0.0
    return float(0.5 * squared - counted * allowed.widening(np.sqrt(squared / counted)))


def _by_recorded(
    evidence: PipelineEvidence, rows: Sequence[RowTokens], alternatives: Sequence[WriterPath]
) -> Finding | None:
    """Whether recorded log-probabilities are nearer to an alternative's checkpoints; None where none are recorded."""
    own = {row.place: row for row in weights.recorded(evidence, rows, "sampler")}
    if not own:
        return None
    best: tuple[float, float, WriterPath] | None = None
    largest = 0.0
    for path in alternatives:
        values, groups = [], []
        for row, writer in zip(rows, path.writers, strict=True):
            if row.place not in own or writer == row.checkpoint:
                continue
            tokens = own[row.place]
            other = _logp_of(evidence, rows, replace(row, kept=tokens.kept), int(writer))
            values.append((tokens.logp - tokens.recorded) ** 2 - (other - tokens.recorded) ** 2)
            largest = max(largest, float(np.mean((other - tokens.logp) ** 2)))
            groups.append(weights.group_name(evidence, row.place))
        if not values:
            continue
        mean = weights.mean_of(values, groups)
        if not mean.freedom:
            continue  # one token, of which no error can be taken
        p = mean.p_above(0.0)
        if best is None or (p, -mean.value) < (best[0], -best[1]):
            best = (p, mean.value, path)
    if best is None or not largest:
        return None
    p, value, path = best
    return by_chance(
        fault=_fault(evidence, path),
        brief=BRIEF[path.kind],
        broken=value > 0,
        evidence=(
            f"{_said(evidence, path, rows)}: the recorded log-probabilities match these weights more closely "
            "than the checkpoints that should have drawn the rollouts"
        ),
        held=(
            f"The recorded log-probabilities match the expected checkpoints best; other checkpoints "
            f"differ by up to {math.sqrt(largest):.2g} nats per token."
        ),
        effect="The rollouts come from a policy other than the one being trained.",
        remedy=_remedy(path),
        p=min(1.0, p * len(alternatives)),
        onset=None,
    )


def _logp_of(evidence: PipelineEvidence, rows: Sequence[RowTokens], row: RowTokens, writer: int) -> Floats:
    """log π of the drawn tokens of a row under a writer: a checkpoint, or behind them the row's own at a factor."""
    if writer < len(evidence.scored):
        return np.asarray(evidence.scored[writer].logp[row.place][row.kept])
    factor = factors(evidence, rows)[writer - len(evidence.scored)]
    return np.asarray(evidence.scored[row.checkpoint].at_scale[factor][row.place][row.kept])


OF_OTHERS = ("unlikely tokens", "sampler temperature differs")
"""Faults that tokens of other weights look like."""

BRIEF: Mapping[str, str] = {
    "lag": "sampler behind by a fixed number of checkpoints",
    "ahead": "rollouts of the checkpoint after the expected one",
    "frozen": "sampler that kept one checkpoint",
    "scale": "adapters at another scale",
}
"""Kind of a path -> what is wrong, in a few words."""


def _fault(evidence: PipelineEvidence, path: WriterPath) -> str:
    """The fault of a path: a sampler that kept the first weights never got any, one that kept later ones got some."""
    if path.kind == "scale":
        return SCALED if _factor(evidence, path) else "weights never arrived"
    if path.kind != "frozen":
        return "stale sampler" if path.kind == "lag" else "step numbers differ"
    first = path.number == 0 or evidence.scored[path.number].step is None
    return "weights never arrived" if first else "wrong weights at the sampler"


SCALED = "adapters at another scale"
"""Name of the fault."""


def _factor(evidence: PipelineEvidence, path: WriterPath) -> float:
    """The factor on the adapters of a path of the kind "scale"."""
    each = [set(scored.at_scale) for scored in evidence.scored if scored.at_scale]
    return sorted(set.intersection(*each))[path.number]


def _said(evidence: PipelineEvidence, path: WriterPath, rows: Sequence[RowTokens]) -> str:
    if path.kind == "scale" and not _factor(evidence, path):
        return "The rollouts were drawn without the adapters"
    if path.kind == "scale":
        return f"The rollouts were drawn with the adapters at about {_factor(evidence, path):g} times their scale"
    if path.kind == "frozen" and len(evidence.steps) < 2:
        return f"The rollouts were drawn by {evidence.scored[path.number].name}"
    if path.kind == "frozen":
        checkpoint = evidence.scored[path.number]
        earlier = ", or earlier ones, of which none is at hand" if path.number == 0 and checkpoint.step else ""
        return f"The sampler kept the weights of {checkpoint.name}{earlier}"
    if path.kind == "ahead":
        return "The rollouts were drawn by the checkpoint after the expected one"
    by = {
        evidence.scored[int(stated)].step or 0: (evidence.scored[int(stated)].step or 0)
        - (evidence.scored[int(writer)].step or 0)
        for row, writer in zip(rows, path.writers, strict=True)
        if (stated := row.checkpoint) != writer
    }
    steps = sorted(set(by.values()))
    shown = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
    return f"The sampler was {shown} {'step' if shown == '1' else 'steps'} behind"


def _by_step(evidence: PipelineEvidence, sums: Floats, rows: Sequence[RowTokens]) -> str:
    """Which checkpoint fits each step's rollouts best, as a clause, where there are few steps."""
    steps = sorted({evidence.rows[row.place].step for row in rows})
    if len(steps) < 2:
        return ""
    best = []
    for step in steps[:6]:
        own = [column for column, row in enumerate(rows) if evidence.rows[row.place].step == step]
        best.append(f"{step}: {evidence.scored[int(sums[: len(evidence.scored), own].sum(1).argmax())].name}")
    return f" (best fit by step: {', '.join(best)}{', …' if len(steps) > 6 else ''})"


def _remedy(path: WriterPath) -> str:
    if path.kind == "scale":
        return "Compare alpha and rank, and so the scale α/r, of the sampler's copy of the adapters with the trainer's."
    if path.kind == "ahead":
        return "Check whether the log and the checkpoints count steps from the same number."
    if path.kind == "frozen":
        return "Check that the sampler loads new weights: compare its weights with the trainer's after a step."
    return "Send the trainer's weights to the sampler before it draws, or state the lag and correct for it."


PROOF = Proof(
    "checkpoints",
    "The expected checkpoint drew each rollout",
    "token ids of all rollouts in the order drawn, and several checkpoints",
    _tests,
)
