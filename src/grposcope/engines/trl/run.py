"""Engine `trl` of `grposcope train`: our tasks, recipes, record and page, with the training itself done by TRL.

    folder/           the record, as of any run
    folder/model/     the final model, with adapters merged into it
    folder/trl/       TRL's output folder: checkpoints and completions

It runs alone, or in every process that torchrun starts. Optimiser and schedule are ours (in TRL's warm-up the first
step has a learning rate of 0); vLLM, PEFT, FSDP and DeepSpeed are TRL's, by its own arguments.

Held-out evaluation, progress and leaving early in a run of TRL, as in our own loop: callbacks of its Trainer.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.model_config import ModelConfig
from trl.trainer.utils import get_peft_config

from grposcope.core.capabilities import ADVANTAGE, STEP_ENDS
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.engines.trl import arguments, constraining, draws, versions
from grposcope.engines.trl.callback import GRPOscopeCallback
from grposcope.engines.trl.loss_arguments import loss_arguments
from grposcope.engines.trl.processes import anywhere
from grposcope.engines.trl.reward_guard import SHARE
from grposcope.engines.trl.trainer import GRPOscopeTrainer
from grposcope.lab import credit
from grposcope.lab.objectives import shaping
from grposcope.lab.sampling import termination
from grposcope.lab.sampling.evaluate import evaluate
from grposcope.lab.sampling.rollouts import generator
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.sampling.termination import Termination
from grposcope.lab.tasks import Problem, Task, faults
from grposcope.lab.train import checkpoint, optimizer
from grposcope.lab.train.config import TrainConfig, check
from grposcope.lab.train.result import Totals, TrainResult
from grposcope.lab.train.setup import Setup, prepare
from grposcope.logs import RunWriter, read
from grposcope.logs.native import schema
from grposcope.logs.native.schema import ModelInfo
from grposcope.watch.loggers import Progress

OUTPUT = "trl"
"""TRL's output folder in the folder of the record."""


@dataclass(frozen=True)
class _Launch:
    """What a run needs of TRL beside `Setup`: the arguments of GRPOConfig and the options given.

    advantage, left_out: as from `loss_arguments`. aggregation: of the rewards, where our trainer and not TRL combines
    them.
    """

    arguments: dict[str, Any]
    options: dict[str, Any]
    advantage: str | None
    left_out: tuple[str, ...]
    processes: int
    aggregation: str | None = None

    @property
    def main(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return int(os.environ.get("RANK", "0")) == 0


def train(config: TrainConfig, options: Sequence[str] = ()) -> TrainResult:
    """Run `config` in TRL with its own `options`, key=value each; in every process of torchrun.

    UserError for what cannot work, settings that TRL has no counterpart for among it.
    """
    versions.check("trainer")
    draws.allocator(config.allocate)
    check(config)
    given = arguments.parse(options, arguments.known_options(GRPOConfig, ModelConfig))
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    arguments.refuse_without_counterpart(config, processes)
    if config.out is None and processes > 1:
        raise UserError("several processes need one folder for the run: give out")
    folder = Path(config.out or f"runs/{time.strftime('%Y%m%d-%H%M%S')}-{Path(config.model).name}-{config.recipe}-trl")
    setup, launch = _prepared(config, given, processes)
    if launch.main:
        _check_new(folder)
    return _run(setup, launch, folder, None)


def resume(folder: Path, asked: Mapping[str, Any] | None = None) -> TrainResult:
    """Go on with a run of `train` from TRL's last checkpoint; UserError without one, or for other settings."""
    before = schema.read_config(folder)
    saved = before.resolved.get("trl")
    if not isinstance(saved, dict):
        raise UserError(f"{folder} is the record of a run of TRL that grposcope did not start; resume it in TRL")
    given = saved["settings"]
    different = [
        f"{name} {value}" for name, value in (asked or {}).items() if name != "out" and value != given.get(name)
    ]
    if different:
        raise UserError(f"a resumed run keeps its settings, and these differ: {', '.join(different)}; leave them out")
    summary = schema.read_summary(folder)
    if summary is not None and not summary.interrupted:
        raise UserError(f"{folder} is finished; start a new run from its model, {folder}/model")
    steps = {path: int(path.name.rpartition("-")[2]) for path in (folder / OUTPUT).glob("checkpoint-*")}
    found = sorted(steps, key=lambda path: (steps[path] < given["steps"], steps[path]))  # TRL takes a step at least
    checkpoint.check_allocator(folder, given)
    allocates = draws.allocator(given.get("allocate", "uniform")) is not None
    last = ["trainer_state.json"]  # what is written last
    last += [draws.CHECKPOINT] if allocates else []
    last += [constraining.CHECKPOINT] if given.get("constraint") else []
    whole = [path for path in found if all((path / name).exists() for name in last)]
    if not whole:
        raise UserError(f"{folder / OUTPUT} holds no checkpoint yet, so the run cannot be resumed; start a new run")
    setup, launch = _prepared(TrainConfig(**given), saved["options"], int(os.environ.get("WORLD_SIZE", "1")))
    return _run(setup, launch, folder, whole[-1])


def _prepared(config: TrainConfig, given: Mapping[str, Any], processes: int) -> tuple[Setup, _Launch]:
    """Task and model, and the arguments of GRPOConfig; UserError where they do not fit together."""
    rollouts = arguments.batch_arguments(config, config.micro_batch or 2**31, processes)
    setup = prepare(config)
    if config.prompts > len(setup.train_set):
        raise UserError(
            f"a batch takes {config.prompts} prompts, and task {setup.task.name} has {len(setup.train_set)}, which TRL "
            "does not repeat within a batch; lower prompts"
        )
    rollouts = arguments.batch_arguments(config, setup.micro_batch, processes)
    pieces = rollouts["gradient_accumulation_steps"] * processes
    loss, advantage, left_out = loss_arguments(
        setup.objective, setup.sampling.max_tokens, config.interval, config.minibatches, pieces
    )
    on_cpu = setup.policy.model.device.type == "cpu"
    if setup.task.components and "reward_weights" in given:
        raise UserError("trl reward_weights cannot be changed: the rewards of the task have theirs; leave it out")
    several, aggregation = arguments.reward_arguments(config, setup.task.weights, bool(setup.objective.overlong))
    all_arguments = rollouts | arguments.run_arguments(config, setup.lr, on_cpu) | loss | several
    return setup, _Launch(all_arguments, dict(given), advantage, left_out, processes, aggregation)


def _check_new(folder: Path) -> None:
    """UserError unless the folder does not exist or is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} already exists and is not empty; choose another folder, or resume that run")


def _configuration(launch: _Launch, folder: Path) -> tuple[Any, Any]:
    """GRPOConfig and the PEFT configuration, if one is asked for; UserError for what TRL itself refuses."""
    fields = GRPOConfig.__dataclass_fields__
    own = {key: value for key, value in launch.options.items() if key in fields}
    peft = {key: value for key, value in launch.options.items() if key not in fields}
    try:
        args = GRPOConfig(**{"output_dir": str(folder / OUTPUT), "run_name": folder.name, **launch.arguments, **own})
        adapters = get_peft_config(ModelConfig(**peft)) if peft else None
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        raise UserError(f"TRL refuses these settings: {_one_line(error)}") from error
    if args.world_size != launch.processes:
        raise UserError(
            f"{launch.processes} processes were started and TRL sees {args.world_size}; start them with torchrun"
        )
    return args, adapters


def _dataset(setup: Setup) -> Dataset:
    """The training problems as TRL takes them: what `lab.policies.encode` makes a prompt of, and the problem's place.

    Their difficulty is there too where draws follow success rates.
    """
    texts: list[Any] = [problem.prompt for problem in setup.train_set]
    if setup.policy.tokenizer.chat_template:
        system = [{"role": "system", "content": setup.task.instruction}] if setup.task.instruction else []
        texts = [[*system, {"role": "user", "content": text}] for text in texts]
    columns: dict[str, list[Any]] = {"prompt": texts, "problem": list(range(len(texts)))}
    if draws.allocator(setup.config.allocate) is not None:  # for the forecasts of success rates
        columns["difficulty"] = [setup.task.difficulty(problem) for problem in setup.train_set]
    return Dataset.from_dict(columns)


def _rewards(setup: Setup) -> list[Callable[..., list[float]]]:
    """The task's rewards as functions of TRL's, and the penalty for overlong completions where the recipe has one."""
    problems: Sequence[Problem] = setup.train_set
    limit, share = setup.sampling.max_tokens, setup.objective.overlong

    def graded(
        task: Task,
        completion_ids: list[list[int]],
        problem: list[int],
        log_metric: Callable[..., None] | None = None,
        **_: Any,
    ) -> list[float]:
        texts = setup.policy.tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        asked = [problems[i] for i in problem]
        given, failed = faults.graded(
            task,
            asked,
            texts,
            setup.config.reward_timeout,
            cast("faults.ErrorPolicy", setup.config.reward_errors),
        )
        if log_metric is not None and setup.config.reward_errors != "fail":
            log_metric(SHARE, len(failed) / len(texts))
        return given

    def function(task: Task, name: str) -> Callable[..., list[float]]:
        def own(**given: Any) -> list[float]:
            return graded(task, **given)

        own.__name__ = name
        return own

    def overlong(completion_ids: list[list[int]], **_: Any) -> list[float]:
        lengths = torch.tensor([len(ids) for ids in completion_ids])
        return shaping.overlong(lengths, limit, round(share * limit)).tolist()

    single = {re.sub(r"\W+", "_", setup.config.task.partition(":")[0]): setup.task}
    tasks = {name: setup.task.component(name) for name in setup.task.components} or single
    of_task = [function(task, name) for name, task in tasks.items()]
    return [*of_task, overlong] if share else of_task


def _steps(setup: Setup) -> Callable[..., list[list[tuple[int, float]]]]:
    """What the task's steps are worth, as a function of our trainer: for each completion, ends and rewards of steps."""

    def steps(completion_ids: list[list[int]], problem: list[int], **_: Any) -> list[list[tuple[int, float]]]:
        texts = setup.policy.tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        of_rows = [setup.task.steps(setup.train_set[i], text) for i, text in zip(problem, texts, strict=True)]
        return [[(step.end, float(step.correct)) for step in row] for row in of_rows]

    return steps


class _RecipeTrainer(GRPOscopeTrainer):
    """Our trainer with our optimiser and schedule, `setup.config`'s; both methods are public hooks of transformers."""

    setup: Setup

    def create_optimizer(self, *given: Any, **more: Any) -> torch.optim.Optimizer:
        """The optimiser of the settings on all weights that are trained."""
        made: Any = self.optimizer
        if made is None:
            model = cast(torch.nn.Module, self.model)
            made = self.optimizer = optimizer.build(model.parameters(), self.setup.lr, self.setup.config)
        return made

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The schedule of the settings; a step's rate is that of our loop."""
        if self.lr_scheduler is None:
            c = self.setup.config
            factor = partial(_rate, schedule=c.schedule, warmup=c.warmup, steps=c.steps)
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(cast(Any, optimizer or self.optimizer), factor)
        return self.lr_scheduler


def _rate(step: int, schedule: str, warmup: int, steps: int) -> float:
    return optimizer.learning_rate(step, 1.0, schedule, warmup, steps)


def _run(setup: Setup, launch: _Launch, folder: Path, start: Path | None) -> TrainResult:
    """The run, from TRL's checkpoint `start` if there is one; in the main process also its model and summary."""
    began, config, settings = time.perf_counter(), setup.config, asdict(setup.config)
    args, adapters = _configuration(launch, folder)
    record = GRPOscopeCallback(folder)
    model = setup.policy.model
    record.more = {
        "model": ModelInfo(setup.policy.name, type(model).__name__, setup.policy.parameters),
        "settings": {name: value for name, value in settings.items() if value is not None},
        "resolved": {
            "task": setup.task.name,
            **({"rewards": setup.task.weighted} if setup.task.components else {}),
            "objective": setup.objective.describe(),
            "sampling": asdict(setup.sampling),
            "lr": setup.lr,
            "trl": {"settings": settings, "options": launch.options, "processes": launch.processes},
        },
    }
    with (
        Progress(config.steps) if launch.main else nullcontext() as progress,
        termination.noticed() as asked,
    ):
        heldout = _HeldOutScores(lambda: _evaluated_and_told(setup, trainer), config.eval_every, record, progress)
        leave = _Leave(asked)
        trainer = _trainer(setup, launch, args, adapters, [record, leave, *([heldout] if setup.heldout else [])])
        if progress is not None:
            trainer.add_callback(_Bar(progress))
            for line in launch.left_out:
                progress.say(f"warning: {line}")
            for line in setup.warnings:
                progress.say(f"warning: {line}")
            if asked_for := draws.allocator(config.allocate):
                progress.say(asked_for.consequence)
        interrupted = False
        try:
            trainer.train(resume_from_checkpoint=None if start is None else str(start))
        except KeyboardInterrupt:
            interrupted = True
            trainer.callback_handler.on_train_end(args, trainer.state, trainer.control)
    _save(setup, trainer, folder)
    return _result(setup, folder, heldout, interrupted or leave.left, leave.left, time.perf_counter() - began)


def _trainer(setup: Setup, launch: _Launch, args: Any, adapters: Any, callbacks: Sequence[Any]) -> _RecipeTrainer:
    """TRL's trainer on our task and model; UserError where TRL refuses them."""
    _RecipeTrainer.setup, source = setup, credit.chosen(setup.config.credit).source
    try:
        trainer = _RecipeTrainer(
            setup.policy.model,
            cast(Any, _rewards(setup)),
            args=args,
            train_dataset=_dataset(setup),
            processing_class=setup.policy.tokenizer,
            callbacks=list(callbacks),
            probe_every=setup.config.probe_every,
            probe_prompts=setup.config.probe_prompts,
            verify_every=setup.config.verify_every,
            credit=setup.config.credit,
            allocate=setup.config.allocate,
            aggregation=launch.aggregation,
            constraints=setup.config.constraint or (),
            dual_rate=setup.config.dual_rate,
            dual_damping=setup.config.dual_damping,
            autopilot=setup.config.autopilot,
            auto_group=setup.config.auto_group,
            advantage=launch.advantage if ADVANTAGE in source.provides else None,
            step_rewards=_steps(setup) if source.requires(STEP_ENDS) else None,
            **({} if adapters is None else {"peft_config": adapters}),
        )
    except (ValueError, ImportError) as error:
        raise UserError(f"TRL refuses these settings: {_one_line(error)}") from error
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    return trainer


def _evaluated_and_told(setup: Setup, trainer: _RecipeTrainer) -> dict[str, Estimate]:
    """Held-out accuracy, of which the autopilot is told."""
    found = _evaluated(setup, trainer)
    trainer.take_accuracy(found["pass@1"])
    return found


def _evaluated(setup: Setup, trainer: _RecipeTrainer) -> dict[str, Estimate]:
    """Held-out accuracy of the model as it is now, by the same draws and the same code as in our loop."""
    config, model = setup.config, cast(Any, trainer.model)
    policy, training = replace(setup.policy, model=model), model.training
    sampling = Sampling(setup.sampling.max_tokens, config.eval_temperature)
    stream = generator(config.seed, "evaluation", device=policy.model.device)
    model.eval()
    try:
        return evaluate(policy, setup.task, setup.heldout, config.eval_samples, sampling, stream, config.reward_timeout)
    finally:
        model.train(training)


def _save(setup: Setup, trainer: _RecipeTrainer, folder: Path) -> None:
    """Write the final model whole: adapters merged; weights spread over processes by TRL itself."""
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        trainer.save_model(str(folder / "model"))
    elif trainer.is_world_process_zero():
        model = trainer.accelerator.unwrap_model(trainer.model)
        model = model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
        checkpoint.save_model(folder, replace(setup.policy, model=model))


def _result(
    setup: Setup, folder: Path, heldout: _HeldOutScores, interrupted: bool, terminated: bool, seconds: float
) -> TrainResult:
    """What the run came to, from its record; the main process adds it to the summary."""
    config, run = setup.config, read(folder)
    fresh = run.table["length"][:: config.interval]
    size = config.prompts * config.group
    totals = Totals(
        seconds=seconds,
        rollouts=size * len(fresh),
        tokens=round(float(fresh.sum()) * size),
        rewards=run.table["reward"].tolist(),
        evals=heldout.scores,
    )
    result = totals.result(folder, interrupted, terminated)
    if int(os.environ.get("RANK", "0")) == 0:
        with RunWriter(folder) as record:
            record.summary({**(run.summary or {}), **result.summary()})
    return result


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


class _HeldOutScores(TrainerCallback):
    """Evaluates on held-out problems before the first step, every `every` steps (0: never) and after the last.

    evaluate: makes the estimates. Every process makes them, the same ones: a model whose weights are spread over
    processes can only be called by all of them. The main process records them. scores: step and pass@1 of each.
    """

    def __init__(
        self,
        evaluate: Callable[[], dict[str, Estimate]],
        every: int,
        record: GRPOscopeCallback,
        progress: Progress | None,
    ) -> None:
        self._evaluate, self._every, self._record, self._progress = evaluate, every, record, progress
        self.scores: list[tuple[int, Estimate]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The first evaluation of a run that is not resumed."""
        if not state.global_step:
            self._now(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """An evaluation where one is due."""
        step = state.global_step
        if step == state.max_steps or (self._every and step % self._every == 0):
            self._now(state)

    def _now(self, state: Any) -> None:
        accuracy = self._evaluate()
        if not state.is_world_process_zero:
            return
        self.scores.append((state.global_step, accuracy["pass@1"]))
        self._record.evaluation(state.global_step, {name: asdict(value) for name, value in accuracy.items()})
        if self._progress is not None:
            self._progress.evaluation(state.global_step, accuracy["pass@1"])


class _Bar(TrainerCallback):
    """Shows the steps of the main process on our progress bar, in place of the lines that transformers prints."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Show an optimiser step."""
        if logs and "reward" in logs and state.is_world_process_zero:
            numbers = {"length": "completions/mean_length", "entropy": "entropy", "kl": "kl"}
            shown = " · ".join(f"{name} {logs[key]:.3g}" for name, key in numbers.items() if key in logs)
            self._progress.show(logs["reward"], shown)


class _Leave(TrainerCallback):
    """Ends the training with a checkpoint once any process was asked to end (SIGTERM), in all at the same step."""

    def __init__(self, termination: Termination) -> None:
        self._termination = termination
        self.left = False

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Stop and save if asked to."""
        if state.global_step < state.max_steps and anywhere(self._termination.asked, args):
            self.left = control.should_training_stop = control.should_save = True
