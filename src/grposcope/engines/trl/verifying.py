"""The evidence of a batch of TRL's trainer: what was drawn and scored, then what its loss took of each rollout.

TRL shuffles and splits a batch after it was scored. A column of row numbers (`ROW`) travels along, so that mask,
advantages and log-probabilities are those that the loss took, put back beside the rewards and groups of their rollouts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import Trainer

from grposcope.core.rollouts import Bools, Rollout, turns_of
from grposcope.engines.trl import settings
from grposcope.engines.trl.scored_batch import Scored

if TYPE_CHECKING:
    from grposcope.lab.train.step_meter import StepMeter
    from grposcope.signs.rollouts.evidence import OptimizerEvidence, ScoredTokens, Stated

ROW = "grposcope_row"
"""Key of the row numbers in a batch."""

METHODS = {
    "_compute_loss": ("self", "model", "inputs"),
    "training_step": ("self", "model", "inputs", "num_items_in_batch"),
}
"""Methods of TRL's trainer that are overridden for this, with the parameters that they must have."""

TOLD = ("turn_rewards", "anchors", "stop", "failed", "environment", "trajectory", "turn")
"""Columns of a rollout that a `rollout_func` may return, under any of their names."""

SURE, UNSURE = 0.1, 1.0
"""Nats by which the trainer's log-probabilities of tokens may differ from those of a sampler that drew them, and by
which a token is less likely than the certainty that 0 says."""

FEWEST = 8
"""Tokens of each kind from which a missing mask is told."""

SCORED = 64
"""Rollouts of a batch that are scored under the weights that drew them: the first groups."""


@dataclass
class PendingBatch:
    """A batch whose loss has not been taken on all rollouts yet.

    step: of the optimiser that it was drawn for. rows: its rollouts on this process. kept (B, T): tokens that are no
    padding. scored: tokens under the weights that drew them. left: rows that no loss has taken; passes: how often the
    loss will take each row.
    """

    step: int
    rows: list[Rollout]
    kept: Tensor
    scored: tuple[ScoredTokens, ...]
    left: set[int]
    passes: int = 1
    part: int = 0
    last_part: int = 0
    waiting: tuple[list[int], int] = ((), 0)  # type: ignore[assignment]
    taken: dict[int, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether the loss has taken every row as often as it will."""
        return not self.left and all(self.taken[number] >= self.passes for number in range(len(self.rows)))

    def weigh(self, gradient: Tensor | None, processes: int) -> None:
        """Note ∂L/∂log π (b, T) of the rows that the loss took last; a step's gradient is the mean over processes."""
        (numbers, step), self.waiting = self.waiting, ([], 0)
        if gradient is None or not step:
            return
        if step != self.step:
            self.last_part += 1
            for i, number in enumerate(numbers):
                own = _values(gradient[i])[self.kept[number].cpu().numpy()] / processes
                self.rows[number] = replace(self.rows[number], last_weights=own, last_part=self.last_part)
            return
        self.part += 1
        for i, number in enumerate(numbers):
            own = self.kept[number].cpu().numpy()
            self.rows[number] = replace(
                self.rows[number], loss_weights=_values(gradient[i])[own] / processes, micro_batch=self.part
            )

    def take(self, inputs: Mapping[str, Any], logps: Tensor | None, step: int) -> None:
        """Note what the loss of optimiser step `step` took of some rows; logps (b, T): log-probabilities in it.

        Those of later steps than the batch's first are of other weights than drew it, and are kept as such.
        """
        trained = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        advantages, old = inputs["advantages"], inputs.get("old_per_token_logps")
        reference = inputs.get("ref_per_token_logps")
        self.waiting = list(inputs[ROW].tolist()), step
        for i, number in enumerate(inputs[ROW].tolist()):
            self.taken[number] = self.taken.get(number, 0) + 1
            own = self.kept[number].cpu().numpy()
            attended = (
                inputs["completion_mask"][i].bool().cpu().numpy()[own]
            )  # else no policy's, as TRL sees no context
            if logps is not None and step != self.step:
                self.rows[number] = replace(
                    self.rows[number], last=_where(attended, _values(logps[i])[own]), last_step=step
                )
            if number not in self.left:  # a later pass over the same batch
                continue
            self.left.discard(number)
            current = None if logps is None or step != self.step else _where(attended, _values(logps[i])[own])
            self.rows[number] = replace(
                self.rows[number],
                mask=trained[i].bool().cpu().numpy()[own],
                advantages=_values(advantages[i]).reshape(-1) if advantages.dim() == 1 else _values(advantages[i])[own],
                current=current,
                reference=None if reference is None else _where(attended, _values(reference[i])[own]),
                old=current if old is None else _where(attended, _values(old[i])[own]),
            )


def begin(trainer: Any, out: dict[str, Any], batch: Scored, step: int, ends: set[int]) -> PendingBatch:
    """The evidence of a fresh batch, as far as it is known before its loss; puts the row numbers into the batch."""
    from grposcope.instruments.verify.own_loop import rows_of

    tokens = out["completion_ids"]
    count, process, group = len(tokens), trainer.accelerator.process_index, trainer.num_generations
    lengths = torch.tensor([len(ids) for ids in batch.ids], device=tokens.device)
    mask = out["completion_mask"] * out.get("tool_mask", 1)
    kept = (torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]) | mask.bool()  # padding, if trained
    own = slice(process * count, (process + 1) * count)
    total = batch.total(trainer.reward_weights, group).reshape(-1)[own]
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    stops = {*ends, tokenizer.pad_token_id}  # TRL counts a completion that ends in padding as ended
    rows = rows_of(
        out["prompt_ids"],
        tokens,
        group=[(process * count + i) // group for i in range(count)],
        prompt_mask=out["prompt_mask"],
        completion_mask=kept,
        mask=mask,
        prompt_trained=torch.zeros_like(out["prompt_mask"]),  # the loss has tokens of completions alone
        written=out.get("tool_mask"),
        sampler=out.get("sampling_per_token_logps"),
        old=out.get("old_per_token_logps"),
        rewards={name: batch.rewards[own, i] for i, name in enumerate(trainer.reward_func_names)},
        reward=total,
        advantages=out["advantages"],
        truncated=[_last(ids, out.get("tool_mask"), i) not in stops for i, ids in enumerate(batch.ids)],
        version=[step - 1] * count,
        step=step,
        prompts=list(batch.prompts),
        completions=[own if isinstance(own, str) or len(own) > 1 else own[0]["content"] for own in batch.completions],
        where=f"step {step}",
    )
    dataset = getattr(trainer.train_dataset, "column_names", None)
    if getattr(trainer, "rollout_func", None) is not None and dataset is not None:
        rows = tuple(_with_told(row, own, dataset) for row, own in zip(rows, batch.examples, strict=True))
    out[ROW] = torch.arange(count, device=tokens.device)
    passes = int(getattr(trainer, "num_iterations", 1) or 1)
    return PendingBatch(step, list(rows), kept, _scored(trainer, rows, step, ends), set(range(count)), passes)


def _with_told(row: Rollout, example: Mapping[str, Any], dataset: Collection[str]) -> Rollout:
    """A rollout with what a `rollout_func` says of it beside its tokens. example: the columns that reward functions are
    given; dataset: those that the data has, which say nothing of a rollout."""
    from grposcope.core.errors import UserError
    from grposcope.logs.rollout_columns import NAMES
    from grposcope.logs.rollout_rows import row_of

    own = {name: example[name] for column in TOLD for name in NAMES[column] if name in example and name not in dataset}
    own = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in own.items()}
    try:
        told = row_of(own, row.where) if any(value is not None for value in own.values()) else None
    except (UserError, TypeError, ValueError):  # columns of another meaning
        told = None
    return row if told is None else replace(row, **{name: getattr(told, name) for name in TOLD})


def together(trainer: Any, rows: Sequence[Rollout]) -> list[Rollout]:
    """The rows of all processes, in their order, as loss and sampler show them; all processes call this."""
    if trainer.accelerator.num_processes == 1:
        return _as_drawn([_as_trained(row) for row in rows])
    from accelerate.utils import gather_object  # type: ignore[import-untyped]

    return _as_drawn([_as_trained(row) for row in gather_object(list(rows))])


def _as_trained(row: Rollout) -> Rollout:
    """A rollout whose mask has every token that the loss has a derivative of, whatever mask its batch came with."""
    if row.mask is None or row.loss_weights is None:
        return row
    return replace(row, mask=row.mask | (np.nan_to_num(row.loss_weights) != 0))


def _as_drawn(rows: Sequence[Rollout]) -> list[Rollout]:
    """Rollouts whose `written` has what the sampler's log-probabilities say, which are 0 on what it did not draw.

    With a mask of tools: single tokens behind those of the policy that have a log-probability, where all else that the
    mask leaves out has none, were drawn too. Without one: tokens of log-probability 0 that the trainer finds unlikely
    were not, where it agrees with the sampler on the others.
    """
    known = [row for row in rows if row.sampler is not None and row.completion_ids is not None]
    if any(row.written is not None for row in known):
        return _with_ends(rows)
    pairs = [(row.sampler, row.current) for row in known if row.current is not None]
    if not pairs:
        return list(rows)
    sampler, current = (np.concatenate([pair[place] for pair in pairs]) for place in (0, 1))
    strange = (sampler == 0) & (current < -UNSURE)
    others = (sampler != 0) & np.isfinite(sampler) & np.isfinite(current)
    if min(strange.sum(), others.sum()) < FEWEST or np.abs(sampler - current)[others].mean() > SURE:
        return list(rows)
    if strange.sum() < (sampler == 0).sum() / 2:
        return list(rows)
    return [
        row
        if row.sampler is None or row.current is None
        else _redrawn(row, (row.sampler != 0) | ~(row.current < -SURE))
        for row in rows
    ]


def _with_ends(rows: Sequence[Rollout]) -> list[Rollout]:
    """Rollouts with a mask of tools, as `_as_drawn`."""
    silent, ends, made = 0, 0, []
    for row in rows:
        if row.written is None or row.sampler is None:
            return list(rows)
        own = ~row.written & np.isfinite(row.sampler) & (row.sampler != 0)
        before = np.concatenate([[False], row.written[:-1]])
        if (own & ~before).any():
            return list(rows)
        silent += int((~row.written & ~own).sum())
        ends += int(own.sum())
        made.append(_redrawn(row, row.written | own))
    return made if silent and ends else list(rows)


def _redrawn(row: Rollout, written: Bools) -> Rollout:
    """A rollout with another `written`, and what follows from it."""
    sampler = None if row.sampler is None else np.where(written, row.sampler, np.nan)
    return replace(row, written=written, turns=turns_of(written), sampler=sampler)


def stated(trainer: Any, ends: set[int], pad: int, advantage: str | None, whole: bool) -> Stated:
    """What the settings of a trainer state. advantage: ours in the place of TRL's. whole: one advantage a rollout."""
    from grposcope.signs.rollouts.evidence import Stated

    args = trainer.args
    from grposcope.signs.rollouts.stated_loss import of_trl

    own = type(trainer).create_scheduler is not Trainer.create_scheduler  # a schedule that the arguments do not say
    compared = _compared(args, advantage) if whole else {}
    return Stated(
        group=0 if trainer._scope_groups is not None else trainer.num_generations,
        **compared,
        weights=dict(zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True)),
        temperature=args.temperature,
        top_k=args.top_k or None,
        top_p=args.top_p,
        limit=args.max_completion_length,
        ends=tuple(sorted(ends)),
        pad=pad,
        masks_truncated=bool(getattr(args, "mask_truncated_completions", False)),
        training=_training(trainer),
        iterations=getattr(args, "num_iterations", 1),
        accumulation=args.gradient_accumulation_steps,
        learning_rate=args.learning_rate,
        schedule=None if own else str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)),
        kl=float(getattr(args, "beta", 0.0) or 0.0),
        loss=None if settings.is_rloo(args) or _scaled(trainer) else of_trl(vars(args), args.max_completion_length),
        reference=None if getattr(args, "sync_ref_model", False) else "start",
        clip=float(args.max_grad_norm or 0.0),
        beta2=float(args.adam_beta2),
        decay=float(args.weight_decay)
        if str(getattr(args.optim, "value", args.optim)).startswith("adamw_torch")
        else None,
        warmup=None if own else args.get_warmup_steps(trainer.state.max_steps),
        updates=None if own else trainer.state.max_steps,
    )


def _training(trainer: Any) -> str:
    """The number format that a trainer computes in: that of its autocast, else that of its weights."""
    if trainer.args.bf16 or trainer.args.fp16:
        return "bfloat16" if trainer.args.bf16 else "float16"
    return str(next(trainer.model.parameters()).dtype).removeprefix("torch.")


def _scaled(trainer: Any) -> bool:
    """Whether something behind TRL's loss scales it: a gradient scaler of float16, or DeepSpeed."""
    return getattr(trainer.accelerator, "scaler", None) is not None or bool(trainer.is_deepspeed_enabled)


def optimizer_state(trainer: Any, step: int) -> OptimizerEvidence | None:
    """What the state of Adam says after `step`; None for another optimiser, and where steps may be left out."""
    from grposcope.signs.rollouts.evidence import OptimizerEvidence

    inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    states = [state for state in getattr(inner, "state", {}).values() if "exp_avg_sq" in state and "step" in state]
    if _scaled(trainer) or not states:
        return None
    rate = float(inner.param_groups[0]["lr"])
    second = sum(float(state["exp_avg_sq"].sum()) for state in states)
    updates = min(float(state["step"]) for state in states)
    meter = getattr(trainer, "_scope_meter", None)
    if meter is None:
        return OptimizerEvidence(step, updates, second, rate)
    return OptimizerEvidence(step, updates, second, rate, "", meter.rate, meter.decay, meter.scheduled)


def metered(trainer: Any) -> StepMeter | None:
    """What measures the steps of the optimiser; None where something stands between it and the weights."""
    from grposcope.lab.train.step_meter import StepMeter

    inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    if _scaled(trainer) or trainer.is_fsdp_enabled or not isinstance(inner, torch.optim.Adam | torch.optim.AdamW):
        return None
    return StepMeter(inner, lambda: trainer.lr_scheduler.get_last_lr()[0])


def _compared(args: Any, advantage: str | None) -> Mapping[str, Any]:
    """What is compared with what, by the settings; nothing where `Stated` has no words for it."""
    from grposcope.signs.rollouts.pipeline_settings import comparison

    if advantage is not None:
        return comparison(advantage)
    if settings.is_rloo(args):
        plain = not args.normalize_advantages and not args.beta and not args.reward_clip_range
        return comparison("leave_one_out") if plain else {}
    if getattr(args, "multi_objective_aggregation", "sum_then_normalize") != "sum_then_normalize":
        return {}
    scale = {True: "group", False: "none"}.get(args.scale_rewards, args.scale_rewards)
    return comparison(settings.SCALES.get(str(scale), ""))


def _last(ids: Sequence[int], written: Tensor | None, row: int) -> int | None:
    """The last token that the model wrote itself; None for an empty completion."""
    own = [token for k, token in enumerate(ids) if written is None or bool(written[row, k])]
    return own[-1] if own else None


def _where(attended: Any, values: Any) -> Any:
    return np.where(attended, values, np.nan)


def _values(tensor: Tensor) -> Any:
    return np.asarray(tensor.detach().float().cpu().numpy(), np.float64)


def _scored(trainer: Any, rows: Sequence[Rollout], step: int, ends: set[int]) -> tuple[ScoredTokens, ...]:
    """The tokens of the first groups under the weights as they are, which drew them; () in several processes."""
    if trainer.accelerator.num_processes > 1:
        return ()
    from grposcope.engines.trl import probing
    from grposcope.instruments.verify import scoring
    from grposcope.lab.policies import Policy

    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    model = trainer.accelerator.unwrap_model(trainer.model)
    policy = Policy("these weights", model, tokenizer, torch.tensor(sorted(ends)), tokenizer.pad_token_id)
    with probing.plain(model):
        return (scoring.score(policy, _few(rows, trainer.num_generations), trainer.temperature, step=step - 1),)


def _few(rows: Sequence[Rollout], group: int) -> list[Rollout]:
    """The rows, of which only those of the first groups can be scored: about SCORED."""
    limit = max(1, SCORED // group) * group
    return [row if i < limit else replace(row, prompt_ids=None) for i, row in enumerate(rows)]
