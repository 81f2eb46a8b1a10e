"""Several updates on one batch without a bound on the ratio of rollouts that are punished.

Asked as
    The gradient norm spikes late in the run
What it is
    The clip min(ρA, clip(ρ)A) has no upper bound where A < 0: a token that became many times likelier between two
    updates on one batch has a weight as large as its ratio. verl's dual clip and TRL's delta bound it.
How it shows
    Spikes of the gradient norm while tokens are clipped, which takes several updates per batch; more of both as the
    policy sharpens. In settings: several passes, and no delta.
What it does to the gradient
    One token outweighs the batch. The norm is clipped afterwards, so that what is left is the direction of that token.
What to do
    Set a two-sided clip: delta = 2 or so (TRL; above 1 + epsilon), clip_ratio_c = 3 (verl); fewer updates per batch.
What decides
    The largest ratio of the batch of a spike, and the sign of its advantage.
Sources
    TRL #2980: https://github.com/huggingface/trl/issues/2980
    TRL #3434: https://github.com/huggingface/trl/pull/3434
    arXiv:2505.07291 (INTELLECT-2), two-sided clipping
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.gradient_norms import TEST, TWO_SIDED
from grposcope.signs.settings.recipe import interval

CLIPPED = ("grpo", "dapo", "dr_grpo", "bnpo", "luspo")
"""Losses of TRL and ms-swift with the clip of PPO, which delta bounds."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Several updates on a batch, and no delta."""
    several, loss = interval(config, facts.world) or 1, config.get("loss_type")
    if several < 2 or config.says("delta") or (loss is not None and loss not in CLIPPED):
        return
    if config.get("importance_sampling_level") not in (None, "token"):
        return  # the ratio is that of a completion
    yield fact(
        True,
        f"each batch is used for {several} steps without delta: where the advantage is negative the ratio of a token "
        "has no upper bound, so that one token may outweigh a batch",
        config.signs("num_iterations", "steps_per_generation", "epsilon"),
        grade="note" if several < MANY else "warning",
        explains=("gradient explosion", "gradient spikes"),
        brief="ratios without an upper bound",
        remedy=TWO_SIDED,
    )


MANY = 4
"""Updates on a batch from which the ratio goes far enough to be worth a warning: as in the reports."""

FAULT = Fault(
    name="unbounded ratio",
    rank=175,
    remedy=TWO_SIDED,
    effect="norms are clipped afterwards, so that these steps follow single tokens",
    instead="warning",
    log=TEST,
    settings=SettingsCheck(
        "unbounded ratio",
        _settings,
        ("trl", "ms-swift"),
        "several updates on a batch without a bound on the ratio where the advantage is negative",
        ("warning", "note"),
    ),
)
