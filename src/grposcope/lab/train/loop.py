"""The training loop: rollouts → credit → optimiser steps → record → held-out evaluation → checkpoint.

Everything random is drawn from generators that depend on the seed and the place in the run alone,
so the same seed gives the same run, bit for bit on the same CPU with the same versions and number of
threads, and a run that was killed goes on from its last checkpoint as if nothing had happened.
On another processor the draws are the same until rounding decides one of them otherwise.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.core.errors import UserError
from grposcope.core.rollouts import STOPS
from grposcope.instruments import has, needed
from grposcope.lab.credit import chosen, per_token
from grposcope.lab.objectives import corrections, several
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling import termination
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.critic import explained_variance
from grposcope.lab.sampling.evaluate import evaluate
from grposcope.lab.sampling.rollouts import Batch, generator, recorded, texts_of
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.sampling.turn_sampler import of_turns, turns_taken
from grposcope.lab.train import autopilot, checkpoint, evidence, group_moves, mismatch, probes
from grposcope.lab.train.allocate import BatchSource, NewBatchSource, RolloutAllocation
from grposcope.lab.train.checkpoint import State
from grposcope.lab.train.config import TrainConfig, check
from grposcope.lab.train.constrain import RunConstraints, Values
from grposcope.lab.train.mismatch import staleness
from grposcope.lab.train.optimizer import learning_rate
from grposcope.lab.train.result import TrainResult
from grposcope.lab.train.setup import Setup, describe, prepare
from grposcope.lab.train.update import TokenTerms, Update, update
from grposcope.logs.native.schema import StepRow
from grposcope.logs.native.writer import RunWriter
from grposcope.maths.constraints import Dual
from grposcope.watch import loggers
from grposcope.watch.loggers import Progress
from grposcope.watch.receivers.program import MetricLogger

if TYPE_CHECKING:
    from grposcope.instruments.gradient.probe import Probe
    from grposcope.instruments.verify.in_training import TrainingVerifier
    from grposcope.lab.train.result import Totals
    from grposcope.signs.rollouts.evidence import ScoredTokens
    from grposcope.watch.live import LiveAlarms

BAD_STEPS = 10
"""Optimiser steps in a row whose gradient is not finite before a run gives up."""


def train(config: TrainConfig, allocation: NewBatchSource = RolloutAllocation) -> TrainResult:
    """Run `config`, writing its record as it goes and its final model; returns what it came to.

    allocation: what draws the batches, by default what `config.allocate` names; another one takes its place.
    Raises UserError for settings, models, tasks, rewards or folders that cannot work.
    """
    check(config)
    autopilot.check(config)
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{Path(config.model).name}-{config.recipe}"
    folder = Path(config.out or f"runs/{name}")
    setup = prepare(config)
    if config.checkpoint_every:
        keep = config.keep_checkpoints
        checkpoint.check_space(folder, setup.policy, config.optimizer, keep, setup.critic, setup.stale)
    draws = allocation(setup, None)
    with RunWriter.create(folder, describe(setup)) as record:
        return _Session(setup, record, State(), draws, allocation).run()


def resume(
    folder: Path, given: Mapping[str, Any] | None = None, allocation: NewBatchSource = RolloutAllocation
) -> TrainResult:
    """Go on with the run in `folder` from its last checkpoint, or from the start if it has none yet.

    given: settings asked for now; more steps extend a run whose schedule is constant. allocation: as in `train`, and
    the same as there. Raises UserError if other settings differ from the run's own, or if the folder holds no run, a
    finished one, or one that another process is writing.
    """
    before = checkpoint.resumable(folder, given or {})
    setup = prepare(TrainConfig(**before.settings))
    newest = checkpoint.latest(folder)
    state = State()
    if newest is not None:
        state = checkpoint.restore(newest, setup.policy, setup.optimizer, setup.critic, setup.stale)
    draws = allocation(setup, state.allocation)
    with RunWriter.reopen(folder, state.sizes, state.step, before) as record:
        for line in checkpoint.environment_changes(before, describe(setup)):
            print(f"{line}: the run continues, but not bit for bit as without the interruption", file=sys.stderr)
        return _Session(setup, record, state, draws, allocation).run()


class _Session:
    """A run from `state` to its end, to Ctrl-C, or to SIGTERM, which it leaves with a checkpoint."""

    def __init__(
        self, setup: Setup, record: RunWriter, state: State, allocation: BatchSource, new_source: NewBatchSource
    ):
        """allocation: what draws the batches; new_source makes it anew where the setup changes."""
        self.setup, self.config, self.record, self.state = setup, setup.config, record, state
        self.allocation, self.new_source = allocation, new_source
        self.correction = setup.config.corrected()
        dual = Dual(self.config.constraints(), self.config.dual_rate, self.config.dual_damping)
        self.limits = RunConstraints(dual, state.constraints)
        self.totals = state.totals
        self.terminated = self.moved = False
        self.kept = state, checkpoint.random_kept()
        self.began = time.perf_counter() - state.totals.seconds  # as if the run had never stopped
        self.loggers: list[MetricLogger] = []

    def run(self) -> TrainResult:
        """All steps, the final model, and what the run came to."""
        config, record, totals = self.config, self.record, self.totals
        self.loggers = loggers.open_all(config.log_to, record.folder, asdict(config), self.state.step)
        try:
            with Progress(config.steps, self.state.step) as self.progress, termination.noticed() as self.termination:
                if warning := chosen(config.credit).source.warning:
                    self.progress.say(f"warning: {warning}")
                for line in self.setup.warnings:
                    self.progress.say(f"warning: {line}")
                if told := self.allocation.said():
                    self.progress.say(told)
                self.alarms = self.judge()
                self.verifier = self.verify()
                self.meter = None if self.verifier is None else evidence.metered(self.setup.optimizer)
                given = self.setup, record.folder, self.state.autopilot, self.state.step
                self.autopilot = autopilot.opened(*given, self.progress.say)
                self.groups = group_moves.opened(self.setup, record.folder, self.state.step, self.progress.say)
                self.take(self.decided())
                config = self.config
                try:
                    interrupted = self.steps()
                finally:
                    if self.alarms is not None:
                        self.alarms.end()
            totals.seconds = time.perf_counter() - self.began
            checkpoint.save_model(record.folder, self.setup.policy, self.setup.critic)
        except BaseException:
            with suppress(UserError):  # the disk that is full, perhaps, which is what ended the run
                record.phase("failed", len(totals.rewards), config.steps)
            raise
        finally:
            for logger in self.loggers:
                logger.close()
        result = totals.result(record.folder, interrupted, self.terminated)
        record.summary(result.summary())
        record.phase("interrupted" if interrupted else "finished", result.steps, config.steps)
        return result

    def steps(self) -> bool:
        """The optimiser steps after `state`; True if Ctrl-C or SIGTERM ended them early."""
        try:
            with self.termination.during("soon"):
                return self.every_step()
        except termination.AskedToEnd:  # in the middle of a batch, or before the first step
            self.terminated = True
            self.leave()
            return True
        except KeyboardInterrupt:
            self.progress.say("interrupted: keeping the record and the model as they are now")
            return True

    def every_step(self) -> bool:
        """The optimiser steps; True if SIGTERM ended them with a checkpoint, AskedToEnd where it came within one."""
        position, step = self.state.position, self.state.step
        self.before_first_step(step, position)
        for step in range(self.state.step + 1, self.config.steps + 1):
            fresh = (step - 1) % self.config.interval == 0
            if fresh:
                self.begin_batch(step, position)
            with self.termination.leaving() if fresh else nullcontext():
                if fresh:
                    batch, of_batch = self.draw(step, position)  # tokens, mask (B, T); rewards (P, G); metrics
                    terms, of_loss = self.begin_update(step, batch)  # credit, old and reference log π (B, T); metrics
                    minibatches = self.minibatches(batch)  # a step: indices of its prompts, (P / minibatches,)
                    position = batch.position
                lr = self.rate(step)
                geometry = self.geometry(step, batch, terms, lr, fresh)
                started = time.perf_counter()
                prompts = next(minibatches)
                scored = self.scored(step, batch) if fresh else None
                done = self.optimise(batch, terms, prompts, lr)
            if scored is not None and self.verifier is not None:
                taken = evidence.rows(step, batch, terms, prompts, done, chosen(self.config.credit).source.whole)
                state = evidence.optimizer_state(self.setup.optimizer, step, lr, self.meter)
                for line in self.verifier.take(step, taken, scored, state):
                    self.progress.say(f"warning: {line}")
            row = _row(step, lr, batch, done, time.perf_counter() - started, fresh)
            of_sampler = staleness(batch.rollouts, step)
            critic = self.train_critic(step, batch, prompts, fresh)
            moved = {"weights_moved": done.moved}
            self.log(
                row, {**moved, **of_batch, **of_loss, **of_sampler, **geometry, **critic, **of_turns(batch.rollouts)}
            )
            self.stop_if_diverged(step, done)
            if self.evaluation_due(step):
                self.evaluate_or_leave(step)
            ended = self.steered(step, done)
            if self.must_leave(step) or _checkpoint_due(self.config, step) or ended is not None:
                self.save_checkpoint(step, position)
            if ended:
                return False
            if self.terminated:
                self.progress.say("asked to end (SIGTERM): a checkpoint is kept, the run can be resumed")
                return True
        return False

    def before_first_step(self, step: int, position: int) -> None:
        """Evaluate the weights that the steps begin with, where that is due, and keep those that a rollback may have to
        go back to."""
        if self.evaluation_due(step) and step not in dict(self.totals.evals):
            with self.termination.leaving():
                self.evaluate_heldout(step)
        acts = self.autopilot is not None and self.autopilot.acts
        if step == 0 and acts and self.config.checkpoint_every:
            self.save_checkpoint(0, position)

    def begin_update(self, step: int, batch: Batch) -> tuple[TokenTerms, Mapping[str, float]]:
        """What the loss takes of a fresh batch, which is recorded, and the metrics of constraints and sampler."""
        self.record.phase("update", step, self.config.steps)
        terms = self.terms(batch)
        constrained = self.limits.learn(self.constrained(batch.rollouts), self.progress.say)
        of_sampler = self.mismatch(batch, terms)
        self.record_rollouts(step, batch, terms)
        if self.alarms is not None:
            self.alarms.take(step, partial(texts_of, batch))
        if self.autopilot is not None:
            self.autopilot.batch(step, batch)
        return terms, {**constrained, **of_sampler}

    def rate(self, step: int) -> float:
        """The learning rate of a step: that of the schedule, times what the autopilot has decided."""
        config = self.config
        scheduled = learning_rate(step - 1, self.setup.lr, config.schedule, config.warmup, config.steps)
        return scheduled * (1.0 if self.autopilot is None else self.autopilot.factor)

    def geometry(self, step: int, batch: Batch, terms: TokenTerms, lr: float, fresh: bool) -> Mapping[str, float]:
        """Metrics of the probes of a batch: that of `probe`, and that of a group size that moves."""
        metrics = self.probe(step, batch, terms, lr)
        if not fresh or self.groups is None:
            return metrics
        probed = self.groups.probe(step, batch, self.progress.say)
        return {**metrics, **{name: metrics.get(name, 0.0) + own for name, own in probed.items()}}

    def scored(self, step: int, batch: Batch) -> Sequence[ScoredTokens] | None:
        """What verifies a fresh batch takes of it before the update; None where no evidence is due."""
        due = self.verifier is not None and evidence.due(self.config.verify_every, step, self.config.interval)
        return evidence.scored(self.setup, batch, step) if due else None

    def steered(self, step: int, done: Update) -> bool | None:
        """Let the autopilot act where a batch ends: None for nothing, else whether the run ends with this step."""
        if self.autopilot is not None:
            self.autopilot.update(done.grad_norm)
        if step % self.config.interval or step == self.config.steps:
            return None
        decision = None
        if self.autopilot is not None:
            evaluated = step in dict(self.totals.evals)
            decision = self.autopilot.decide(
                step, lambda: None if evaluated else self.evaluate_heldout(step), self.progress.say
            )
        if self.groups is not None and decision is None:
            levers = self.config.interval, 1.0 if self.autopilot is None else self.autopilot.factor
            self.groups.decide(step, levers, self.progress.say)
        self.take(self.decided())
        return None if decision is None else decision.action == "stop"

    def decided(self) -> Setup:
        """The setup with what autopilot and moves of the group size have decided so far."""
        setup = autopilot.steered(self.setup, self.autopilot)
        return setup if self.groups is None else self.groups.steered(setup)

    def take(self, setup: Setup) -> None:
        """Go on with these settings."""
        if setup.config != self.config:
            self.setup, self.config, self.correction = setup, setup.config, setup.config.corrected()
            self.allocation = self.new_source(setup, self.allocation.state())

    def must_leave(self, step: int) -> bool:
        """Whether SIGTERM came and a batch ends here, so that a checkpoint can be taken."""
        config = self.config
        unfinished = step < config.steps or (self.evaluation_due(step) and step not in dict(self.totals.evals))
        self.terminated = self.termination.asked and unfinished and step % config.interval == 0
        return self.terminated

    def leave(self) -> None:
        """Keep a checkpoint of what came before a batch whose first update was not made; else the last one is it."""
        state, random_states_back = self.kept
        run, step = self.record.folder, state.step
        if self.moved:
            self.progress.say("asked to end (SIGTERM) in the middle of a batch; this batch is dropped")
        elif not step:
            self.progress.say("asked to end (SIGTERM) before the first step: the run can be resumed from its start")
        else:
            if step not in checkpoint.steps(run):
                self.progress.say(f"asked to end (SIGTERM): writing a checkpoint of step {step}")
                random_states_back()
                self.write_checkpoint(state)
            self.progress.say("asked to end (SIGTERM): a checkpoint is kept, the run can be resumed")

    def begin_batch(self, step: int, position: int) -> None:
        """Keep what `leave` goes back to: everything but the weights, which move at the first update of the batch."""
        if self.setup.stale is not None:
            self.setup.stale.keep(step - 1)
        totals = replace(self.totals, rewards=[*self.totals.rewards], evals=[*self.totals.evals])
        self.kept = self.place(step - 1, position, totals), checkpoint.random_kept()
        self.moved = False

    @contextmanager
    def moving(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Nothing interrupts a step of the optimiser in the block; what follows it is left soon after SIGTERM, not at
        once."""

        def begin(*_: object) -> None:
            self.termination.when, self.moved = "later", True

        def end(*_: object) -> None:
            self.termination.when = "soon"

        hooks = optimizer.register_step_pre_hook(begin), optimizer.register_step_post_hook(end)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def draw(self, step: int, position: int) -> tuple[Batch, Mapping[str, float]]:
        """A fresh batch of graded rollouts, its groups recorded, and the metrics of how it was allocated."""
        self.record.phase("sampling", step, self.config.steps)
        allocated = self.allocation.draw(position)
        batch = allocated.batch
        self.totals.rollouts += batch.drawn
        self.totals.tokens += batch.tokens
        rewards, truncated = batch.graded.flatten().tolist(), batch.rollouts.truncated.tolist()
        notes = allocated.notes or [{}] * len(batch.problems)
        rows, versions = [], batch.rollouts.versions
        components, lengths = _of_components(batch, self.setup.task.components), batch.rollouts.lengths.tolist()
        stops = batch.rollouts.stops
        ended, taken = ([], []) if stops is None else (stops.tolist(), turns_taken(batch.rollouts).tolist())
        for p, (problem, note) in enumerate(zip(batch.problems, notes, strict=True)):
            own = batch.rows(p)
            drawn = {"rewards": [rewards[i] for i in own], "truncated": [truncated[i] for i in own]}
            version = {} if versions is None else {"version": int(versions[p])}
            parts = {} if components is None else {"components": components[p], "lengths": [lengths[i] for i in own]}
            agents = {} if batch.rollouts.stops is None else {
                "turns": [taken[i] for i in own], "stop": [STOPS[ended[i]] for i in own]
            }  # fmt: skip
            rows.append({"step": step, "problem": problem.id, **drawn, **parts, **agents, **version, **note})
        self.record.group(rows)
        return batch, allocated.metrics

    def terms(self, batch: Batch) -> TokenTerms:
        """Credit, old and reference log-probabilities, which stay the same while the batch is used.

        While only the critic learns, the credit is 0 everywhere. A sampler with rounded or earlier weights is another
        policy than the current one. Without a correction the old probabilities are its own, so that the ratio contains
        the mismatch; with one they are the trainer's, and its coefficients multiply the credit.
        """
        config, setup, rollouts = self.config, self.setup, batch.rollouts
        trainer = old = reference = None
        if self.correction is not None or setup.stale is not None:
            trainer = self.logprobs(setup.policy.model, batch)
        if self.correction is not None:
            old = trainer
        elif setup.stale is not None or config.sampler_precision != "float32":
            old = rollouts.logp
        elif config.interval > 1:
            old = self.logprobs(setup.policy.model, batch)
        if setup.reference is not None:
            reference = self.logprobs(setup.reference, batch)
        known = rollouts if trainer is None else replace(rollouts, logp=trainer)
        credit = per_token(config.credit, setup.objective, known)
        credit = credit + self.limits.penalties(self.constrained(rollouts)).to(credit) * rollouts.mask
        if self.correction is not None and trainer is not None:
            given = self.correction, trainer, rollouts.logp, rollouts.mask, self.advantages(batch)
            credit = credit * corrections.coefficients(*given)
        waits = setup.critic is not None and len(self.totals.rewards) < setup.critic.settings["warmup"]
        return TokenTerms(torch.zeros_like(credit) if waits else credit, old, reference, trainer)

    def constrained(self, rollouts: RolloutBatch) -> Values:
        """What a batch has of the rewards that constraints name."""
        return partial(several.constrained_values, rollouts, self.setup.task.components)

    def logprobs(self, model: PreTrainedModel, batch: Batch) -> Tensor:
        """log π of the tokens of a batch, (B, T)."""
        return frozen_logprobs(model, batch.rollouts, self.config.temperature, self.setup.micro_batch)

    def advantages(self, batch: Batch) -> Tensor | None:
        """Advantages (B,) of the rollouts, for a correction that needs them, else None."""
        if self.correction is None or not self.correction.of_advantage:
            return None
        return self.setup.objective.rollout_advantages(batch.rollouts).reshape(-1)

    def mismatch(self, batch: Batch, terms: TokenTerms) -> dict[str, float]:
        """How far the sampler is from the policy that trains; empty where these are not told apart."""
        if terms.trainer is None:
            return {}
        return mismatch.metrics(terms.trainer, batch.rollouts, self.correction, self.advantages(batch))

    def minibatches(self, batch: Batch) -> Iterator[Tensor]:
        """The prompts of each optimiser step on a batch: all of them, or random equal parts in turn."""
        config, device = self.config, batch.rollouts.rewards.device
        for sweep in range(config.interval // config.minibatches):
            if config.minibatches == 1:
                yield torch.arange(len(batch.problems), device=device)
            else:
                stream = generator(config.seed, "parts", batch.position, sweep)
                yield from torch.randperm(config.prompts, generator=stream).to(device).chunk(config.minibatches)

    def record_rollouts(self, step: int, batch: Batch, terms: TokenTerms) -> None:
        """Record some rollouts of a fresh batch token by token, every `rollouts_every` batches."""
        config, setup = self.config, self.setup
        if config.rollouts_every and (step - 1) // config.interval % config.rollouts_every == 0:
            given = terms.credit, terms.reference, config.rollouts_groups, terms.trainer, terms.old
            some = recorded(setup.policy, setup.objective, batch, *given)
            self.record.rollouts(step, some)

    def probe(self, step: int, batch: Batch, terms: TokenTerms, lr: float) -> dict[str, float]:
        """Metrics `geometry/…` of a batch that is probed, and the seconds they took; NaN where the probe fails.

        Why it failed is said. A fresh batch gives the gradient of the coming update, without KL term and entropy bonus.
        What the comparison of corrections needs goes to a file of the record. A probe draws no random number of the run
        and changes neither weights nor gradients: the run stays the same bit for bit.
        """
        began, config, metrics = time.perf_counter(), self.config, {}
        fresh, apart = probes.due(config, step), probes.offpolicy_due(config, step)
        if not fresh and not apart:
            return {}
        if not has("gradient"):
            if fresh:
                self.progress.say(f"step {step}: no geometry: {needed(['gradient'])}")
            return {}
        from grposcope.instruments.gradient import per_step

        rollouts = batch.rollouts
        if fresh:
            try:
                of_update, added = probes.of_update(self.setup, rollouts, terms), self.limits.added

                def keep(measured: Probe, rows: Tensor) -> None:
                    given = self.setup, step, rollouts, terms.credit, added, measured, rows
                    probes.components(*given, self.record.folder)

                metrics = probes.geometry(self.setup, step, rollouts, of_update, lr, keep)
            except UserError as error:
                self.progress.say(f"step {step}: no geometry: {error}")
                metrics = dict.fromkeys(per_step.NAMES, math.nan)
        if apart:
            try:
                probes.offpolicy(self.setup, step, rollouts, terms.old, self.record.folder)
            except UserError as error:
                self.progress.say(f"step {step}: no comparison of corrections: {error}")
        return metrics | {"seconds_probe": time.perf_counter() - began}

    def optimise(self, batch: Batch, terms: TokenTerms, prompts: Tensor, lr: float) -> Update:
        """One optimiser step on the groups `prompts` of the batch."""
        config, setup, rollouts = self.config, self.setup, batch.rollouts
        if len(prompts) < len(batch.problems):
            rollouts, terms = rollouts.take(prompts), terms.take(prompts, rollouts.groups[1])
        for group in setup.optimizer.param_groups:
            group["lr"] = lr
        with self.moving(setup.optimizer):
            return update(
                setup.policy.model,
                setup.optimizer,
                setup.objective,
                rollouts,
                terms,
                config.temperature,
                config.clip_grad,
                setup.micro_batch,
            )

    def train_critic(self, step: int, batch: Batch, prompts: Tensor, fresh: bool) -> dict[str, float]:
        """The critic's learning on the groups `prompts`, as metrics `critic/…`; none where there is no critic."""
        critic, rollouts = self.setup.critic, batch.rollouts
        if critic is None:
            return {}
        began = time.perf_counter()
        some = rollouts if len(prompts) == self.config.prompts else rollouts.take(prompts)
        loss, norm = critic.learn(some, generator(self.config.seed, "critic", step))
        metrics = {"critic/loss": loss, "critic/grad_norm": norm}
        if fresh:  # on later steps the critic has seen the batch
            of_critic, of_group = explained_variance(rollouts)
            metrics |= {"critic/explained_variance": of_critic, "critic/explained_by_group": of_group}
        return metrics | {"seconds_critic": time.perf_counter() - began}

    def judge(self) -> LiveAlarms | None:
        """What says failures as they begin, to the loggers too; None where the diagnosis is not there."""
        if has("diagnosis"):
            from grposcope.watch.live import LiveAlarms

            return LiveAlarms(self.record.folder, self.loggers, self.state.step, self.progress.say)
        return None

    def verify(self) -> TrainingVerifier | None:
        """What tests batches as the run goes; None where that is not asked for or the instrument is not there."""
        if self.config.verify_every and has("verify"):
            return evidence.verifier(self.record.folder, self.setup, self.state.step)
        if self.config.verify_every:
            self.progress.say(needed(["verify"]))
        return None

    def log(self, row: StepRow, more: Mapping[str, float]) -> None:
        """Record an optimiser step with `more` metrics, send it to the loggers and show it."""
        metrics = {**vars(row), **more}
        self.record.step(metrics)
        for logger in self.loggers:
            logger.log({name: value for name, value in metrics.items() if name != "step"}, row.step)
        self.progress.step(row)
        if self.alarms is not None:
            self.alarms.step(metrics)
        self.totals.rewards.append(row.reward)

    def stop_if_diverged(self, step: int, done: Update) -> None:
        """Count steps in a row whose gradient is not finite; UserError when they do not end."""
        totals = self.totals
        totals.bad_steps = 0 if math.isfinite(done.grad_norm) else totals.bad_steps + 1
        if totals.bad_steps == 1:
            self.progress.say(f"step {step}: the gradient is not finite ({done.grad_norm}); the update was skipped")
        if totals.bad_steps == BAD_STEPS:
            raise UserError(
                f"the gradient was not finite for {BAD_STEPS} steps up to step {step}; lower the learning rate "
                f"or the limit of the gradient norm; the record so far is in {self.record.folder}"
            )

    def evaluation_due(self, step: int) -> bool:
        """Whether there is a held-out evaluation after this step."""
        every = self.config.eval_every
        return step in (0, self.config.steps) or bool(every and step % every == 0)

    def evaluate_or_leave(self, step: int) -> None:
        """Held-out evaluation; given up for SIGTERM where a checkpoint is taken, after which a resumed run makes it."""
        if step % self.config.interval:
            self.evaluate_heldout(step)
            return
        random_states_back = checkpoint.random_kept()
        try:
            with self.termination.leaving():
                self.evaluate_heldout(step)
        except termination.AskedToEnd:
            random_states_back()

    def evaluate_heldout(self, step: int) -> None:
        """Held-out evaluation, recorded; the same random draws each time, so that evaluations compare."""
        config, setup = self.config, self.setup
        if not setup.heldout:
            return
        self.record.phase("evaluation", step, config.steps)
        sampling = Sampling(setup.sampling.max_tokens, config.eval_temperature)
        stream = generator(config.seed, "evaluation", device=setup.policy.model.device)
        accuracy = evaluate(
            setup.policy,
            setup.task,
            setup.heldout,
            config.eval_samples,
            sampling,
            stream,
            config.reward_timeout,
            config.reward_errors,  # type: ignore[arg-type]  # one of the choices
        )
        self.record.evaluation({"step": step, **{name: asdict(value) for name, value in accuracy.items()}})
        self.totals.evals.append((step, accuracy["pass@1"]))
        if self.autopilot is not None:
            self.autopilot.evaluated(step, accuracy["pass@1"])
        self.progress.evaluation(step, accuracy["pass@1"])

    def save_checkpoint(self, step: int, position: int) -> None:
        """Write a checkpoint and delete those that are no longer kept."""
        with self.termination.during("later"):
            self.write_checkpoint(self.place(step, position, self.totals))

    def place(self, step: int, position: int, totals: Totals) -> State:
        """What a checkpoint after `step` keeps beside weights, optimiser and random states, with these totals."""
        pilot = None if self.autopilot is None else self.autopilot.state()
        learned = self.allocation.state(), self.limits.state()
        return State(step, position, self.record.sizes(), totals, *learned, pilot)

    def write_checkpoint(self, state: State) -> None:
        """Write a checkpoint of the weights as they are and delete those that are no longer kept."""
        record, totals, setup = self.record, state.totals, self.setup
        totals.seconds = time.perf_counter() - self.began
        also = {totals.best[0]} if totals.best else set()
        if self.autopilot is not None:
            also.add(self.autopilot.anchor(state.step))
        record.phase("checkpoint", state.step, self.config.steps)
        record.sync()
        checkpoint.save(record.folder, state, setup.policy, setup.optimizer, setup.critic, setup.stale)
        checkpoint.prune(record.folder, self.config.keep_checkpoints, also)


def _of_components(batch: Batch, names: Sequence[str]) -> list[dict[str, list[float]]] | None:
    """Rewards of single functions of each group, of the rollouts that were drawn; None where there is one reward."""
    if batch.rollouts.components is None:
        return None
    group = batch.graded.shape[1]
    parts = batch.rollouts.components.flatten(0, 1).tolist()
    return [
        {name: [parts[i][j] for i in batch.rows(p)] for j, name in enumerate(names)} for p in range(len(parts) // group)
    ]


def _row(step: int, lr: float, batch: Batch, done: Update, seconds: float, fresh: bool) -> StepRow:
    """The step's row of the record. Seconds of sampling and grading count on the first step of a batch."""
    rollouts = batch.rollouts
    tokens = rollouts.mask.sum()
    drawn = sum(batch.sizes) or len(rollouts.mask)  # without rows that pad groups to one size
    return StepRow(
        step=step,
        reward=float(batch.graded.nanmean()),
        reward_std=batch.spread,
        reward_errors=batch.errors,
        dead_fraction=batch.dead,
        entropy=float(rollouts.entropy.sum() / tokens),
        kl=done.kl,
        kl_old=done.kl_old,
        length=float(rollouts.lengths.float().sum() / drawn) if batch.sizes else float(rollouts.lengths.float().mean()),
        truncated=float(rollouts.truncated.float().sum() / drawn),
        loss=done.loss,
        grad_norm=done.grad_norm,
        clip_low=done.clip_low,
        clip_high=done.clip_high,
        lr=lr,
        rollouts_trained=done.trained,
        tokens=int(tokens),
        tokens_generated=batch.tokens if fresh else 0,
        seconds_sample=batch.sample_seconds if fresh else 0.0,
        seconds_grade=batch.grade_seconds if fresh else 0.0,
        seconds_update=seconds,
        tokens_per_second=int(tokens) / (batch.sample_seconds + batch.grade_seconds + seconds),
    )


def _checkpoint_due(config: TrainConfig, step: int) -> bool:
    """Whether a batch ends here and a multiple of `checkpoint_every` lies within it.

    After the last step there is one only where the schedule is constant, so that the run can be extended.
    """
    every = config.checkpoint_every
    if not every or step % config.interval:
        return False
    if step == config.steps:
        return config.schedule == "constant"
    return step // every > (step - config.interval) // every
