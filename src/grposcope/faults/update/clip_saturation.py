"""Too many tokens have no gradient because the clip of the ratio holds them.

Asked as
    The clip ratio is high
What it is
    The policy moves far within a batch, or sampler and trainer disagree before any update.
How it shows
    The late clip fraction is above 0.3 of tokens; or the first update on each batch, in which nothing is clipped, has
    more than twice the gradient of the later ones, in which tokens are. Or above a tenth where the settings have 32
    updates or more on each batch, or take it four times or more and the run lost what it had. In settings: many passes.
What it does to the gradient
    Clipped tokens teach nothing; what remains is the part of the batch that moved least.
What to do
    Fewer updates per batch or a lower learning rate; check that sampler and trainer agree.
What decides
    The clip fraction of the first update of a batch: above 0 there, sampler and trainer disagree.
Sources
    multimodal-search-r1 #19, mini-batches: https://github.com/EvolvingLMMs-Lab/multimodal-search-r1/issues/19
    arXiv:2503.14476 (DAPO), 16 updates on a batch
    method of this project
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from scipy.special import ndtr

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact, measured
from grposcope.core.metrics import VARIANTS
from grposcope.core.run import Floats
from grposcope.core.settings import Settings
from grposcope.core.text import number
from grposcope.faults.known_task import Known
from grposcope.maths.timeseries import level as levels
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs import run_outcome
from grposcope.signs.quantities import SHORT, Quantities, too_few
from grposcope.signs.settings.recipe import interval
from grposcope.signs.settings.verl import ACTOR
from grposcope.signs.tests import least_of

SOME, KEPT = 0.03, 0.5
"""Share of clipped tokens of a row in which the clip may matter, and share of the gradient that is left there."""

WIDER = (
    "compare the clip range in force with 0.2, which is usual, and widen it where it is far below; else use fewer "
    "updates per batch or a lower learning rate"
)
"""What to do where the clip takes most of the gradient of later updates."""

MANY, OUTSIDE = 32, 0.1
"""Updates on one batch that are twice the most of published recipes that this project knows (DAPO: 16), and the share
of tokens that is clipped where they move the policy far."""

FEWER = (
    "use fewer updates per batch: a larger mini-batch (one to sixteen of a batch are usual), one epoch over it; if "
    "memory is why it is small, make micro-batches smaller and not mini-batches"
)
"""What to do where a batch is used for many updates."""

PASSES: Mapping[str, tuple[str, ...]] = {
    "trl": ("num_iterations",),
    "ms-swift": ("num_iterations",),
    "verl": (ACTOR + "ppo_epochs",),
    "skyrl": ("trainer.update_epochs_per_batch",),
    "openrlhf": ("train.max_epochs", "max_epochs"),
    "roll": ("ppo_epochs",),
}
"""Trainer -> its keys for how often each batch of rollouts is gone through."""

OFTEN = 4
"""Passes over a batch from which they may be why a run was lost: recipes have one, few have two or three."""

ONCE = "go through each batch two or three times at most, with a larger batch where that leaves too few updates"
"""What to do where a batch is gone through OFTEN."""

FOLLOWS = ("entropy explosion", "entropy collapse", "gradient explosion", "reward decline", "kl blow-up", "starved",
           "constant reward", "dead after a fall")  # fmt: skip
"""Faults that follow where most updates on a batch are far from the policy that drew it."""

HELD = 0.3
"""Share of tokens held by the clip that is too much."""


def _check(quantities: Quantities) -> Finding:
    """The late share of tokens held by the clip, both sides, above HELD."""
    both = quantities.get("clip_fraction", SHORT)
    low, high = quantities.run.table.get("clip_low"), quantities.run.table.get("clip_high")
    values = both.values if both is not None else low + high if low is not None and high is not None else None
    values = values[np.isfinite(values)] if values is not None else None
    if values is None or len(values) < SHORT:
        rows = max((len(series) for name in VARIANTS["clip"] if (series := quantities.column(name))), default=0)
        because = too_few(rows, "clip fraction", SHORT) if rows else "no clip fraction is logged"
        return cannot_tell(because, *(() if rows else ("clip_fraction",)))
    over = levels.level(values, LATE, HELD)
    share = over.value + HELD
    column = both.name if both is not None else "clip_high"
    evidence = (Sign(f"clip fraction, last {1 - LATE[0]:.0%}", share, over.se, f"limit {HELD:g}", column),)
    because = f"{share:.1%} of tokens are clipped"
    before = levels.level(values, EARLY, OUTSIDE).value > 0  # not by what became of the policy
    held = measured(over.p_up, because, evidence, brief=because, explains=FOLLOWS if before else ())
    return least_of([held, _takes_the_gradient(quantities, values), _by_many_updates(quantities, values, column)])


def _by_many_updates(quantities: Quantities, clipped: Floats, column: str) -> Finding:
    """By the settings each batch is used for MANY updates or more, and a share of tokens above OUTSIDE ends clipped."""
    asked = quantities.run.asked
    steps = None if asked is None else interval(asked.settings, None)
    over = levels.level(clipped, LATE, OUTSIDE)
    often = asked is not None and _passes(asked.settings)[1] >= OFTEN
    lost = often and run_outcome.of_run(quantities.run).direction == "down"
    if steps is None or (steps < MANY and not lost):
        return measured(1.0, "no settings say that a batch is used for many updates")
    share = over.value + OUTSIDE
    evidence = (Sign(f"clip fraction, last {1 - LATE[0]:.0%}", share, over.se, f"limit {OUTSIDE:g}", column),)
    because = (
        f"{share:.1%} of tokens are clipped, and by the settings each batch of rollouts is used for {steps:,} updates: "
        "the later ones are taken far from the policy that drew it"
    )
    brief = f"{share:.0%} of tokens clipped, at {steps:,} updates on each batch"
    remedy = ONCE if lost else FEWER
    return measured(over.p_up, because, evidence, brief=brief, remedy=remedy, explains=FOLLOWS)


def _passes(config: Settings) -> tuple[str, int]:
    """The key of how often a batch of rollouts is gone through, and its value; 1 where it is not known."""
    keys = PASSES.get(config.dialect.name, ())
    return next(((key, passes) for key in keys if (passes := config.whole(key))), ("", 1))


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """OFTEN passes or more over each batch."""
    key, passes = _passes(config)
    if passes < OFTEN:
        return
    yield fact(
        True,
        f"each batch of rollouts is gone through {passes} times: the later passes are taken ever farther from the "
        "policy that drew it, and a ratio that has left the clip range is not pulled back",
        config.signs(key),
        grade="note",
        brief=f"{passes} passes over each batch",
        remedy=ONCE,
        explains=("kl blow-up", "entropy explosion", "gradient explosion"),
    )


def _takes_the_gradient(quantities: Quantities, clipped: Floats) -> Finding:
    """Rows in which tokens are clipped have less than KEPT of the gradient of those in which none is."""
    norm = quantities.column("grad_norm")
    if norm is None or len(norm) != len(clipped) or not (norm.values > 0).all():
        return measured(1.0, "no row shows what the clip does to the gradient")
    none, some = norm.values[clipped == 0], norm.values[clipped >= SOME]
    if min(len(none), len(some)) < SHORT:
        return measured(1.0, "too few rows without clipped tokens, or with them")
    first, last = (float(np.median(values)) for values in (none, some))
    share, key = float(np.median(clipped[clipped >= SOME])), quantities.key(norm.name)
    error = float(np.sqrt(sum(np.var(np.log(values), ddof=1) / len(values) for values in (none, some))))
    gap = float(np.mean(np.log(some)) - np.mean(np.log(none))) - float(np.log(KEPT))
    because = (
        f"{key} is {number(first)} in the {len(none)} rows in which no token is clipped and {number(last)} in the "
        f"{len(some)} in which {share:.0%} are: the clip takes most of the gradient of later updates on a batch"
    )
    evidence = (Sign("gradient norm with clipped tokens over that without", last / first, limit=f"{KEPT:g}"),)
    brief = f"{key} {number(first)} → {number(last)} where {share:.0%} of tokens are clipped"
    return measured(float(ndtr(gap / max(error, 1e-9))), because, evidence, brief=brief, remedy=WIDER)


FAULT = Fault(
    name="clip saturation",
    rank=190,
    remedy="use fewer updates per batch or a lower learning rate; check that sampler and trainer agree",
    effect="clipped tokens teach nothing",
    log=LogTest(
        "clip saturation",
        _check,
        needs=("clip_fraction",),
        statistic="late clip fraction − limit; gradient norm of rows with clipped tokens over that of rows without",
        threshold=f"> {HELD:g} of tokens; > {OUTSIDE:g} where the settings have {MANY} updates on a batch or more, or "
        f"{OFTEN} passes or more and the run fell; or "
        f"< {KEPT:g} where {SOME:g} of tokens or more are clipped",
        limit=True,
    ),
    settings=SettingsCheck(
        "clip saturation", _settings, tuple(PASSES), "many passes over each batch of rollouts", ("note",)
    ),
)
