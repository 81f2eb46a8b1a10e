"""The probes of a run: when they are due, and what of a batch they measure.

A probe is of what the update sees: the rollouts of the policy μ that drew them, at the weights π right before the step.
The geometry is that of the update's own gradient, with its coefficients and ratios. The off-policy probe compares
corrections of the ratio π/μ: where μ is another policy at once (rounded, truncated or earlier weights), when the batch
is fresh; else, with an interval above 1, when the batch is used for the last time, so that π is furthest from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.instruments import has
from grposcope.lab.rollout_batch import RolloutBatch, rows_of_groups
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.setup import Setup
from grposcope.lab.train.stale_weights import Staleness
from grposcope.lab.train.update import TokenTerms

if TYPE_CHECKING:
    from grposcope.instruments.gradient.probe import Probe

CHECKED = 10
"""One probe in CHECKED, beginning with the first, compares its gradient with autograd's."""


def due(config: TrainConfig, step: int) -> bool:
    """Whether a batch is fresh at `step` and used at one of the steps 1, 1 + K, 1 + 2K, … (K = `probe_every`)."""
    every, fresh = config.probe_every, (step - 1) % config.interval == 0
    return bool(every) and fresh and (1 - step) % every < config.interval


def offpolicy_due(config: TrainConfig, step: int) -> bool:
    """Whether the rollouts of `step`, of a batch that is probed, are furthest from the weights that train on them."""
    if _of_another_sampler(config):
        return due(config, step)
    return config.interval > 1 and step % config.interval == 0 and due(config, step - config.interval + 1)


def _of_another_sampler(config: TrainConfig) -> bool:
    """Whether fresh rollouts carry the log-probabilities of another policy than that of the current weights."""
    stale = Staleness.parse(config.staleness).most > 0
    return stale or config.correction is not None or config.sampler_precision != "float32"


def _checked(config: TrainConfig, step: int) -> bool:
    """Whether a probe at `step` is compared with autograd."""
    return (step - 1) // config.probe_every % CHECKED == 0


@dataclass(frozen=True)
class _UpdateTerms:
    """What the update of a batch multiplies: credit, a source or advantages (B, T), and log π/π_old (B, T) or None.

    own: whether the current weights drew the rollouts.
    """

    credit: str | Tensor
    log_ratio: Tensor | None
    own: bool

    def rows(self, which: Tensor) -> _UpdateTerms:
        """Those of some rollouts."""
        credit = self.credit if isinstance(self.credit, str) else self.credit[which]
        return _UpdateTerms(credit, None if self.log_ratio is None else self.log_ratio[which], self.own)


def of_update(setup: Setup, rollouts: RolloutBatch, terms: TokenTerms) -> _UpdateTerms:
    """The terms of the coming update on a fresh batch; those of the current weights' own rollouts have no ratio."""
    config = setup.config
    if not _of_another_sampler(config):
        return _UpdateTerms(config.credit if config.constraint is None else terms.credit, None, True)
    now = terms.trainer
    if now is None:  # a rounded sampler without a correction
        now = frozen_logprobs(setup.policy.model, rollouts, config.temperature, setup.micro_batch)
    log_ratio = None if terms.old is None or terms.old is now else (now.double() - terms.old.double())
    return _UpdateTerms(terms.credit, log_ratio, False)


def geometry(
    setup: Setup,
    step: int,
    rollouts: RolloutBatch,
    terms: _UpdateTerms,
    lr: float,
    keep: Callable[[Probe, Tensor], None] = lambda measured, rows: None,
) -> dict[str, float]:
    """Metrics `geometry/…` of a fresh batch; UserError as from `step_metrics`, and where every group lost a rollout.

    keep: called with the probe, if there is one, and the rollouts of the batch that it is of.
    """
    from grposcope.instruments.gradient import per_step

    config = setup.config
    whole = (~rollouts.rewards.isnan()).all(-1).nonzero()[:, 0]  # no rollout was dropped
    own = rows_of_groups(whole, rollouts.groups[1])
    if not len(whole):
        raise UserError("every group has lost a rollout whose reward failed")
    if len(whole) < len(rollouts.rewards):
        rollouts, terms = rollouts.take(whole), terms.rows(own)
    return per_step.step_metrics(
        setup.policy.model,
        rollouts,
        setup.objective,
        prompts=config.probe_prompts,
        temperature=config.temperature,
        seed=config.seed,
        credit=terms.credit,
        learning_rate=lr,
        check=_checked(config, step),
        own=terms.own,
        log_ratio=terms.log_ratio,
        keep=lambda measured, rows: keep(measured, own[rows]),
    )


def components(
    setup: Setup,
    step: int,
    rollouts: RolloutBatch,
    credit: Tensor,
    penalties: Mapping[str, Tensor],
    measured: Probe,
    rows: Tensor,
    folder: Path,
) -> None:
    """Write what each reward and constraint moves, where there are several and a probe of the update's own rollouts.

    credit (B, T) of the batch, in which the penalties of the constraints are contained; measured: of its `rows`.
    """
    task = setup.task
    names, weights = (task.components, task.weights) if task.components else (("reward",), (1.0,))
    if not has("rewards") or len(names) + len(penalties) < 2 or _of_another_sampler(setup.config):
        return
    from grposcope.instruments.rewards import probe_file, probing

    rewards = list(zip(names, weights, strict=True))
    probe = probing.measure(step, rollouts, setup.objective, rewards, credit, penalties, measured.gram, rows)
    if probe is not None:
        probe_file.write(folder, probe)


def offpolicy(setup: Setup, step: int, rollouts: RolloutBatch, old: Tensor | None, folder: Path) -> None:
    """Measure the first `probe_prompts` groups of a batch under every correction, and write what pooling needs.

    old (B, T): log-probabilities of the weights when the batch was fresh, where these drew it. UserError as from a
    probe, and where too many groups lost rollouts.
    """
    if not has("gradient") or not has("offpolicy"):
        return
    from grposcope.instruments.offpolicy import probe_file, probing

    config = setup.config
    source: probe_file.Source = "sampler" if _of_another_sampler(config) else "earlier"
    if source == "earlier" and old is not None:
        rollouts = probing.drawn_by(rollouts, old, step - config.interval)
    few = probing.whole_groups(rollouts, min(config.probe_prompts, config.prompts))
    if few is None:
        raise UserError("too many groups have lost a rollout whose reward failed")
    drawn, measured = probing.measure(
        setup.policy.model, few, step, micro_batch=setup.micro_batch, temperature=config.temperature,
        own=config.corrected(), check=_checked(config, step),
    )  # fmt: skip
    prompts = config.prompts // config.minibatches
    probe = probe_file.OffPolicyProbe(step, prompts, source, drawn, measured.products, measured.norms)
    probe_file.write(folder, probe)
