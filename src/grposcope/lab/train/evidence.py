"""The evidence of a batch of our loop, every `verify_every` steps, for the claims of `grposcope verify`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.credit import chosen
from grposcope.lab.objectives import advantages, ratios, reductions
from grposcope.lab.objectives.surrogates import Cispo, Clip, OneSided, Reinforce
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import Batch, stop_of, turn_anchors, turn_rewards
from grposcope.lab.train.setup import Setup
from grposcope.lab.train.step_meter import StepMeter
from grposcope.lab.train.update import TokenTerms, Update

if TYPE_CHECKING:
    from grposcope.core.rollouts import Rollout
    from grposcope.instruments.verify.in_training import TrainingVerifier
    from grposcope.signs.rollouts.evidence import OptimizerEvidence, ScoredTokens, Stated
    from grposcope.signs.rollouts.stated_loss import StatedLoss

TASK, OVERLONG = "task", "overlong"
"""Names of the two rewards: the task's, and the penalty for length where the recipe has one."""


def due(every: int, step: int, interval: int) -> bool:
    """Whether the evidence of a batch that is fresh at `step` is kept, as the instrument decides."""
    from grposcope.instruments.verify import in_training

    return in_training.due(every, step, interval)


def verifier(folder: Path, setup: Setup, done: int) -> TrainingVerifier:
    """What writes and judges the batches of the run in `folder`, which has `done` steps."""
    from grposcope.instruments.verify.in_training import TrainingVerifier

    return TrainingVerifier(folder, _stated(setup), done, filtered=setup.objective.resample_dead)


def _stated(setup: Setup) -> Stated:
    """What the settings of a run state."""
    from grposcope.signs.rollouts.evidence import Stated
    from grposcope.signs.rollouts.pipeline_settings import own_schedule

    config, objective = setup.config, setup.objective
    plain = chosen(config.credit).source.whole and config.correction is None and setup.critic is None
    weights = {TASK: 1.0, OVERLONG: 1.0} if objective.overlong else {TASK: 1.0}
    return own_schedule(Stated(
        group=0 if config.auto_group else config.group,
        **(_compared(objective.advantage) if plain else {}),
        weights=weights,
        temperature=config.temperature,
        top_k=config.top_k or None,
        top_p=config.top_p,
        limit=setup.sampling.max_tokens,
        ends=tuple(setup.policy.eos.reshape(-1).tolist()),
        pad=setup.policy.pad,
        masks_truncated=False,
        training=str(setup.policy.model.dtype).removeprefix("torch."),
        iterations=config.interval // config.minibatches,
        accumulation=1,
        learning_rate=setup.lr,
        schedule=config.schedule,
        kl=objective.kl,
        warmup=config.warmup,
        updates=config.steps,
        loss=_loss(setup),
        reference="start",
        clip=config.clip_grad,
        beta2=config.beta2 if config.optimizer != "sgd" else None,
        decay=config.weight_decay if config.optimizer == "adamw" else None,
        interval=config.interval,
        **_order(setup),
    ))  # fmt: skip


def _order(setup: Setup) -> dict[str, Any]:
    """Prompts of an epoch and of a batch, where they are drawn in turn and no two are equal."""
    in_turn = setup.config.allocate == "uniform" and not setup.objective.resample_dead and not setup.config.auto_group
    different = len({problem.prompt for problem in setup.train_set}) == len(setup.train_set)
    return {"data": len(setup.train_set), "prompts": setup.config.prompts} if in_turn and different else {}


SURROGATES: Mapping[type, str] = {Clip: "clip", Cispo: "weighted", OneSided: "one-sided", Reinforce: "plain"}
"""Our surrogates -> what is stated of them."""

REDUCTIONS: Mapping[Any, str] = {
    reductions.sequence_mean: "sequence mean", reductions.token_mean: "token mean",
    reductions.constant_length: "constant length", reductions.sequence_sum: "sequence sum",
}  # fmt: skip
"""Our reductions -> what is stated of them."""

RATIOS: Mapping[Any, str] = {ratios.token: "token", ratios.sequence: "sequence", ratios.none: "none"}
"""Our ratios -> what is stated of them."""


def _loss(setup: Setup) -> StatedLoss | None:
    """What is stated of the loss; None for one that has no words for it: a term to the old policy, groups that weigh
    differently, weights that a critic's warm-up holds at 0."""
    from grposcope.signs.rollouts.stated_loss import StatedLoss

    config, objective = setup.config, setup.objective
    plain = objective.reduction.func if isinstance(objective.reduction, partial) else objective.reduction
    kinds = SURROGATES.get(type(objective.surrogate)), REDUCTIONS.get(plain), RATIOS.get(objective.ratio)
    kind, reduction, ratio = kinds
    if kind is None or reduction is None or ratio is None or objective.proximal or config.allocate != "uniform":
        return None
    length = objective.reduction.keywords.get("length", 0) if isinstance(objective.reduction, partial) else 0
    if reduction == "constant length" and not length:
        return None
    drawn = config.correction is None and (setup.stale is not None or config.sampler_precision != "float32")
    return StatedLoss(
        surrogate=kind,
        ratio=ratio,
        low=float(getattr(objective.surrogate, "low", 0.0)),
        high=float(getattr(objective.surrogate, "high", 0.0)),
        bound=float(getattr(objective.surrogate, "bound", None) or 0.0),
        reduction=reduction,
        length=int(length),
        divergence=objective.divergence.__name__,
        kl_weighted=objective.kl_weighted,
        entropy=objective.entropy,
        counted="all",
        old="sampler" if drawn else "trainer",
    )


def metered(optimizer: torch.optim.Optimizer) -> StepMeter | None:
    """What measures the steps of Adam; None for another optimiser."""
    kinds = torch.optim.Adam, torch.optim.AdamW
    return StepMeter(optimizer, lambda: float("nan")) if isinstance(optimizer, kinds) else None


def optimizer_state(
    optimizer: torch.optim.Optimizer, step: int, lr: float = float("nan"), meter: StepMeter | None = None
) -> OptimizerEvidence | None:
    """What the state of Adam says after `step`; None for an optimiser that keeps no second moment. meter: of its steps,
    to which the schedule gave the rate `lr`."""
    from grposcope.signs.rollouts.evidence import OptimizerEvidence

    states = [state for state in optimizer.state.values() if "exp_avg_sq" in state]
    if not states:
        return OptimizerEvidence(step, 0.0, 0.0, lr) if isinstance(optimizer, torch.optim.Adam) else None
    counts = [float(state["step"]) for state in states if "step" in state]
    second = sum(float(state["exp_avg_sq"].sum()) for state in states)
    updates = min(counts, default=float("nan"))
    if meter is None:
        return OptimizerEvidence(step, updates, second, lr)
    return OptimizerEvidence(step, updates, second, lr, "", meter.rate, meter.decay, lr)


SCORED = 64
"""Rollouts of a batch that are scored under the weights that drew them: the first groups."""


def scored(setup: Setup, batch: Batch, step: int) -> tuple[ScoredTokens, ...]:
    """Tokens of the first groups under the weights as they are.

    () where earlier or rounded weights drew the batch, and where the weights give no finite numbers.
    """
    if setup.stale is not None or setup.config.sampler_precision != "float32":
        return ()
    from grposcope.instruments.verify import scoring

    some = [
        row if i < max(1, SCORED // setup.config.group) * setup.config.group else replace(row, prompt_ids=None)
        for i, row in enumerate(_drawn(step, batch))
    ]
    try:
        return (scoring.score(setup.policy, some, setup.config.temperature, "these weights", step - 1),)
    except UserError:  # weights that have overflowed, which the run itself says
        return ()


def _drawn(step: int, batch: Batch) -> tuple[Rollout, ...]:
    """The ids of a batch alone."""
    from grposcope.instruments.verify.own_loop import rows_of

    rollouts, drawn = batch.rollouts, _places(batch)
    return rows_of(
        rollouts.prompt_ids[drawn], rollouts.tokens[drawn], group=[int(row) for row in drawn],
        prompt_mask=rollouts.prompt_mask[drawn], completion_mask=rollouts.attended[drawn], step=step,
    )  # fmt: skip


def _places(batch: Batch) -> Tensor:
    """The rows of a batch that were drawn, without those that pad groups to one size."""
    return torch.tensor([row for p in range(len(batch.problems)) for row in batch.rows(p)])


def rows(
    step: int, batch: Batch, terms: TokenTerms, prompts: Tensor, done: Update, whole: bool = True
) -> tuple[Rollout, ...]:
    """The batch of `step` as the update `done` on the groups `prompts` took it.

    The rollouts of groups that later updates take have no log-probabilities of the loss. whole: whether the source of
    credit gives all tokens of a rollout the same, so that a credit of 0 on some means that they are left out.
    """
    from grposcope.instruments.verify.own_loop import rows_of

    rollouts, group = batch.rollouts, batch.graded.shape[1]
    drawn = _places(batch)
    current = torch.full(rollouts.mask.shape, torch.nan)
    if done.rows is not None and done.logp is not None:
        taken = (prompts.cpu()[:, None] * group + torch.arange(group)).reshape(-1)[done.rows.cpu()]
        current[taken] = done.logp.float().cpu()
    old = _old(batch, terms, current)
    reference = None if terms.reference is None else terms.reference[drawn]
    weights = torch.full(rollouts.mask.shape, torch.nan)
    weights[(prompts.cpu()[:, None] * group + torch.arange(group)).reshape(-1)] = 0.0  # of the update, passed or not
    if done.rows is not None and done.weights is not None:
        weights[taken] = done.weights.float().cpu()
    shaped, graded = rollouts.rewards.reshape(-1), batch.graded.reshape(-1)
    rewards = {TASK: graded[drawn]}
    if bool((shaped != graded).any()):
        rewards[OVERLONG] = (shaped - graded)[drawn]
    versions = [step - 1] * len(drawn)
    if rollouts.versions is not None:
        versions = rollouts.versions.repeat_interleave(group)[drawn].tolist()
    made = rows_of(
        rollouts.prompt_ids[drawn],
        rollouts.tokens[drawn],
        group=[int(row) // group for row in drawn],
        prompt_mask=rollouts.prompt_mask[drawn],
        completion_mask=rollouts.attended[drawn],
        written=rollouts.mask[drawn] if rollouts.has_holes else None,
        mask=(_weighted(rollouts.mask, terms.credit) if whole else rollouts.mask)[drawn],
        prompt_trained=torch.zeros_like(rollouts.prompt_mask[drawn]),  # the loss has tokens of completions alone
        sampler=rollouts.logp[drawn],
        old=old[drawn],
        current=current[drawn],
        reference=reference,
        loss_weights=weights[drawn],
        rewards=rewards,
        reward=shaped[drawn],
        advantages=terms.credit[drawn],
        truncated=rollouts.truncated[drawn],
        version=versions,
        step=step,
        prompts=[batch.problems[int(row) // group].prompt for row in drawn],
        completions=[batch.texts[row] for row in drawn],
        dropped=["the reward failed" if lost else "" for lost in graded[drawn].isnan().tolist()],
        where=f"step {step}",
    )
    return tuple(_with_turns(row, rollouts, int(place)) for row, place in zip(made, drawn, strict=True))


def _with_turns(row: Rollout, rollouts: RolloutBatch, place: int) -> Rollout:
    """A row of evidence with the turns, states and stop reason of its place in the batch; as it is without turns."""
    turns = rollouts.token_annotations.get("turns")
    if turns is None:
        return row
    own = turns[place][rollouts.attended[place]]
    return replace(
        row,
        turns=own.cpu().numpy(),
        turn_rewards=turn_rewards(rollouts, place),
        anchors=turn_anchors(rollouts, place),
        stop=stop_of(rollouts, place),
    )


def _old(batch: Batch, terms: TokenTerms, current: Tensor) -> Tensor:
    """Log-probabilities (B, T) of the trainer's weights when the batch came; NaN where the ratio is to what drew it."""
    if terms.trainer is not None:
        return terms.trainer
    if terms.old is batch.rollouts.logp:
        return torch.full(current.shape, torch.nan)
    return current if terms.old is None else terms.old


def _weighted(mask: Tensor, credit: Tensor) -> Tensor:
    """Tokens (B, T) with a weight in the loss: those whose credit is not 0, but all of a rollout without any credit."""
    return mask & ((credit != 0) | ~(credit != 0).any(-1, keepdim=True))


def _compared(advantage: Any) -> Mapping[str, Any]:
    """What is stated of an advantage; nothing for one with other arguments than the usual ones."""
    from grposcope.signs.rollouts.pipeline_settings import comparison

    if isinstance(advantage, partial):
        return {}
    names = [name for name, entry in advantages.ALL.items() if entry.function is advantage]
    return comparison(names[0]) if names else {}
