"""GRPOTrainer with our instruments: probes of its own rollouts, credit for single tokens, other advantages.

    from grposcope.engines.trl import GRPOscopeTrainer

    trainer = GRPOscopeTrainer(model, reward, args=args, train_dataset=prompts, probe_every=10)

It takes what GRPOTrainer takes, and records the run as `GRPOscopeCallback` does. `GRPOscopeMixin` gives the same to
RLOOTrainer and to a subclass of your own: `class Mine(GRPOscopeMixin, RLOOTrainer)`.

Two of TRL's methods are overridden (`guard.METHODS`): `_calculate_rewards`, to see single rewards, and
`_generate_and_score_completions`, behind which the rollouts are probed and their advantages replaced. TRL shuffles and
splits the batch afterwards; advantages per token travel along with the tokens, and its loss takes them. With
`verify_every` two more are (`verifying.METHODS`), which note what the loss takes and change nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import TrainerCallback
from trl.trainer.grpo_trainer import GRPOTrainer

from grposcope.core import capabilities
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.trajectories import joined
from grposcope.engines.trl import (
    constraining,
    draws,
    group_moves,
    guard,
    probing,
    scored_batch,
    settings,
    steering,
    verifying,
)
from grposcope.engines.trl.callback import GRPOscopeCallback
from grposcope.engines.trl.constraining import TrainerConstraints
from grposcope.engines.trl.offpolicy import OffPolicyProbes
from grposcope.engines.trl.processes import anywhere, say
from grposcope.engines.trl.scored_batch import Scored
from grposcope.instruments import has, needed
from grposcope.lab import credit as credits
from grposcope.lab.allocation import ChosenAllocator
from grposcope.lab.credit import Chosen
from grposcope.lab.objectives import Objective, advantages
from grposcope.lab.rollout_batch import RolloutBatch, rows_of_groups
from grposcope.lab.train.config import AUTO, PAUSE
from grposcope.maths.aggregation import METHODS, Aggregation, checked_weights
from grposcope.maths.constraints import Dual

if TYPE_CHECKING:
    from grposcope.instruments.gradient.probe import Probe
    from grposcope.instruments.verify.in_training import TrainingVerifier
    from grposcope.lab.train.step_meter import StepMeter

    _Behind = GRPOTrainer
else:  # whatever trainer of TRL stands behind the mixin
    _Behind = object


class GRPOscopeMixin(_Behind):
    """What `GRPOscopeTrainer` adds to a trainer of TRL; it stands before the trainer among the bases of a class.

    probe_every: measure the gradient every K optimiser steps, on the first `probe_prompts` groups of the batch, whose
    rollouts the processes share; 0 for never. Where the rollouts are of another policy (vLLM with its correction, or
    batches for several optimiser steps) each probe also keeps what `grposcope offpolicy` compares corrections by.
    credit: a source of `lab.credit.SOURCES`, `outcome` for TRL's own.
    advantage: a name of `advantages.ALL`, in the place of TRL's scale_rewards. step_rewards: a function that is called
    as a reward function of TRL is, and returns for each completion a list of (end, reward), a pair per step: the number
    of characters up to its end, and what it is worth; needed by credit steps, process and state. allocate: filter or
    another allocator with a policy, with its settings, draws prompts by their forecast success rates; uniform for TRL's
    own order. aggregation: a name of `maths.aggregation.METHODS`, how several reward functions make the advantage, in
    the place of TRL's multi_objective_aggregation. constraints: such as ["length<=200", "form>=0.98"], of a reward
    function by its name, of the reward, or of the length in tokens; their multipliers learn with the rate `dual_rate`
    and the damping `dual_damping`, once per batch of rollouts. autopilot: off, advise, act or a YAML file of a policy,
    as for `grposcope train`; it goes back to checkpoints, changes the learning rate and stops. num_generations: "auto"
    for a group size that begins with that of GRPOConfig and moves by the probes, where a pass over the data begins and
    at most once in `auto_group` steps (20). Everything else goes to the trainer.

    UserError for settings that do not go together, a reward function that cannot take what TRL passes, a batch that is
    not made of whole groups, a model without a matrix to train, and a version of TRL whose methods have changed.
    """

    def __init__(
        self,
        *given: Any,
        probe_every: int = 0,
        probe_prompts: int = 8,
        credit: str = "outcome",
        advantage: str | None = None,
        step_rewards: Callable[..., Any] | None = None,
        allocate: str = "uniform",
        verify_every: int = 0,
        aggregation: str | None = None,
        constraints: str | Sequence[str] = (),
        dual_rate: float = 0.05,
        dual_damping: float = 0.0,
        autopilot: str = "off",
        num_generations: str | None = None,
        auto_group: int = 0,
        **more: Any,
    ) -> None:
        auto_group = _least_pause(num_generations, auto_group)
        probe_every = probe_every or (group_moves.PROBED if auto_group else 0)
        _check_counts(verify_every, probe_every, probe_prompts)
        dual = constraining.dual(constraints, dual_rate, dual_damping)
        _check_methods(type(self), bool(verify_every))
        asked = draws.allocator(allocate)
        super().__init__(*given, **more)
        self._scope_draws = None if asked is None else _draws(self, asked)
        self._scope_probes = probing.Asked(probe_every, probe_prompts)
        self._scope_credit, self._scope_advantage, self._scope_steps = credits.chosen(credit), advantage, step_rewards
        self._scope_aggregation = None if aggregation == METHODS[0] else aggregation
        self._scope_limits: TrainerConstraints | None = None
        self._scope_batch: Scored | None = None
        self._scope_probed = 0
        self._scope_verify_every, self._scope_verified = verify_every, 0
        self._scope_pending: verifying.PendingBatch | None = None
        self._scope_verifier: TrainingVerifier | None = None
        self._scope_meter: StepMeter | None = None
        self._scope_watched: list[Tensor] | None = None
        self._scope_derivative: list[Tensor] | None = None
        _check(self)
        self._scope_steering = None if autopilot == "off" else steering.Steering(self, autopilot)
        if dual.constraints:
            self._scope_limits = _limits(self, dual)
        self._scope_offpolicy = OffPolicyProbes(self, probe_prompts)
        left_out: list[str] = []
        self._scope_objective: Objective | None = None
        if self._attached:
            self._scope_objective, left_out = _objective(self)
        self._scope_groups = group_moves.GroupSteering(self, auto_group) if auto_group else None
        records = [own for own in self.callback_handler.callbacks if isinstance(own, GRPOscopeCallback)]
        self._scope_record = records[0] if records else GRPOscopeCallback()
        for callback in _callbacks(self):
            self.add_callback(callback)
        if self.is_world_process_zero():
            _say_limits(self._scope_credit, left_out if probe_every else [])

    @property
    def _replaces(self) -> bool:
        """Whether the advantages of the trainer are replaced."""
        chosen = (self._scope_advantage, self._scope_aggregation)
        return not self._scope_credit.source.whole or chosen != (None, None)

    @property
    def _attached(self) -> bool:
        """Whether the trainer does anything that TRL's own does not, but for the record."""
        return self._replaces or bool(self._scope_probes.every)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        """TRL's, remembering what was scored."""
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._scope_batch = Scored(rewards, inputs, prompts, completions, completion_ids_list)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's batch of rollouts, with our advantages where they are asked for; probed if that is due."""
        out: dict[str, Any] = super()._generate_and_score_completions(inputs)
        batch, self._scope_batch = self._scope_batch, None
        step = self.state.global_step + 1
        due = step != self._scope_probed and self._scope_probes.due(step, probing.interval(self.args))
        model: Any = self.model
        changes = self._replaces or self._scope_limits is not None
        if not model.training or batch is None:
            return out
        if "tool_mask" in out:
            _log_turns(self, out)
        if self._scope_draws is not None:
            _learn(self, batch)
        if self._scope_steering is not None:
            total = batch.total(self.reward_weights, self.num_generations or 1)
            cut = self.accelerator.gather(batch.cut(_ends(self, _tokenizer(self))).to(self.args.device))
            self._scope_steering.take(step, total, cut.reshape(total.shape))
        if due or changes:
            self._changed_or_probed(out, batch, due)
        self._begin_evidence(out, batch, step)
        return out

    def _begin_evidence(self, out: dict[str, Any], batch: Scored, step: int) -> None:
        """Begin the evidence of a fresh batch, if that is due, and finish that of the one before."""
        every = self._scope_verify_every
        if not every:
            return
        if self._scope_pending is not None:
            _verify(self)
        from grposcope.instruments.verify import in_training

        if step != self._scope_verified and in_training.due(every, step, probing.interval(self.args)):
            self._scope_verified = step
            try:
                self._scope_pending = verifying.begin(self, out, batch, step, _ends(self, _tokenizer(self)))
            except Exception as error:  # which ends no training
                _say_no_evidence(self, step, error)

    def _get_per_token_logps_and_entropies(self, *given: Any, **more: Any) -> Any:
        """TRL's, remembering the log-probabilities while evidence is gathered."""
        found = super()._get_per_token_logps_and_entropies(*given, **more)
        if self._scope_watched is not None:
            self._scope_watched.append(found[0].detach())
            if found[0].requires_grad and self._scope_derivative is None:
                derivative = self._scope_derivative = []
                found[0].register_hook(lambda gradient: derivative.append(gradient.detach()))
        return found

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        """TRL's, noting what it takes of each rollout while evidence is gathered."""
        pending = self._scope_pending
        if pending is None or not isinstance(inputs, dict) or verifying.ROW not in inputs:
            return super()._compute_loss(model, inputs)
        self._scope_watched, self._scope_derivative = [], None
        try:
            loss = super()._compute_loss(model, inputs)
            pending.take(inputs, next(iter(self._scope_watched), None), self.state.global_step + 1)
        finally:
            self._scope_watched = None
        return loss

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """TRL's, noting where the backward pass began while evidence is gathered, which is judged when it is whole."""
        if self._scope_verify_every and self._scope_meter is None:
            self._scope_meter = verifying.metered(self)
        loss = super().training_step(model, inputs, num_items_in_batch)
        pending = self._scope_pending
        if pending is not None:
            found, self._scope_derivative = self._scope_derivative, None
            pending.weigh(found[0] if found else None, self.accelerator.num_processes)
            if pending.whole:
                _verify(self)
        return loss

    def train(self, resume_from_checkpoint: Any = None, *more: Any, **given: Any) -> Any:
        """TRL's, with True from the newest checkpoint that no kill has cut short.

        Draws go on with the history in the checkpoint. Raises UserError without a whole one, or without that history.
        """
        if not resume_from_checkpoint:
            return self._with_last_evidence(super().train(resume_from_checkpoint, *more, **given))
        found = draws.checkpoint(self.args.output_dir, resume_from_checkpoint)
        if found is None:
            raise UserError(
                f"{self.args.output_dir} holds no whole checkpoint to resume from; train without resume_from_checkpoint"
            )
        if self._scope_draws is not None:
            self._scope_draws.restore(found, skipping=not self.args.ignore_data_skip)
        if self._scope_limits is not None:
            self._scope_limits.restore(found)
        for one in (self._scope_steering, self._scope_groups):
            if one is not None:
                one.restore(found)
        return self._with_last_evidence(super().train(str(found), *more, **given))

    def _with_last_evidence(self, result: Any) -> Any:
        """The result of a training, after the evidence of a batch that was not used to its end is judged."""
        if self._scope_pending is not None and not self._scope_pending.left:
            _verify(self)
        return result

    def take_accuracy(self, found: Estimate) -> None:
        """Tell the autopilot of a held-out accuracy in [0, 1] after the step that was just made; in every process."""
        if self._scope_steering is not None:
            self._scope_steering.pilot.evaluation(self.state.global_step, found)

    def _get_train_sampler(self, *given: Any, **more: Any) -> Any:
        """TRL's, or draws by success rates, or with a group size that moves."""
        if self._scope_groups is not None:
            return self._scope_groups.draws
        return super()._get_train_sampler(*given, **more) if self._scope_draws is None else self._scope_draws

    def _changed_or_probed(self, out: dict[str, Any], batch: Scored, due: bool) -> None:
        """Put our advantages and penalties into a batch where they are asked for, and probe it where that is due."""
        every = _rollouts(self, out, batch)
        if self._replaces:
            assert self._scope_objective is not None
            given = _assigned(self._scope_credit, self._scope_objective, every)
        else:
            given = self.accelerator.gather(out["advantages"])
        if self._scope_limits is not None:
            given = given + _penalties(self, self._scope_limits, batch, given, every)
        if self._replaces or self._scope_limits is not None:
            out["advantages"] = _own(given, out, self.accelerator.process_index)
            _log_advantages(self, given, every)
        if due:
            self._scope_probed = step = self.state.global_step + 1
            _probe(self, step, every, given, "pixel_values" in out)
            if "pixel_values" not in out:
                self._scope_offpolicy.fresh(step, every, out)


class GRPOscopeTrainer(GRPOscopeMixin, GRPOTrainer):
    """GRPOTrainer with `GRPOscopeMixin`."""


def _assigned(chosen: Chosen, objective: Objective, every: RolloutBatch) -> Tensor:
    """The advantages of a batch: (B,) for outcome credit, (B, T) for other sources; 0 where they are not known.

    A group with a rollout that no reward function scored has nothing to compare, and gets 0 as a whole.
    """
    good = scored_batch.scorable(every).nonzero()[:, 0]
    outcome = chosen.source.whole
    given = torch.zeros(every.mask.shape[:1] if outcome else every.mask.shape, device=every.mask.device)
    if len(good):
        some = every.take(good)
        values = objective.rollout_advantages(some).reshape(-1) if outcome else chosen.assign(objective, some)
        given[rows_of_groups(good, every.groups[1])] = values.float()
    return given


def _least_pause(num_generations: str | None, auto_group: int) -> int:
    """Least steps between two moves of the group size, 0 where it stays; UserError for a size that is a number."""
    if num_generations not in (None, AUTO) or auto_group < 0:
        raise UserError(
            f"num_generations {num_generations} and auto_group {auto_group} of GRPOscopeTrainer must be 'auto' and "
            "0 or more; set a number in GRPOConfig"
        )
    return auto_group or (PAUSE if num_generations else 0)


def _check_counts(verify_every: int, probe_every: int, probe_prompts: int) -> None:
    """UserError for numbers of steps or prompts that cannot be."""
    if verify_every < 0:
        raise UserError(f"verify_every {verify_every} must be 0 or more")
    if probe_every < 0 or probe_prompts < 1:
        raise UserError(f"probe_every {probe_every} must be 0 or more, and probe_prompts {probe_prompts} 1 or more")


def _check_methods(kind: type, verified: bool) -> None:
    """UserError where the trainer behind the mixin has other methods than are known here, or what verifies is not
    there."""
    behind = kind.__mro__[kind.__mro__.index(GRPOscopeMixin) + 1]
    guard.methods(behind)
    if verified:
        if not has("verify"):
            raise UserError(needed(["verify"]))
        guard.methods(behind, verifying.METHODS)


def _objective(trainer: Any) -> tuple[Objective, list[str]]:
    """The objective of a trainer's loss with the advantages that it is given, and what it leaves out, a clause each."""
    objective, left_out = settings.fresh(trainer.args, trainer._scope_advantage)
    return objective if trainer._scope_aggregation is None else _of_several(trainer, objective), left_out


def _callbacks(trainer: Any) -> list[TrainerCallback]:
    """What follows the run, in the order in which it hears of a step; the record only where the user gave none."""
    callbacks: list[TrainerCallback | None] = [
        None if trainer._scope_draws is None else trainer._scope_draws.keeper(),
        trainer._scope_steering,
        None if trainer._scope_limits is None else trainer._scope_limits.keeper(),
        trainer._scope_offpolicy if trainer._scope_probes.every else None,
        trainer._scope_groups,
        None if trainer._scope_record in trainer.callback_handler.callbacks else trainer._scope_record,
    ]
    return [callback for callback in callbacks if callback is not None]


def _say_limits(chosen: Chosen, left_out: Sequence[str]) -> None:
    """Say what credit and probes do not do. left_out: what a probe leaves out of the loss, a clause each."""
    warning = [chosen.source.warning] if chosen.source.warning else []
    for line in (*warning, *(f"a probe leaves out that {clause}" for clause in left_out)):
        say(f"grposcope: {line}", logging.WARNING)


def _draws(trainer: Any, asked: ChosenAllocator) -> draws.PromptDraws:
    """The sampler of a trainer; UserError where it runs in several processes."""
    capabilities.check(guard.engine(trainer.accelerator.num_processes), asked.part())
    args, group = trainer.args, trainer.num_generations
    repeats = trainer.num_iterations * args.steps_per_generation
    prompts = args.generation_batch_size // group
    return draws.PromptDraws(asked, trainer.train_dataset, prompts, group, repeats, args.seed)


def _of_several(trainer: Any, objective: Objective) -> Objective:
    """The objective with the aggregation of a trainer's reward functions, and their weights."""
    weights = tuple(float(weight) for weight in trainer.reward_weights)
    return replace(objective, aggregation=Aggregation(trainer._scope_aggregation, weights=weights))


def _limits(trainer: Any, dual: Dual) -> TrainerConstraints:
    """The constraints of a trainer; UserError where they are of rewards that it does not have."""
    repeats = trainer.num_iterations * trainer.args.steps_per_generation
    return TrainerConstraints(dual, trainer.reward_func_names, trainer.num_generations, repeats)


def _penalties(trainer: Any, limits: TrainerConstraints, batch: Scored, given: Tensor, every: RolloutBatch) -> Tensor:
    """What the constraints add to the advantages `given`, (B,) or (B, T); the batch's metrics are logged."""
    penalties, metrics = limits.take(batch, trainer.reward_weights, trainer.accelerator)
    for name, value in metrics.items():
        trainer._metrics["train"][name].append(value)
    return penalties.to(given) if given.dim() == 1 else penalties.to(given)[:, None] * every.mask


def _log_turns(trainer: Any, out: dict[str, Any]) -> None:
    """Log the turns that the policy took in the rollouts of all processes: runs of tokens that it wrote itself."""
    own = (out["tool_mask"] * out["completion_mask"]).bool()
    begins = own & ~torch.nn.functional.pad(own[:, :-1], (1, 0))
    turns = trainer.accelerator.gather(begins.sum(1)).float()
    trainer._metrics["train"]["agent/turns"].append(float(turns.mean()))
    trainer._metrics["train"]["agent/turns_max"].append(float(turns.max()))


def _learn(trainer: Any, batch: Scored) -> None:
    """Let the forecast learn from a batch's rewards, and log its metrics."""
    rewards = batch.total(trainer.reward_weights, trainer.num_generations)
    metrics = trainer._scope_draws.learn(batch.examples[0]["prompt"], rewards.numpy(force=True))
    for name, value in metrics.items():
        trainer._metrics["train"][name].append(value)


def _check(trainer: Any) -> None:
    """UserError for what cannot work, before the first step."""
    args, data = trainer.args, trainer.train_dataset
    columns = getattr(data, "column_names", None)
    guard.batch(args)
    environments = ("environments",) if getattr(trainer, "environment_factories", None) is not None else ()
    further = getattr(trainer, "rollout_func", None) is not None
    guard.rewards(trainer.reward_funcs, columns, (*guard.GIVEN, *environments), further)
    chosen = trainer._scope_credit, trainer._scope_advantage, trainer._scope_steps
    guard.credit(*chosen, args, trainer._scope_aggregation)
    if trainer._scope_aggregation is not None:
        checked_weights(trainer.reward_weights.tolist(), trainer.reward_func_names)
    if trainer._scope_steps is not None:
        guard.rewards([trainer._scope_steps], columns, (), further)
    if trainer._scope_probes.every:
        if not has("gradient"):
            raise UserError(needed(["gradient"]))
        from grposcope.instruments.gradient import backward

        guard.processes(trainer)
        guard.probed_rollouts(trainer._scope_probes.prompts, args)
        backward.attach(trainer.accelerator.unwrap_model(trainer.model))


def _rollouts(trainer: Any, out: dict[str, Any], batch: Scored) -> RolloutBatch:
    """The rollouts of all processes, with the rewards of their steps where those are needed."""
    tokenizer = _tokenizer(trainer)
    rewards = batch.total(trainer.reward_weights, trainer.num_generations)
    own = scored_batch.rollouts(out, rewards, batch, _ends(trainer, tokenizer), batch.parts(trainer.num_generations))
    if trainer._scope_steps is not None:
        own = scored_batch.labelled(own, batch, trainer._scope_steps, tokenizer)
    return scored_batch.of_all(own, trainer.accelerator, tokenizer.pad_token_id)


def _tokenizer(trainer: Any) -> Any:
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def _ends(trainer: Any, tokenizer: Any) -> set[int]:
    """Tokens that end a completion."""
    configured = getattr(trainer.model.generation_config, "eos_token_id", None)
    listed = configured if isinstance(configured, list) else [configured]
    return {token for token in (*listed, tokenizer.eos_token_id) if token is not None}


def _own(given: Tensor, out: dict[str, Any], process: int) -> Tensor:
    """The rows and columns of a batch's advantages that belong to the rollouts of this process."""
    rows, width = out["completion_ids"].shape
    own = given[process * rows : (process + 1) * rows]
    return own if own.dim() == 1 else own[:, :width]


def _log_advantages(trainer: Any, given: Tensor, every: RolloutBatch) -> None:
    """Put our advantages into the column of completions that TRL logs: per rollout the mean over its tokens."""
    mean = given if given.dim() == 1 else given.sum(-1) / every.lengths.clamp(min=1)
    logged = trainer._logs["advantages"]
    for _ in range(min(len(mean), len(logged))):
        logged.pop()
    logged.extend(mean.tolist())


def _probe(trainer: Any, step: int, every: RolloutBatch, given: Tensor, images: bool) -> None:
    """Measure the batch, all processes together, and let the main process write what they found.

    A failure is said and does not end the training, except that of a pass through a model that FSDP2 shards:
    the processes would then stand at different places in it. They all have to call this.
    """
    from grposcope.engines import distributed
    from grposcope.instruments.gradient import backward

    folder = trainer._scope_record.record_folder
    if not anywhere(folder is not None, trainer.args):
        return
    model = trainer.accelerator.unwrap_model(trainer.model)
    try:
        if images:
            raise backward.Refusal("prompts with images are not measured")
        measured, few = _measured(trainer, model, step, every, given)
    except Exception as error:
        if distributed.sharded(model) and not isinstance(error, backward.Refusal):
            raise UserError(
                f"step {step}: the probe failed: {_reason(error)}; a model that FSDP2 shards cannot be trained "
                "further after that: resume from the last checkpoint without probe_every"
            ) from error
        _say_failed(trainer, step, error)
        return
    if folder is None or measured is None:
        return
    try:
        name = getattr(trainer.model.config, "_name_or_path", "") or type(trainer.model).__name__
        probing.write(folder, measured, few, Path(name).name, step - 1, trainer.args.seed, _tokenizer(trainer))
        added = {} if trainer._scope_limits is None else trainer._scope_limits.run.added
        probing.components(trainer, step, every, given, added, measured, folder)
    except Exception as error:
        _say_failed(trainer, step, error)


def _verify(trainer: Any) -> None:
    """Write the evidence that was gathered and judge it, all processes together; a failure of it ends no training."""
    from grposcope.instruments.verify.in_training import TrainingVerifier

    pending, trainer._scope_pending = trainer._scope_pending, None
    rows, _ = joined(every := verifying.together(trainer, pending.rows))
    scored = pending.scored if len(rows) == len(every) else ()  # of rows, which are parts of trajectories
    folder = trainer._scope_record.record_folder
    if folder is None:
        return
    try:
        if trainer._scope_verifier is None or trainer._scope_verifier.folder != folder:
            tokenizer = _tokenizer(trainer)
            stated = verifying.stated(
                trainer, _ends(trainer, tokenizer), tokenizer.pad_token_id, trainer._scope_advantage,
                trainer._scope_credit.source.whole,
            )  # fmt: skip
            trainer._scope_verifier = TrainingVerifier(folder, stated, pending.step - 1)
        state = verifying.optimizer_state(trainer, trainer.state.global_step)
        for line in trainer._scope_verifier.take(pending.step, rows, scored, state):
            say(f"grposcope: {line}", logging.WARNING)
    except Exception as error:
        _say_no_evidence(trainer, pending.step, error)


def _say_no_evidence(trainer: Any, step: int, error: Exception) -> None:
    if trainer.accelerator.is_main_process:
        say(f"grposcope: step {step}: no evidence: {_reason(error)}", logging.WARNING)
    logging.getLogger("grposcope").debug("the evidence failed", exc_info=True)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def _say_failed(trainer: Any, step: int, error: Exception) -> None:
    if trainer.accelerator.is_main_process:
        say(f"grposcope: step {step}: no geometry: {_reason(error)}", logging.WARNING)
    logging.getLogger("grposcope").debug("the probe failed", exc_info=True)


def _measured(
    trainer: Any, model: Any, step: int, every: RolloutBatch, given: Tensor
) -> tuple[Probe | None, RolloutBatch]:
    """The probe of a batch and its rollouts; the numbers go among the metrics of the step."""
    good = scored_batch.scorable(every).nonzero()[:, 0]
    rows = rows_of_groups(good, every.groups[1])
    some, credit = every.take(good), given[rows]
    if credit.dim() == 1:
        credit = credit[:, None] * some.mask
    if not trainer._replaces and trainer._scope_limits is None:
        # TRL's division by a standard deviation of 0 leaves rounding errors
        dead = advantages.dead(some.rewards).repeat_interleave(every.groups[1])
        credit = credit.masked_fill(dead[:, None], 0.0)
    args = trainer.args
    groups = trainer.optimizer.param_groups if trainer.optimizer is not None else [{"lr": args.learning_rate}]
    metrics, measured, few = probing.measure(
        model,
        some,
        trainer._scope_objective,
        credit,
        trainer._scope_probes.prompts,
        args,
        learning_rate=float(groups[0]["lr"]),
        check=(step - 1) // trainer._scope_probes.every % probing.CHECKED == 0,
    )
    for name, value in metrics.items():
        if value == value:
            trainer._metrics["train"][name].append(value)
    return measured, few
