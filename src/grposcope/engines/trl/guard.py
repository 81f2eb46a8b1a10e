"""What is checked before a run: TRL's methods, reward functions, and settings that do not go together, a line each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

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
    STEP_READER,
    SUMMED_REWARDS,
    TOKEN_WEIGHTS,
    UNEVEN,
    WHOLE_GROUPS,
    Capability,
    Lack,
    Part,
)
from grposcope.core.errors import UserError
from grposcope.engines.trl import settings
from grposcope.lab.credit import Chosen
from grposcope.lab.objectives import advantages
from grposcope.maths import aggregation as aggregations

METHODS = {
    "_generate_and_score_completions": ("self", "inputs"),
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
}
"""Methods of TRL's trainer that ours overrides, with the parameters that they must have."""

GIVEN = ("trainer_state", "log_extra", "log_metric")
"""What TRL hands to a reward function besides prompts, completions, completion_ids and the columns of the dataset."""


def methods(kind: type, wanted: Mapping[str, tuple[str, ...]] = METHODS) -> None:
    """UserError unless the class of a trainer has these methods as they are known here."""
    for name, expected in wanted.items():
        attribute = inspect.getattr_static(kind, name, None)
        has = tuple(inspect.signature(attribute).parameters) if callable(attribute) else None
        if has != expected:
            what = "does not exist" if has is None else f"takes ({', '.join(has)}) instead of ({', '.join(expected)})"
            raise UserError(
                f"TRL {_version()}: {kind.__name__}.{name} {what}, so GRPOscope cannot attach to it; use a "
                "version of TRL that docs/howto/trl.md names, or GRPOscopeCallback, which needs none of its "
                "methods"
            )


def _version() -> str:
    try:
        return version("trl")
    except PackageNotFoundError:
        return "of unknown version"


def batch(args: Any) -> None:
    """UserError unless a batch of rollouts consists of whole groups and each process has an equal part of it."""
    group, whole = args.num_generations, args.generation_batch_size
    batch = args.per_device_train_batch_size * args.world_size
    if whole % group:
        raise UserError(
            f"num_generations {group} does not divide the batch of {whole} rollouts (per_device_train_batch_size × "
            f"processes × steps_per_generation); make the batch a multiple of {group}"
        )
    if whole % batch:
        raise UserError(
            f"the batch of {whole} rollouts cannot be shared by {args.world_size} processes with "
            f"per_device_train_batch_size {args.per_device_train_batch_size}; make it a multiple of {batch}"
        )


def processes(trainer: Any) -> None:
    """UserError where the weights are spread over processes in a way that a probe during training cannot measure."""
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    refusal = None
    if trainer.is_deepspeed_enabled:
        refusal = "DeepSpeed keeps the weights and their gradients in arrays of its own", "use FSDP2 (fsdp=True)"
    elif plugin is not None and plugin.fsdp_version != 2:
        refusal = "FSDP1 flattens the weights of a block into one array", "set version 2 in fsdp_config"
    elif plugin is not None and getattr(plugin.cpu_offload, "pin_memory", None) is not None:
        refusal = "FSDP2 keeps the weights on the CPU", "leave cpu_offload out of fsdp_config"
    elif plugin is not None and plugin.activation_checkpointing:
        refusal = "FSDP's activation_checkpointing wraps the blocks", "use gradient_checkpointing instead"
    if refusal is not None:
        raise UserError(
            f"probe_every: {refusal[0]}, which a probe during training cannot measure; {refusal[1]}, or leave "
            "probe_every out and probe a checkpoint afterwards with grposcope probe"
        )


def probed_rollouts(prompts: int, args: Any) -> None:
    """UserError unless a probe has a rollout for every process."""
    count = min(prompts * args.num_generations, args.generation_batch_size)
    if count < args.world_size:
        raise UserError(
            f"a probe of {count} rollouts (probe_prompts {prompts} × num_generations {args.num_generations}) cannot be "
            f"shared by {args.world_size} processes; raise probe_prompts"
        )


def rewards(
    functions: Iterable[Any], columns: Iterable[str] | None, given: tuple[str, ...] = GIVEN, further: bool = False
) -> None:
    """UserError for a reward function that cannot take what TRL passes, by name.

    columns: of the dataset; None where they are not known, so that only a function without **kwargs is looked at.
    further: whether a rollout_func may pass others, so that a function with **kwargs may ask for any.
    """
    arguments_known = ("prompts", "completions", "completion_ids", *given)
    others = [] if columns is None else [name for name in columns if name not in ("prompt", "completion")]
    for function in functions:
        if isinstance(function, torch.nn.Module) or not callable(function):
            continue
        called = getattr(function, "__name__", type(function).__name__)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # built in: nothing is known of it
            continue
        takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        if further and takes_any:
            continue
        if columns is None and not takes_any:
            others = [name for name in signature.parameters if name not in arguments_known]
        try:
            signature.bind(**dict.fromkeys([*arguments_known, *others]))
        except TypeError as error:
            raise UserError(
                f"{called}{signature}: {error}; TRL passes {', '.join([*arguments_known, *others])}, all by name, so "
                f"write def {called}(completions, **kwargs)"
            ) from None


def engine(processes: int = 1) -> Part:
    """What a trainer of TRL provides to a run, in so many processes."""
    provided = frozenset({
        PAIRS, ONE_SIZE, WHOLE_GROUPS, INDEPENDENT, MINIBATCHES, CHOICE, ONE_PROCESS, TOKEN_WEIGHTS, SUMMED_REWARDS,
        STEP_ENDS, STEP_MARK,
    })  # fmt: skip
    lacks = {
        FURTHER_ROLLOUTS: Lack("does not generate them", ""),
        MODEL_PASS: Lack("does not make it", ""),
        ENTROPY: Lack("does not hand it over", ""),
        UNEVEN: Lack("has batches of a fixed size", ""),
    }
    if processes > 1:
        lacks[ONE_PROCESS] = Lack(f"runs in {processes}", "start it without torchrun")
    return Part("engine trl", "use engine grposcope", provides=provided, lacks=lacks)


def credit(
    chosen: Chosen,
    advantage: str | None,
    step_rewards: Callable[..., Any] | None,
    args: Any,
    aggregation: str | None = None,
) -> None:
    """UserError where credit, advantage, aggregation and TRL's loss do not go together."""
    if advantage is not None and advantage not in advantages.ALL:
        raise UserError(f"unknown advantage {advantage!r}; use one of {', '.join(advantages.ALL)}")
    if aggregation is not None and aggregation not in aggregations.METHODS:
        raise UserError(f"unknown aggregation {aggregation!r}; use one of {', '.join(aggregations.METHODS)}")
    source, parts = chosen.source, [*_loss(args), chosen.part()]
    if step_rewards is None:
        parts.append(Part("this trainer", lacks={STEP_ENDS: Lack("was given none", _STEPS)}))
    else:
        parts.append(Part("step_rewards", "leave it out", needs=frozenset({STEP_READER})))
    if aggregation is not None:
        name = f"aggregation {aggregation}"
        own = Part(name, f"leave out {name}", needs=frozenset({ADVANTAGE, SUMMED_REWARDS, PAIRS}))
        capabilities.check(engine(), *parts, own)
        parts.append(_taking(SUMMED_REWARDS, name, "compares every reward function"))
    if advantage is not None:
        name = f"advantage {advantage}"
        parts.append(Part(name, f"leave out {name}", needs=frozenset({ADVANTAGE, SUMMED_REWARDS})))
    elif aggregation is None and ADVANTAGE in source.provides and not source.whole:
        parts.append(Part(f"credit {chosen.name}", "use another credit", needs=frozenset({SUMMED_REWARDS})))
    capabilities.check(engine(), *parts)


_STEPS = (
    "give step_rewards, a function that is called as a reward function is and returns for each completion a list of "
    "(end, reward)"
)


def _loss(args: Any) -> Iterator[Part]:
    """What settings of TRL take away: the weight of single tokens, and rewards that are merely added up."""
    rloo, threshold = settings.is_rloo(args), getattr(args, "off_policy_mask_threshold", None)
    together = getattr(args, "multi_objective_aggregation", "sum_then_normalize")
    if rloo:
        yield _taking(TOKEN_WEIGHTS, "RLOOTrainer's loss", "weighs whole completions", "use GRPOTrainer")
    elif args.importance_sampling_level == "sequence":
        yield _taking(TOKEN_WEIGHTS, "importance_sampling_level=sequence", _SEQUENCE, "use 'token' for it")
    if threshold is not None:
        yield _taking(TOKEN_WEIGHTS, f"off_policy_mask_threshold={threshold}", _MASK)
    if getattr(args, "loss_type", "") == "vespo":
        yield _taking(TOKEN_WEIGHTS, "loss_type=vespo", _VESPO, "use another loss")
    if together != "sum_then_normalize":
        yield _taking(SUMMED_REWARDS, f"multi_objective_aggregation={together}", "compares every reward function")
    if rloo and args.beta:
        yield _taking(SUMMED_REWARDS, f"beta={args.beta:g}", "subtracts the divergence from the rewards")
    if rloo and args.reward_clip_range:
        yield _taking(SUMMED_REWARDS, "reward_clip_range", "changes the rewards")


def _taking(lost: Capability, setting: str, why: str, remedy: str = "leave that out") -> Part:
    return Part(setting, lacks={lost: Lack(why, remedy)})


_SEQUENCE = (
    "puts one ratio in front of the sum over its tokens, which averages credit away and is not the token form of GSPO"
)
_MASK = "keeps or drops a completion by the sign of its one advantage"
_VESPO = "weighs a completion by the sign of its one advantage"
