"""What is checked before a run: TRL's methods, reward functions, and settings that do not go together, a line each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from grposcope.credit import Chosen
from grposcope.engines.trl import settings
from grposcope.errors import UserError
from grposcope.objectives import advantages, recipes
from grposcope.records import Rollouts

METHODS = {
    "_generate_and_score_completions": ("self", "inputs"),
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
}
"""Methods of TRL's trainer that ours overrides, with the parameters that they must have."""

GIVEN = ("trainer_state", "log_extra", "log_metric")
"""What TRL hands to a reward function besides prompts, completions, completion_ids and the columns of the dataset."""


def methods(kind: type) -> None:
    """UserError unless the class of a trainer has the METHODS as they are known here."""
    for name, expected in METHODS.items():
        found = inspect.getattr_static(kind, name, None)
        has = tuple(inspect.signature(found).parameters) if callable(found) else None
        if has != expected:
            what = "is not there" if has is None else f"takes ({', '.join(has)}) instead of ({', '.join(expected)})"
            raise UserError(
                f"TRL {_version()}: {kind.__name__}.{name} {what}, so that GRPOscope cannot attach to it; use a "
                "version of TRL that docs/howto/trl.md names, or GRPOscopeCallback, which needs none of its methods"
            )


def _version() -> str:
    try:
        return version("trl")
    except PackageNotFoundError:
        return "of unknown version"


def batch(args: Any) -> None:
    """UserError unless a batch of rollouts consists of whole groups and each process has an equal part of it."""
    group, whole = args.num_generations, args.generation_batch_size
    part = args.per_device_train_batch_size * args.world_size
    if whole % group:
        raise UserError(
            f"num_generations {group} does not divide the batch of {whole} rollouts (per_device_train_batch_size × "
            f"processes × steps_per_generation); make the batch a multiple of {group}"
        )
    if whole % part:
        raise UserError(
            f"the batch of {whole} rollouts cannot be shared by {args.world_size} processes with "
            f"per_device_train_batch_size {args.per_device_train_batch_size}; make it a multiple of {part}"
        )


def processes(trainer: Any) -> None:
    """UserError where the weights are spread over processes in a way that a probe during training cannot measure."""
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    found = None
    if trainer.is_deepspeed_enabled:
        found = "DeepSpeed keeps the weights and their gradients in arrays of its own", "use FSDP2 (fsdp=True)"
    elif plugin is not None and plugin.fsdp_version != 2:
        found = "FSDP1 flattens the weights of a block into one array", "set version 2 in fsdp_config"
    elif plugin is not None and getattr(plugin.cpu_offload, "pin_memory", None) is not None:
        found = "FSDP2 keeps the weights on the CPU", "leave cpu_offload out of fsdp_config"
    elif plugin is not None and plugin.activation_checkpointing:
        found = "FSDP's activation_checkpointing wraps the blocks", "use gradient_checkpointing instead"
    if found is not None:
        raise UserError(
            f"probe_every: {found[0]}, which a probe during training cannot measure; {found[1]}, or leave probe_every "
            "out and probe a checkpoint afterwards with grposcope probe"
        )


def probed_rollouts(prompts: int, args: Any) -> None:
    """UserError unless a probe has a rollout for every process."""
    count = min(prompts * args.num_generations, args.generation_batch_size)
    if count < args.world_size:
        raise UserError(
            f"a probe of {count} rollouts (probe_prompts {prompts} × num_generations {args.num_generations}) cannot be "
            f"shared by {args.world_size} processes; raise probe_prompts"
        )


def rewards(functions: Iterable[Any], columns: Iterable[str] | None, given: tuple[str, ...] = GIVEN) -> None:
    """UserError for a reward function that cannot take what TRL passes, by name.

    columns: of the dataset; None where they are not known, so that only a function without **kwargs is looked at.
    """
    known = ("prompts", "completions", "completion_ids", *given)
    others = [] if columns is None else [name for name in columns if name not in ("prompt", "completion")]
    for function in functions:
        if isinstance(function, torch.nn.Module) or not callable(function):
            continue
        called = getattr(function, "__name__", type(function).__name__)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # built in: nothing is known of it
            continue
        if columns is None and not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            others = [name for name in signature.parameters if name not in known]
        try:
            signature.bind(**dict.fromkeys([*known, *others]))
        except TypeError as error:
            raise UserError(
                f"{called}{signature}: {error}; TRL passes {', '.join([*known, *others])}, all by name, so write "
                f"def {called}(completions, **kwargs)"
            ) from None


def credit(chosen: Chosen, advantage: str | None, step_rewards: Callable[..., Any] | None, args: Any) -> None:
    """UserError where credit, advantage and TRL's loss do not go together."""
    source, name = chosen.source, chosen.name
    if advantage is not None and advantage not in advantages.ALL:
        raise UserError(f"unknown advantage {advantage!r}; use one of {', '.join(advantages.ALL)}")
    if advantage is not None and not source.uses_advantage:
        raise UserError(
            f"credit {name} compares rewards itself and uses no advantage; leave out advantage {advantage}, or use "
            "credit outcome"
        )
    if source.generates:
        raise UserError(
            f"credit {name} needs {'trees' if source.generates == 'tree' else 'continuations'}, which TRL does not "
            "generate; use grposcope train with the engine grposcope, or another credit"
        )
    if source.needs:
        raise UserError(
            f"credit {name} needs a further pass of a model over every batch, which TRL's trainer does not make; use "
            "engine grposcope"
        )
    if source.needs_steps and step_rewards is None:
        raise UserError(
            f"credit {name} needs the rewards of single steps; give step_rewards, a function that is called as a "
            "reward function is and returns for each completion a list of (end, reward)"
        )
    if step_rewards is not None and not source.needs_steps:
        raise UserError(f"step_rewards is given and credit {name} does not read it; use credit steps, or leave it out")
    if advantage is not None or (source.uses_advantage and name != "outcome"):
        _advantage_of_sum(args)
    if name == "outcome":
        return
    if settings.is_rloo(args):
        raise UserError(f"credit {name} varies along a completion, and RLOOTrainer's loss weighs completions as wholes")
    for setting, why in (
        ("importance_sampling_level", _SEQUENCE if args.importance_sampling_level == "sequence" else ""),
        ("off_policy_mask_threshold", _MASK if getattr(args, "off_policy_mask_threshold", None) is not None else ""),
        ("loss_type", _VESPO if args.loss_type == "vespo" else ""),
    ):
        if why:
            raise UserError(f"credit {name} varies along a completion, and {setting}={getattr(args, setting)} {why}")
    _measurable(chosen)


def _advantage_of_sum(args: Any) -> None:
    """UserError where TRL does more to the rewards than to add them up before it compares them."""
    together = getattr(args, "multi_objective_aggregation", "sum_then_normalize")
    lost = [f"multi_objective_aggregation={together} compares every reward function by itself"]
    lost = lost if together != "sum_then_normalize" else []
    if settings.is_rloo(args):
        lost += [f"beta={args.beta:g} takes the divergence from the reference off the rewards"] if args.beta else []
        lost += ["reward_clip_range changes the rewards"] if args.reward_clip_range else []
    if lost:
        raise UserError(f"an advantage of ours compares sums of rewards, and {lost[0]}; leave out one of the two")


_SEQUENCE = (
    "puts one ratio in front of the sum over its tokens, which averages the credit away: this is not the token form of "
    "GSPO; use importance_sampling_level='token'"
)
_MASK = "keeps or drops a completion by the sign of its one advantage; leave it out"
_VESPO = "weighs a completion by the sign of its one advantage; use another loss"


def _measurable(chosen: Chosen) -> None:
    """UserError for credit that needs what TRL does not hand over: the policy's entropies or log-probabilities."""
    mask = torch.ones(2, 3, dtype=torch.bool)
    ids, none = torch.arange(6).reshape(2, 3), torch.zeros(2, dtype=torch.bool)
    ends = torch.tensor([[False, False, True]]).repeat(2, 1)
    rewards = torch.tensor([[0.0, 1.0]]).double()
    given = []
    for values in ([0.1, 1.0, 3.0], [3.0, 0.1, 1.0]):
        sampled = torch.tensor([values]).repeat(2, 1)
        one = Rollouts(ids, mask, ids, mask, -sampled, sampled, none, rewards, ends.double(), ends)
        given.append(chosen.assign(recipes.GRPO, one))
    if not torch.equal(*given):
        raise UserError(f"credit {chosen.name} needs the policy's entropy at every token, which TRL does not hand over")
