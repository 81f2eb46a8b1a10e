"""Everything that defines a training run, with its checks.

The flags of `grposcope train` are these fields. A field with `choices` takes the names of that dict, so that a new
recipe, advantage, source of credit, optimiser, … is a flag's value as soon as it is in its dict; `least` is the
smallest value that a field may have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from typing import Any

from grposcope import allocation, tasks
from grposcope import credit as credits
from grposcope.credit import described
from grposcope.errors import UserError
from grposcope.objectives import Objective, advantages, divergences, recipes
from grposcope.objectives.surrogates import Cispo, Clip
from grposcope.tasks import faults
from grposcope.training import loggers, native
from grposcope.training.extras import check_group
from grposcope.training.optimizer import OPTIMIZERS, SCHEDULES

DTYPES = ("float32", "bfloat16")


def _option(
    default: Any,
    help: str | Callable[[], str],
    group: str,
    choices: Collection[str] | None = None,
    least: float | None = None,
) -> Any:
    """A field with its help text, the group of its flag, and its values: a name of `choices`, or at least `least`."""
    return field(default=default, metadata={"help": help, "group": group, "choices": choices, "least": least})


@dataclass(frozen=True)
class TrainConfig:
    """Settings of `grposcope train`; the help text of each field says what it means and its unit."""

    model: str = _option("tiny", "tiny, smollm2, a model folder, or a Hugging Face hub name", group="what")
    task: str = _option("arithmetic", tasks.forms, group="what")
    reward: str | None = _option(None, "your own reward function, module:function (with jsonl:PATH)", group="what")
    reward_timeout: float = _option(300.0, "seconds that grading a batch may take, 0 for no limit", group="what",
                                    least=0)  # fmt: skip
    reward_errors: str = _option("fail", "a rollout whose reward raises, hangs or is no number: fail ends the run, "
                                 "zero gives it 0, drop takes it out of its group", group="what",
                                 choices=faults.POLICIES)  # fmt: skip
    recipe: str = _option("grpo", "the objective", group="what", choices=recipes.ALL)
    out: str | None = _option(None, "folder for the run, made new (default: runs/… with the time)", group="what")
    seed: int = _option(0, "seed of everything random", group="what", least=0)

    steps: int = _option(320, "optimiser steps", group="batch", least=1)
    prompts: int = _option(32, "prompts per batch of rollouts (P)", group="batch", least=1)
    group: int = _option(8, "rollouts per prompt (G)", group="batch", least=1)
    interval: int = _option(None, "optimiser steps taken on each batch of rollouts, the refresh interval N (default: "
                            "the recipe's, which is 1 but for ppo_critic)", group="batch", least=1)  # fmt: skip
    minibatches: int = _option(
        1, "parts a batch is split into, a part per step; divides the interval", group="batch", least=1
    )
    allocate: str = _option("uniform", allocation.described, group="batch")
    micro_batch: int = _option(0, "rollouts per forward pass, 0 to fit memory; does not change the result",
                               group="batch", least=0)  # fmt: skip

    max_tokens: int | None = _option(
        None, "longest completion in tokens (default: the task's)", group="sampling", least=1
    )
    temperature: float = _option(1.0, "sampling temperature", group="sampling", least=1e-3)
    top_p: float = _option(1.0, "keep the likeliest tokens up to this probability", group="sampling")
    top_k: int = _option(0, "keep this many likeliest tokens, 0 for all", group="sampling", least=0)
    sampler_precision: str = _option(
        "float32", "number format in which float32 weights sample on a CPU; rounded ones are faster, and the update's "
        "ratios are then to the probabilities that they drew with; int8 is so far off that clips reach some",
        group="sampling", choices=native.PRECISIONS,
    )  # fmt: skip

    optimizer: str = _option("adamw", "optimiser", group="optimiser", choices=OPTIMIZERS)
    lr: float | None = _option(None, "learning rate (default: 4e-4 below 10 M parameters, else 1e-6; of ppo_critic a "
                               "quarter)", group="optimiser", least=0)  # fmt: skip
    momentum: float = _option(0.9, "momentum of SGD, β₁ of Adam and AdamW", group="optimiser")
    beta2: float = _option(0.999, "β₂ of Adam and AdamW", group="optimiser")
    weight_decay: float = _option(0.0, "weight decay", group="optimiser", least=0)
    schedule: str = _option("linear", "decay of the learning rate to 0", group="optimiser",
                            choices=SCHEDULES)  # fmt: skip
    warmup: int = _option(20, "steps over which the learning rate rises from 0", group="optimiser", least=0)
    clip_grad: float = _option(1.0, "largest gradient norm, 0 for no limit", group="optimiser", least=0)

    advantage: str | None = _option(None, "what a rollout's reward is compared with (default: the recipe's)",
                                    group="objective", choices=advantages.ALL)  # fmt: skip
    credit: str = _option(None, lambda: f"{described()} (default: the recipe's, which is outcome but for ppo_critic)",
                          group="objective")  # fmt: skip
    kl: float | None = _option(None, "weight of the KL to the starting policy (default: the recipe's)",
                               group="objective", least=0)  # fmt: skip
    divergence: str = _option("k3", "estimator of that KL", group="objective", choices=divergences.ALL)
    entropy: float | None = _option(
        None, "weight of the entropy bonus (default: the recipe's)", group="objective", least=0
    )
    clip_low: float | None = _option(None, "clip range below 1 (default: the recipe's)", group="objective", least=0)
    clip_high: float | None = _option(None, "clip range above 1 (default: the recipe's)", group="objective", least=0)

    eval_every: int = _option(40, "steps between held-out evaluations, 0 for the first and last only",
                              group="evaluation", least=0)  # fmt: skip
    eval_problems: int | None = _option(None, "held-out problems per evaluation, 0 for no evaluation (default: 200 "
                                        "below 10 M parameters, else 8)", group="evaluation", least=0)  # fmt: skip
    eval_samples: int = _option(
        4, "completions per held-out problem, for pass@1 to pass@n", group="evaluation", least=1
    )
    eval_temperature: float = _option(1.0, "temperature of evaluation, 0 for greedy", group="evaluation", least=0)

    checkpoint_every: int = _option(
        40, "steps between checkpoints, 0 for none; taken where a batch ends", group="record", least=0
    )
    keep_checkpoints: int = _option(2, "newest checkpoints to keep, 0 for all; the best held-out one is kept too",
                                    group="record", least=0)  # fmt: skip
    rollouts_every: int = _option(20, "batches between samples of rollouts kept token by token, 0 for none",
                                  group="record", least=0)  # fmt: skip
    rollouts_groups: int = _option(4, "groups in such a sample", group="record", least=1)
    probe_every: int = _option(0, "steps between probes of the gradient's geometry, 0 for none; taken where a batch is "
                               "fresh", group="record", least=0)  # fmt: skip
    probe_prompts: int = _option(4, "prompts of the batch in such a probe", group="record", least=1)
    log_to: str | None = _option(
        None,
        "send metrics and alarms (warnings and failures) on to tensorboard, wandb, trackio (with commas)",
        group="record",
    )

    dtype: str = _option("float32", "number format of the weights", group="machine", choices=DTYPES)
    device: str = _option("auto", "cpu, cuda or auto", group="machine")
    threads: int = _option(0, "CPU threads, 0 for all cores", group="machine", least=0)
    checkpointing: bool = _option(False, "recompute activations in the backward pass to save memory",
                                  group="machine")  # fmt: skip
    remote_code: bool = _option(False, "allow the model's own code from the hub to run", group="machine")

    def __post_init__(self) -> None:
        """Settings that were left to the recipe become the recipe's."""
        brought = {"credit": "outcome", "interval": 1, **recipes.BESIDES.get(self.recipe, {})}
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
            if not isinstance(chosen.surrogate, Clip | Cispo):
                raise UserError(f"recipe {self.recipe} does not clip; leave out clip_low and clip_high")
            chosen = replace(chosen, surrogate=replace(chosen.surrogate, **clips))
        return replace(chosen, divergence=divergences.ALL[self.divergence])


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
    loggers.names(config.log_to)
    if not 0 < config.top_p <= 1:
        raise UserError(f"top_p is {config.top_p}; it must be above 0 and at most 1")
    for name in ("momentum", "beta2"):
        if not 0 <= getattr(config, name) < 1:
            raise UserError(f"{name} is {getattr(config, name)}; it must be at least 0 and below 1")
    if config.interval % config.minibatches:
        raise UserError(
            f"interval {config.interval} is no multiple of minibatches {config.minibatches}: every part of a batch is "
            f"used equally often, so use an interval of {config.minibatches} or a multiple of it"
        )
    if config.prompts % config.minibatches:
        raise UserError(
            f"{config.prompts} prompts cannot be split into {config.minibatches} equal minibatches of whole groups"
        )
    credit = credits.chosen(config.credit)
    source = credit.source
    if config.advantage is not None and not source.uses_advantage:
        raise UserError(
            f"credit {config.credit} compares the rewards of steps itself and uses no advantage; leave out advantage "
            f"{config.advantage}, or use credit outcome"
        )
    if config.reward_errors == "drop" and config.credit != "outcome":
        raise UserError(
            f"credit {config.credit} compares single tokens of a group, which reward_errors drop would leave with "
            "gaps; use credit outcome, or reward_errors zero"
        )
    check_group(credit, config.group)
    if source.generates == "tree" and config.probe_every:
        raise UserError(
            f"credit {config.credit}: a probe takes the rollouts of a group as independent, which the leaves of a tree "
            "are not; leave out probe_every, or use another credit"
        )
    _check_allocation(config)
    if config.group == 1 and source.needs_group:
        raise UserError(
            f"credit {config.credit} compares a rollout with the others of its group, and a group of 1 has none; use a "
            "group of 2 or more"
        )
    if config.group == 1 and source.uses_advantage and advantages.needs_group(config.objective(1).advantage):
        raise UserError(
            f"recipe {config.recipe} compares the rollouts of a group, and a group of 1 leaves nothing to compare: "
            "every advantage would be 0; use a group of 2 or more, or recipe reinforce"
        )


def _check_allocation(config: TrainConfig) -> None:
    """UserError for settings that do not go with the way rollouts are allocated."""
    chosen = allocation.chosen(config.allocate)
    name, budget = f"allocate {config.allocate}", config.prompts * config.group
    if chosen.name != "uniform" and recipes.ALL[config.recipe].resample_dead:
        raise UserError(
            f"recipe {config.recipe} replaces dead groups itself, as allocate resample does; leave out {name}, or use "
            "another recipe"
        )
    if chosen.plain:
        return
    if config.group < 2:
        raise UserError(
            f"{name}: a budget of {budget} rollouts for {config.prompts} prompts is under two per prompt drawn, and "
            "one alone has nothing to be compared with; use a group of 2 or more"
        )
    first = chosen.values.get("first", 1)
    if budget < 2 * first:
        raise UserError(
            f"{name}: a budget of {budget} rollouts, prompts times group, does not pay a screening of {first} rollouts "
            "and as many further ones; raise one of them"
        )
    if config.minibatches > 1:
        raise UserError(f"{name} draws batches of varying numbers of groups; use 1 minibatch")
    if credits.chosen(config.credit).source.generates:
        raise UserError(
            f"credit {config.credit} generates more than a group of rollouts for each prompt, which {name} does not "
            "count; use another credit, or leave out allocate"
        )
    if credits.chosen(config.credit).source.needs:
        raise UserError(
            f"credit {config.credit} asks a model about every token of a batch, which {name} does not wait for; use "
            "another credit, or leave out allocate"
        )
    if chosen.ragged and (config.credit != "outcome" or config.probe_every):
        what = f"credit {config.credit}" if config.credit != "outcome" else "probe_every"
        alone = f"allocate {chosen.name}:sizes=one, or " if "sizes" in chosen.values else ""
        raise UserError(
            f"{what} needs groups of one size, and {name} makes them differ; use {alone}"
            f"{'credit outcome' if config.credit != 'outcome' else 'leave out probe_every'}"
        )
