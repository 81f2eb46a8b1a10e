"""Everything that defines a training run, with its checks.

The flags of `grposcope train` are these fields. A field with `choices` takes the names of that dict, so that a new
recipe, advantage, source of credit, optimiser, … is a flag's value as soon as it is in its dict; `least` is the
smallest value that a field may have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from typing import Any

from grposcope.core import capabilities
from grposcope.core.capabilities import (
    ADVANTAGE,
    CHOICE,
    ENTROPY,
    FURTHER_ROLLOUTS,
    INDEPENDENT,
    MINIBATCHES,
    MODEL_PASS,
    ONE_PROCESS,
    ONE_SIZE,
    PAIRS,
    STEP_ENDS,
    STEP_MARK,
    TOKEN_WEIGHTS,
    TURNS,
    UNEVEN,
    WHOLE_GROUPS,
    Lack,
    Part,
)
from grposcope.core.errors import UserError
from grposcope.lab import allocation, batch_memory, cpu, tasks
from grposcope.lab import credit as credits
from grposcope.lab.allocation import ALLOCATORS
from grposcope.lab.credit import described
from grposcope.lab.objectives import Objective, advantages, divergences, recipes
from grposcope.lab.objectives.surrogates import Cispo, Clip, OneSided
from grposcope.lab.tasks import TASKS, faults
from grposcope.lab.train.optimizer import OPTIMIZERS, SCHEDULES
from grposcope.lab.train.stale_weights import Staleness
from grposcope.maths import corrections
from grposcope.maths.aggregation import METHODS
from grposcope.maths.constraints import Constraint, parse_all
from grposcope.maths.corrections import Correction
from grposcope.watch import loggers


def _task_forms() -> str:
    """Names of all tasks in one line, for the help text of settings that name a task."""
    *most, last = (task.form or name for name, task in TASKS.items())
    return f"{', '.join(most)} or {last}"


def _allocators_described() -> str:
    """The allocators and what each does, in one line."""
    listed = "; ".join(f"{name}, {allocator.help}" for name, allocator in ALLOCATORS.items())
    return f"which problems a batch draws: {listed}"


DTYPES = ("float32", "bfloat16")

AUTO, GROUP, PAUSE = "auto", 8, 20
"""What a group size that moves is called, the size that it begins with, and the least steps between two moves."""


@dataclass(frozen=True)
class InTrl:
    """A setting that a run of TRL follows. arguments: of GRPOConfig, those that it decides.

    same: whether the first of them takes its value as it is.
    """

    arguments: tuple[str, ...] = ()
    same: bool = False


FOLLOWED = InTrl()
"""A setting that a run of TRL follows without an argument of GRPOConfig."""


def _decides(*arguments: str) -> InTrl:
    """A setting that arguments of GRPOConfig are made of."""
    return InTrl(arguments)


def _same(*arguments: str) -> InTrl:
    """A setting whose value the first of the arguments takes as it is."""
    return InTrl(arguments, same=True)


def _option(
    default: Any,
    help: str | Callable[[], str],
    group: str,
    choices: Collection[str] | None = None,
    least: float | None = None,
    trl: InTrl | str = "",
    many: bool = False,
    **form: Any,
) -> Any:
    """A field with its help text, the group of its flag, and its values: a name of `choices`, or at least `least`.

    trl: what a run of TRL makes of it, or why it has nothing like it; such a setting is refused there unless it has its
    default. many:
    whether its flag may be given more than once; the texts are joined by "; ". form: what else its flag says, as in
    `core.flag`.
    """
    form |= {"help": lambda: _described(help, default)}
    if choices is not None:
        form["choices"] = lambda: tuple(choices)
    if many:
        form |= {"action": "append", "metavar": "TEXT"}
    return field(
        default=default, metadata={"form": form, "group": group, "choices": choices, "least": least, "trl": trl}
    )


def _described(help: str | Callable[[], str], default: Any) -> str:
    """The help text of a field with its default, where there is one to name."""
    text = help() if callable(help) else help
    return text if default is None or default is False else f"{text} (default: {default})"


def _group_size(text: str) -> int | str:
    """A group size, as it is written: a number, or auto."""
    return text if text == AUTO else int(text)


@dataclass(frozen=True)
class TrainConfig:
    """Settings of `grposcope train`; the help text of each field says what it means and its unit."""

    model: str = _option(
        "tiny", "tiny, tables, smollm2, a model folder, or a Hugging Face hub name", group="what", trl=FOLLOWED
    )
    task: str = _option("arithmetic", _task_forms, group="what", trl=FOLLOWED)
    reward: str | None = _option(
        None,
        "your own reward function, module:function (with jsonl:PATH); several with their weights, "
        "module:right,form=0.5",
        group="what",
        trl=FOLLOWED,
    )
    reward_timeout: float = _option(
        300.0, "seconds that grading a batch may take, 0 for no limit", group="what", least=0, trl=FOLLOWED
    )
    reward_errors: str = _option(
        "fail",
        "if a reward function raises an error, hangs or returns no number: fail ends the run, zero gives "
        "the rollout 0, drop removes it from its group",
        group="what",
        choices=faults.POLICIES,
        trl=FOLLOWED,
    )
    recipe: str = _option(
        "grpo",
        "the objective",
        group="what",
        choices=recipes.ALL,
        trl=_decides("importance_sampling_level", "loss_type"),
    )
    out: str | None = _option(
        None, "new folder for the run (default: runs/… with the time)", group="what", trl=_decides("output_dir")
    )
    seed: int = _option(0, "seed of all random numbers", group="what", least=0, trl=_same("seed", "data_seed"))

    steps: int = _option(320, "optimiser steps", group="batch", least=1, trl=_same("max_steps", "num_train_epochs"))
    prompts: int = _option(
        32, "prompts per batch of rollouts (P)", group="batch", least=1, trl=_decides("generation_batch_size")
    )
    group: int = _option(
        8,
        "rollouts per prompt (G); auto begins with 8 and moves where that pays, after the first move at most every 20 "
        "steps (recipe rloo or dr_grpo)",
        group="batch",
        least=1,
        trl=_decides("num_generations"),
        type=_group_size,
        metavar="SIZE",
    )
    auto_group: int = _option(
        0,
        "least steps between moves of the group size to one that needs fewer rollouts for the same error, by probes of "
        "the gradient and at equal rollouts a step, 0 for never",
        group="batch",
        least=0,
        trl=FOLLOWED,
    )
    interval: int = _option(
        None,
        "optimiser steps on each batch of rollouts, the refresh interval N (default: the recipe's, which "
        "is 1 except for ppo_critic)",
        group="batch",
        least=1,
        trl=_decides("num_iterations"),
    )
    minibatches: int = _option(
        1,
        "parts a batch is split into, one per step; must divide the interval",
        group="batch",
        least=1,
        trl=_decides("steps_per_generation"),
    )
    allocate: str = _option("uniform", _allocators_described, group="batch", trl=FOLLOWED)
    micro_batch: int = _option(
        0,
        "rollouts per forward pass, 0 to fit memory; does not change the result",
        group="batch",
        least=0,
        trl=_decides("gradient_accumulation_steps", "per_device_train_batch_size"),
    )

    max_tokens: int | None = _option(
        None,
        "longest completion in tokens (default: the task's)",
        group="sampling",
        least=1,
        trl=_decides("max_completion_length"),
    )
    temperature: float = _option(1.0, "sampling temperature", group="sampling", least=1e-3, trl=_same("temperature"))
    top_p: float = _option(
        1.0, "keep the likeliest tokens up to this probability", group="sampling", trl=_same("top_p")
    )
    top_k: int = _option(0, "keep this many likeliest tokens, 0 for all", group="sampling", least=0, trl=_same("top_k"))
    sampler_precision: str = _option(
        "float32",
        "number format in which float32 weights sample on a CPU; rounded weights are faster, and ratios "
        "of the update are relative to their probabilities; int8 is so inexact that some tokens "
        "are clipped",
        group="sampling",
        choices=cpu.PRECISIONS,
        trl="TRL samples in the model's own number format",
    )
    staleness: str = _option(
        "0",
        "least number of optimiser steps by which the sampling weights lag behind, or a range such as 0-8 from "
        "which each group draws its lag; each batch of lag keeps a copy of the weights in memory",
        group="sampling",
        trl="in TRL the trainer decides how old the sampler's weights are",
    )

    optimizer: str = _option("adamw", "optimiser", group="optimiser", choices=OPTIMIZERS, trl=_decides("optim"))
    lr: float | None = _option(
        None,
        "learning rate (default: 4e-4 below 10 M parameters, else 1e-6; a quarter of that for ppo_critic)",
        group="optimiser",
        least=0,
        trl=_decides("learning_rate"),
    )
    momentum: float = _option(0.9, "momentum of SGD, β₁ of Adam and AdamW", group="optimiser", trl=_same("adam_beta1"))
    beta2: float = _option(0.999, "β₂ of Adam and AdamW", group="optimiser", trl=_same("adam_beta2"))
    weight_decay: float = _option(0.0, "weight decay", group="optimiser", least=0, trl=_same("weight_decay"))
    schedule: str = _option(
        "linear",
        "decay of the learning rate to 0",
        group="optimiser",
        choices=SCHEDULES,
        trl=_decides("lr_scheduler_type"),
    )
    warmup: int = _option(
        20,
        "steps over which the learning rate rises from 0",
        group="optimiser",
        least=0,
        trl=_decides("warmup_ratio", "warmup_steps"),
    )
    clip_grad: float = _option(
        1.0, "clip the gradient to this norm, 0 for no clipping", group="optimiser", least=0, trl=_same("max_grad_norm")
    )

    advantage: str | None = _option(
        None,
        "what a rollout's reward is compared with (default: the recipe's)",
        group="objective",
        choices=advantages.ALL,
        trl=_decides("scale_rewards"),
    )
    aggregation: str | None = _option(
        None,
        ("how several rewards are combined into an advantage (default: the recipe's advantage of their weighted sum)"),
        group="objective",
        choices=METHODS,
        trl=_decides("multi_objective_aggregation"),
    )
    constraint: str | None = _option(
        None,
        "a constraint on the rollouts, enforced by a multiplier on the standardized cost: 'length<=200' "
        "(in tokens), 'form>=0.98', 'share(length>300)<=0.05', 'q95(length)<=300'; of one of several "
        "rewards by name, or reward; may be given more than once",
        group="objective",
        trl=FOLLOWED,
        many=True,
    )
    dual_rate: float = _option(
        0.05,
        "step of a multiplier: what a violation as large as the limit adds in one batch",
        group="objective",
        least=0,
        trl=FOLLOWED,
    )
    dual_damping: float = _option(
        0.0,
        "what a violation adds to a multiplier for one batch only, which damps oscillations",
        group="objective",
        least=0,
        trl=FOLLOWED,
    )
    credit: str = _option(
        None,
        lambda: f"{described()} (default: the recipe's, which is outcome except for ppo_critic)",
        group="objective",
        trl=FOLLOWED,
    )
    kl: float | None = _option(
        None,
        "weight of the KL to the starting policy (default: the recipe's)",
        group="objective",
        least=0,
        trl=_decides("beta"),
    )
    divergence: str = _option(
        "k3", "estimator of the KL to the starting policy", group="objective", choices=divergences.ALL, trl=FOLLOWED
    )
    entropy: float | None = _option(
        None,
        "weight of the entropy bonus (default: the recipe's)",
        group="objective",
        least=0,
        trl=_decides("entropy_coef"),
    )
    clip_low: float | None = _option(
        None, "clip range below 1 (default: the recipe's)", group="objective", least=0, trl=_decides("epsilon")
    )
    clip_high: float | None = _option(
        None, "clip range above 1 (default: the recipe's)", group="objective", least=0, trl=_decides("epsilon_high")
    )

    correction: str | None = _option(
        None,
        "importance correction for rollouts drawn by rounded, truncated or earlier weights, from the "
        "ratio of the trainer's to the sampler's probabilities, with bounds: "
        f"{', '.join(corrections.FORMS)}, such as sequence_cap:2; the clip then uses the ratio to the "
        'trainer\'s policy when the batch arrives, also with "none" (default: no correction, and the '
        "clip's ratio includes the mismatch)",
        group="objective",
        trl="TRL corrects the mismatch of vLLM with its own settings (--trl vllm_importance_sampling_mode=…)",
    )

    eval_every: int = _option(
        40,
        "steps between held-out evaluations, 0 for only the first and last",
        group="evaluation",
        least=0,
        trl=FOLLOWED,
    )
    eval_problems: int | None = _option(
        None,
        "held-out problems per evaluation, at most those that the task holds out (of a file about a tenth); 0 for "
        "no evaluation (default: 200 below 10 M parameters, else 8)",
        group="evaluation",
        least=0,
        trl=FOLLOWED,
    )
    eval_samples: int = _option(
        4, "completions per held-out problem, for pass@1 to pass@n", group="evaluation", least=1, trl=FOLLOWED
    )
    eval_temperature: float = _option(
        1.0, "temperature of evaluation, 0 for greedy", group="evaluation", least=0, trl=FOLLOWED
    )

    checkpoint_every: int = _option(
        40,
        "steps between checkpoints, 0 for none; written when a batch ends",
        group="record",
        least=0,
        trl=_decides("save_steps"),
    )
    keep_checkpoints: int = _option(
        2,
        "newest checkpoints to keep, 0 for all; the best held-out one is kept too",
        group="record",
        least=0,
        trl=_decides("save_total_limit"),
    )
    rollouts_every: int = _option(
        20,
        "batches between samples of rollouts that are kept token by token, 0 for none",
        group="record",
        least=0,
        trl="TRL keeps single rollouts in completions/, at every step",
    )
    rollouts_groups: int = _option(
        4,
        "groups in each sample of rollouts that is kept",
        group="record",
        least=1,
        trl="TRL keeps all single rollouts in completions/",
    )
    probe_every: int = _option(
        0,
        "steps between probes of the gradient, 0 for none; taken on fresh batches",
        group="record",
        least=0,
        trl=FOLLOWED,
    )
    verify_every: int = _option(
        0,
        "steps between tests that the run does what its settings say (see grposcope verify), 0 for none; "
        "taken on fresh batches",
        group="record",
        least=0,
        trl=FOLLOWED,
    )
    autopilot: str = _option(
        "off",
        "what to do when monitors show that the run got worse: advise says it, act does it (go back to a sound "
        "checkpoint with another setting, or stop); with limits, act:rollbacks=1,fall=0.2, or a YAML file",
        group="record",
        trl=FOLLOWED,
    )
    probe_prompts: int = _option(4, "prompts per probe, from the batch", group="record", least=1, trl=FOLLOWED)
    log_to: str | None = _option(
        None,
        "also send metrics and alarms to tensorboard, wandb or trackio (separate several with commas)",
        group="record",
        trl=_decides("report_to"),
    )

    dtype: str = _option(
        "float32", "number format of the weights", group="machine", choices=DTYPES, trl=_decides("bf16", "fp16")
    )
    device: str = _option("auto", "cpu, cuda or auto", group="machine", trl=_decides("use_cpu"))
    threads: int = _option(0, "CPU threads, 0 for all cores", group="machine", least=0, trl=FOLLOWED)
    checkpointing: bool = _option(
        False,
        "recompute activations in the backward pass to save memory",
        group="machine",
        trl=_same("gradient_checkpointing"),
    )
    remote_code: bool = _option(
        False, "allow the model's own code from the hub to run", group="machine", trl=_decides("trust_remote_code")
    )

    def __post_init__(self) -> None:
        """Settings left to the recipe become the recipe's; a group size `auto` becomes what it begins with."""
        if self.group == AUTO:  # type: ignore[comparison-overlap]  # which the flag takes
            object.__setattr__(self, "group", GROUP)
            object.__setattr__(self, "auto_group", self.auto_group or PAUSE)
        brought = {"credit": "outcome", "interval": 1, **recipes.DEFAULT_SETTINGS.get(self.recipe, {})}
        for name, value in brought.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def objective(self, max_tokens: int) -> Objective:
        """The recipe with this run's overrides, for completions of at most `max_tokens`."""
        chosen = recipes.ALL[self.recipe].at_length(max_tokens)
        if self.advantage is not None:
            chosen = recipes.with_advantage(chosen, self.advantage)
        if self.kl is not None:
            chosen = replace(chosen, kl=self.kl)
        if self.entropy is not None:
            chosen = replace(chosen, entropy=self.entropy)
        given = {"low": self.clip_low, "high": self.clip_high}
        clips: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if clips:
            if not isinstance(chosen.surrogate, Clip | OneSided | Cispo):
                raise UserError(f"recipe {self.recipe} does not clip; leave out clip_low and clip_high")
            chosen = replace(chosen, surrogate=replace(chosen.surrogate, **clips))
        return replace(chosen, divergence=divergences.ALL[self.divergence])

    def constraints(self) -> tuple[Constraint, ...]:
        """The constraints; UserError for one that cannot be read, and for two that contradict each other."""
        return parse_all([] if self.constraint is None else self.constraint.split(";"))

    def corrected(self) -> Correction | None:
        """The correction for rollouts of another policy; UserError for one that is not known."""
        return None if self.correction is None else corrections.named(self.correction)


def check(config: TrainConfig) -> None:
    """Raise a UserError for settings that cannot work, before anything is loaded."""
    for setting in fields(config):
        value, choices, least = getattr(config, setting.name), setting.metadata["choices"], setting.metadata["least"]
        if value is None:
            continue
        if choices is not None and value not in choices:
            raise UserError(f"unknown {setting.name} {value!r}; use one of {', '.join(choices)}")
        if least is not None and not value >= least:
            raise UserError(f"{setting.name} is {value}; it must be at least {least:g}")
    batch_memory.check({"prompts": config.prompts, "group": config.group}, config.max_tokens)
    for name, most in (("eval_samples", batch_memory.MOST), ("threads", 4096)):
        if getattr(config, name) > most:
            raise UserError(f"{name} is {getattr(config, name)}; it must be at most {most:,}")
    loggers.names(config.log_to)
    tasks.check(config.task, config.reward)
    if not 0 < config.top_p <= 1:
        raise UserError(f"top_p is {config.top_p}; it must be above 0 and at most 1")
    for name in ("momentum", "beta2"):
        if not 0 <= getattr(config, name) < 1:
            raise UserError(f"{name} is {getattr(config, name)}; it must be at least 0 and below 1")
    if config.interval % config.minibatches:
        raise UserError(
            f"interval {config.interval} is not a multiple of minibatches {config.minibatches}, but every part of a "
            f"batch must be used equally often; use an interval of {config.minibatches} or a multiple of "
            "it"
        )
    if config.prompts % config.minibatches:
        raise UserError(
            f"{config.prompts} prompts cannot be split into {config.minibatches} equal minibatches of whole groups"
        )
    Staleness.parse(config.staleness)
    config.corrected()
    config.constraints()
    if config.aggregation not in (None, METHODS[0]) and config.objective(1).overlong:
        raise UserError(
            f"recipe {config.recipe} adds a penalty for overlong completions to the sum of the rewards, which "
            f"aggregation {config.aggregation} does not use; constrain the length, or use another recipe"
        )
    credits.chosen(config.credit).check_group(config.group)
    if config.auto_group:
        _check_moving(config)
    capabilities.check(ENGINE, *parts(config))


def _check_moving(config: TrainConfig) -> None:
    """UserError for settings with which it is not known what another group size would save."""
    plain = {"credit": "outcome", "allocate": "uniform", "staleness": "0", "sampler_precision": "float32",
             "correction": None, "constraint": None}  # fmt: skip
    other = next((name for name, value in plain.items() if getattr(config, name) != value), "")
    if other:
        raise UserError(
            f"auto_group plans for the plain gradient of the run's own rollouts, and {other} is "
            f"{getattr(config, other)}; leave out either"
        )
    comparison = config.objective(1).comparison
    if comparison != "leave-one-out" or config.aggregation not in (None, METHODS[0]):
        raise UserError(
            f"auto_group moves the group size of advantages without a scale of each group, for which that is shown to "
            f"pay, and those of recipe {config.recipe} here are others; leave out auto_group, or use recipe rloo or "
            "dr_grpo"
        )


ENGINE = Part(
    "engine grposcope",
    provides=frozenset({
        PAIRS, ONE_SIZE, UNEVEN, WHOLE_GROUPS, INDEPENDENT, MINIBATCHES, CHOICE, ONE_PROCESS, TOKEN_WEIGHTS, STEP_ENDS,
        STEP_MARK, ENTROPY, FURTHER_ROLLOUTS, MODEL_PASS, TURNS,
    }),
)  # fmt: skip
"""What our own loop provides; labels of steps where the task has them, which `setup.prepare` checks."""


def parts(config: TrainConfig) -> tuple[Part, ...]:
    """The parts of a run that settings choose, with what each needs of an engine and of the others."""
    credit, recipe = credits.chosen(config.credit), recipes.ALL[config.recipe]
    spread = ADVANTAGE in credit.source.provides
    found = [
        credit.part(),
        Part(
            f"recipe {config.recipe}",
            "use another recipe",
            needs=advantages.entry(config.objective(1).advantage).needs if spread else frozenset(),
            lacks={CHOICE: Lack("replaces dead groups itself", "")} if recipe.resample_dead else {},
        ),
        allocation.chosen(config.allocate).part(),
        faults.POLICIES[config.reward_errors],
    ]
    if config.advantage is not None:
        name = f"advantage {config.advantage}"
        found.append(Part(name, f"leave out {name}", needs=frozenset({ADVANTAGE})))
    if config.aggregation is not None:
        name = f"aggregation {config.aggregation}"
        found.append(Part(name, "leave out aggregation", needs=frozenset({ADVANTAGE, PAIRS})))
    if config.constraint is not None:
        found.append(Part(f"constraint {config.constraint}", "leave out constraint", needs=frozenset({PAIRS})))
    if config.probe_every:
        needs = frozenset({INDEPENDENT, ONE_SIZE})
        found.append(Part(f"probe_every {config.probe_every}", "leave out probe_every", needs))
    if config.auto_group:
        found.append(
            Part(f"auto_group {config.auto_group}", "leave out auto_group", frozenset({INDEPENDENT, ONE_SIZE}))
        )
    if config.minibatches > 1:
        found.append(Part(f"minibatches {config.minibatches}", "use 1 minibatch", frozenset({MINIBATCHES})))
    if (correction := config.corrected()) is not None:
        needs = frozenset({ADVANTAGE}) if correction.of_advantage else frozenset()
        found.append(Part(f"correction {correction.name}", "leave out correction", needs))
    if Staleness.parse(config.staleness).most:
        lack = Lack("has rollouts of earlier weights, which the current weights cannot continue", "")
        found.append(Part(f"staleness {config.staleness}", "use staleness 0", lacks={FURTHER_ROLLOUTS: lack}))
    if config.group < 2:
        lack = Lack("has nothing to compare with", "use a group of 2 or more")
        found.append(Part(f"a group of {config.group}", lacks={PAIRS: lack}))
    return tuple(found)
