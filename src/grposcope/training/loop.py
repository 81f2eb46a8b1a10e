"""The training loop: sample a batch of rollouts, grade it, take `interval` optimiser steps on it, repeat.

Everything random is drawn from generators that depend on the seed and the place in the run alone,
so the same seed gives the same run, bit for bit on a CPU with the same number of threads, and a
run that was killed goes on from its last checkpoint as if nothing had happened.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grposcope.credit import per_token
from grposcope.errors import UserError
from grposcope.runs.native.writer import LINES, RunWriter
from grposcope.training import checkpoint, probe_every
from grposcope.training import resume as saved
from grposcope.training.checkpoint import State
from grposcope.training.config import TrainConfig, check
from grposcope.training.evaluate import evaluate
from grposcope.training.loggers import Sink
from grposcope.training.loggers import open_all as open_sinks
from grposcope.training.optimizer import learning_rate
from grposcope.training.progress import Progress
from grposcope.training.recorded_rollouts import samples
from grposcope.training.result import Outcome, Tally
from grposcope.training.rollouts import Batch, collect, generator
from grposcope.training.sampler import Sampling
from grposcope.training.setup import Lab, about, prepare
from grposcope.training.step_row import row_of
from grposcope.training.update import Fixed, Update, frozen_logprobs, update

BAD_STEPS = 10
"""Optimiser steps in a row whose gradient is not finite before a run gives up."""


def train(config: TrainConfig) -> Outcome:
    """Run `config`, writing its record as it goes and its final model; returns the outcome.

    Raises UserError for settings, models, tasks, rewards or folders that cannot work.
    """
    check(config)
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{Path(config.model).name}-{config.recipe}"
    folder = Path(config.out or f"runs/{name}")
    lab = prepare(config)
    if config.checkpoint_every:
        checkpoint.check_space(folder, lab.policy, config.optimizer, config.keep_checkpoints)
    with RunWriter.create(folder, about(lab)) as record:
        return _session(lab, record, State(0, 0, {}, {}))


def resume(folder: Path, given: Mapping[str, Any] | None = None) -> Outcome:
    """Go on with the run in `folder` from its last checkpoint, or from the start if it has none yet.

    given: settings asked for now. Raises UserError if they differ from the run's own, or if the
    folder holds no run, a finished one, or one that another process is writing.
    """
    content = saved.settings(folder, given or {})
    lab = prepare(TrainConfig(**content["settings"]))
    newest = checkpoint.latest(folder)
    state = State(0, 0, dict.fromkeys(LINES, 0), {})
    if newest is not None:
        state = checkpoint.restore(newest, lab.policy, lab.optimizer)
    with RunWriter.reopen(folder, state.sizes, state.step) as record:
        for line in saved.changes(content, about(lab)):
            print(f"{line}: the run goes on, but not bit for bit as it would have", file=sys.stderr)
        return _session(lab, record, state)


def _session(lab: Lab, record: RunWriter, state: State) -> Outcome:
    """From `state` to the end, and what comes after the last step."""
    config, folder = lab.config, record.folder
    tally = Tally.restored(state.tally)
    began = time.perf_counter() - tally.seconds
    sinks = open_sinks(config.log_to, folder, asdict(config), state.step)
    try:
        interrupted = _run(lab, record, sinks, tally, state, began)
    except BaseException:
        record.phase("failed", len(tally.rewards), config.steps)
        raise
    finally:
        for sink in sinks:
            sink.close()
    tally.seconds = time.perf_counter() - began
    checkpoint.save_model(folder, lab.policy)
    outcome = tally.outcome(folder, interrupted)
    record.summary(outcome.summary())
    record.phase("interrupted" if interrupted else "finished", outcome.steps, config.steps)
    return outcome


def _run(lab: Lab, record: RunWriter, sinks: Sequence[Sink], tally: Tally, state: State, began: float) -> bool:
    """The optimiser steps after `state`; True if Ctrl-C ended them early.

    began: when the run would have begun if it had never stopped, on the clock of `time.perf_counter`.
    """
    config, position = lab.config, state.position
    with Progress(config.steps, state.step) as progress:
        try:
            if not state.step:
                _assess(0, lab, record, tally, progress)
            for step in range(state.step + 1, config.steps + 1):
                fresh = (step - 1) % config.interval == 0
                if fresh:
                    record.phase("sampling", step, config.steps)
                    batch = _collect(step, position, lab, record, tally)
                    record.phase("update", step, config.steps)
                    fixed, parts = _freeze(lab, batch), _parts(config, batch)
                    position = batch.position
                    if config.rollouts_every and (step - 1) // config.interval % config.rollouts_every == 0:
                        record.rollouts(step, samples(lab.policy, lab.objective, batch, fixed, config.rollouts_groups))
                lr = learning_rate(step - 1, lab.lr, config.schedule, config.warmup, config.steps)
                geometry = _probe(step, lab, batch, lr, progress) if probe_every.due(config, step) else {}
                started = time.perf_counter()
                done = _update(lab, batch, fixed, next(parts), lr)
                row = row_of(step, lr, batch, done, time.perf_counter() - started, fresh) | geometry
                record.step(row)
                for sink in sinks:
                    sink.log({name: value for name, value in row.items() if name != "step"}, step)
                progress.step(row)
                tally.rewards.append(row["reward"])
                _watch(step, done, tally, record, progress)
                if step == config.steps or (config.eval_every and step % config.eval_every == 0):
                    _assess(step, lab, record, tally, progress)
                if _checkpoint_due(config, step):
                    tally.seconds = time.perf_counter() - began
                    _checkpoint(State(step, position, record.sizes(), asdict(tally)), lab, record, tally)
        except KeyboardInterrupt:
            progress.say("interrupted: keeping what is done")
            return True
    return False


def _checkpoint_due(config: TrainConfig, step: int) -> bool:
    """Whether a batch ends here and a multiple of `checkpoint_every` lies within it; never after the last step."""
    every = config.checkpoint_every
    at_end = step % config.interval == 0 and step < config.steps
    return bool(every) and at_end and step // every > (step - config.interval) // every


def _checkpoint(state: State, lab: Lab, record: RunWriter, tally: Tally) -> None:
    """Write a checkpoint and delete those that are no longer kept."""
    record.phase("checkpoint", state.step, lab.config.steps)
    record.sync()
    checkpoint.save(record.folder, state, lab.policy, lab.optimizer)
    checkpoint.prune(record.folder, lab.config.keep_checkpoints, tally.best[0] if tally.best else None)


def _collect(step: int, position: int, lab: Lab, record: RunWriter, tally: Tally) -> Batch:
    """Fresh rollouts, recorded."""
    config = lab.config
    shape, label_steps = (config.prompts, config.group), config.credit == "steps"
    batch = collect(
        lab.policy, lab.task, lab.train_set, lab.objective, lab.sampling, shape, config.seed, position, label_steps
    )
    tally.rollouts += batch.drawn
    tally.tokens += batch.tokens
    groups = zip(batch.problems, batch.graded.tolist(), batch.rollouts.truncated.reshape(shape).tolist(), strict=True)
    record.group([{"step": step, "problem": p.id, "rewards": r, "truncated": t} for p, r, t in groups])
    return batch


def _freeze(lab: Lab, batch: Batch) -> Fixed:
    """Credit, old and reference log-probabilities, which stay as they are while the batch is used."""
    rollouts, temperature, model = batch.rollouts, lab.config.temperature, lab.policy.model
    old = frozen_logprobs(model, rollouts, temperature, lab.size) if lab.config.interval > 1 else None
    reference = None
    if lab.reference is not None:
        reference = frozen_logprobs(lab.reference, rollouts, temperature, lab.size)
    return Fixed(per_token(lab.config.credit, lab.objective, rollouts), old, reference)


def _parts(config: TrainConfig, batch: Batch) -> Iterator[Tensor]:
    """Which groups each optimiser step on a batch uses: all, or random equal parts in turn."""
    device = batch.rollouts.rewards.device
    for sweep in range(config.interval // config.minibatches):
        if config.minibatches == 1:
            yield torch.arange(config.prompts, device=device)
        else:
            stream = generator(config.seed, "parts", batch.position, sweep)
            yield from torch.randperm(config.prompts, generator=stream).to(device).chunk(config.minibatches)


def _probe(step: int, lab: Lab, batch: Batch, lr: float, progress: Progress) -> dict[str, float]:
    """What the gradient of this batch is made of; a probe that fails is said, and the run goes on."""
    found, why = probe_every.measure(step, lab, batch, lr)
    if why:
        progress.say(f"step {step}: no geometry: {why}")
    return found


def _update(lab: Lab, batch: Batch, fixed: Fixed, prompts: Tensor, lr: float) -> Update:
    """One optimiser step on these groups of the batch."""
    config, rollouts = lab.config, batch.rollouts
    if len(prompts) < config.prompts:
        rollouts, fixed = rollouts.take(prompts), fixed.take(prompts, config.group)
    for group in lab.optimizer.param_groups:
        group["lr"] = lr
    return update(
        lab.policy.model, lab.optimizer, lab.objective, rollouts, fixed, config.temperature, config.clip_grad, lab.size
    )


def _watch(step: int, done: Update, tally: Tally, record: RunWriter, progress: Progress) -> None:
    """Count steps whose gradient is not finite, say so, and give up when they do not end."""
    tally.bad_steps = 0 if math.isfinite(done.grad_norm) else tally.bad_steps + 1
    if tally.bad_steps == 1:
        progress.say(f"step {step}: the gradient is not finite ({done.grad_norm}); the step was not taken")
    if tally.bad_steps == BAD_STEPS:
        raise UserError(
            f"the gradient was not finite for {BAD_STEPS} steps up to step {step}; lower the learning rate "
            f"or the limit of the gradient norm; the record so far is in {record.folder}"
        )


def _assess(step: int, lab: Lab, record: RunWriter, tally: Tally, progress: Progress) -> None:
    """Held-out evaluation, recorded; the same random draws each time, so that evaluations compare."""
    if not lab.heldout:
        return
    config = lab.config
    record.phase("evaluation", step, config.steps)
    sampling = Sampling(lab.sampling.max_tokens, config.eval_temperature)
    stream = generator(config.seed, "evaluation", device=lab.policy.model.device)
    found = evaluate(lab.policy, lab.task, lab.heldout, config.eval_samples, sampling, stream)
    record.evaluation({"step": step, **{name: asdict(value) for name, value in found.items()}})
    tally.evals.append((step, found["pass@1"]))
    progress.evaluation(step, found["pass@1"])
