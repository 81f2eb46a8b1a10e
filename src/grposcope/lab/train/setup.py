"""Setup of a run: task, model, objective and optimiser, loaded and checked against each other."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import numpy as np
import torch
from transformers import PreTrainedModel

from grposcope.core import capabilities
from grposcope.core.capabilities import STEP_ENDS
from grposcope.core.environment import environment
from grposcope.core.errors import UserError
from grposcope.core.text import visible
from grposcope.lab import allocation, batch_memory, cpu, policies, tasks
from grposcope.lab.credit import chosen
from grposcope.lab.objectives import Objective, recipes
from grposcope.lab.policies import Policy
from grposcope.lab.sampling import generation, pass_cost
from grposcope.lab.sampling.annotation import AnnotationContext, Annotator
from grposcope.lab.sampling.annotators import annotator
from grposcope.lab.sampling.critic import Critic
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.generation import Generation
from grposcope.lab.sampling.pass_cost import autograd_bytes
from grposcope.lab.sampling.rollouts import Batch, collect, generator
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks import Problem, Task
from grposcope.lab.tasks.base import part as task_part
from grposcope.lab.tasks.faults import ErrorPolicy
from grposcope.lab.train import optimizer as optimizers
from grposcope.lab.train.config import ENGINE, TrainConfig
from grposcope.lab.train.stale_weights import Staleness, StaleWeights
from grposcope.logs.native.schema import ModelInfo, RunConfig
from grposcope.maths.aggregation import METHODS, Aggregation
from grposcope.maths.constraints import LENGTH, Constraint

logger = logging.getLogger("grposcope")

PROMPTS_LOOKED_AT = 1_000
"""Training prompts that are searched for what the model cannot read, at most."""


@dataclass(frozen=True)
class Setup:
    """The parts of a run, loaded and checked.

    reference: the starting policy, kept when the objective has a KL term. micro_batch: rollouts per
    forward pass. lr: the peak learning rate. annotator: of the tokens, where the credit needs one. stale: the earlier
    weights that draw rollouts, None where the current ones do.
    """

    config: TrainConfig
    task: Task
    train_set: Sequence[Problem]
    heldout: Sequence[Problem]
    policy: Policy
    reference: PreTrainedModel | None
    objective: Objective
    sampling: Sampling
    optimizer: torch.optim.Optimizer
    lr: float
    micro_batch: int
    generation: Generation
    annotator: Annotator | None = None
    stale: StaleWeights | None = None

    @property
    def critic(self) -> Critic | None:
        """The critic, where the credit has one."""
        return self.annotator if isinstance(self.annotator, Critic) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is said before the first step: of problems that cannot be evaluated, and of prompts the model cannot
        read."""
        lines = self._fewer_evaluated, _strange_prompts(self.policy, self.train_set)
        return tuple(line for line in lines if line)

    @property
    def _fewer_evaluated(self) -> str:
        """That fewer problems are evaluated than `eval_problems` asks for, and why; empty where all are."""
        asked, there = self.config.eval_problems, len(self.heldout)
        if asked is None or there >= asked:
            return ""
        return (
            f"each evaluation is over {there:,} problems, not {asked:,}: of {there + len(self.train_set):,} the task "
            "holds out no more, and the others are trained on; add problems, or evaluate on a file of its own with "
            "grposcope evaluate"
        )

    @property
    def needs_steps(self) -> bool:
        """Whether the rollouts must carry rewards of their steps."""
        return self.generation.credit.source.requires(STEP_ENDS)

    def collect(self, seed: int, position: int, given: Sequence[Problem] | None = None) -> Batch:
        """A batch of graded rollouts as the settings ask for, on the training problems from `position` on, or on those.

        Where the credit needs continuations, or more of every token, the rollouts have them.
        """
        policy_here: ErrorPolicy = self.config.reward_errors  # type: ignore[assignment]  # one of the choices
        batch = collect(
            self.policy,
            self.task,
            self.train_set,
            self.objective,
            self.sampling,
            (self.config.prompts, self.config.group),
            seed,
            position,
            label_steps=self.needs_steps,
            reward_timeout=self.config.reward_timeout,
            reward_errors=policy_here,
            tree=self.generation.tree,
            given=given,
            samplers=None if self.stale is None else self.stale.groups,
            turn_values=self.generation.turn_values,
        )
        began = time.perf_counter()
        rollouts, continuations = self.generation.continued(
            self.policy,
            self.task,
            batch.problems,
            batch.rollouts,
            self.objective,
            DrawSettings(self.sampling, reward_timeout=self.config.reward_timeout, reward_errors=policy_here),
            generator(seed, "continuations", position, device=self.policy.model.device),
        )
        if self.annotator is not None:
            rollouts = self.annotator(batch.rollouts, batch.problems)
            seconds = time.perf_counter() - began
            return replace(batch, rollouts=rollouts, sample_seconds=batch.sample_seconds + seconds)
        if continuations is None:
            return batch
        return replace(
            batch,
            rollouts=rollouts,
            continuations=continuations,
            tokens=batch.tokens + self.generation.credit.source.charged * continuations.tokens,
            sample_seconds=batch.sample_seconds + time.perf_counter() - began,
        )


def prepare(config: TrainConfig) -> Setup:
    """Load task and model and build what the loop needs; UserError where they do not fit together."""
    if config.threads:
        torch.set_num_threads(config.threads)
    task = tasks.load(config.task, config.reward)
    credit = chosen(config.credit)
    capabilities.check(ENGINE, task_part(task), credit.part())
    train_set, heldout = task.problems("train"), task.problems("heldout")
    policy = policies.load(
        config.model, getattr(torch, config.dtype), policies.device(config.device), config.remote_code
    )
    evaluated = config.eval_problems if config.eval_problems is not None else 200 if policy.small else 8
    sampling = Sampling(
        config.max_tokens or task.max_tokens,
        config.temperature,
        config.top_k,
        config.top_p,
        config.sampler_precision,
        processed=config.correction is not None,
    )
    if sampling.max_tokens >= policy.context:
        raise UserError(
            f"completions of {sampling.max_tokens} tokens leave no room for a prompt in the {policy.context} tokens of "
            f"context of model {policy.name}; lower max_tokens"
        )
    batch_memory.check(
        {"prompts": config.prompts, "group": config.group}, sampling.max_tokens, cache_bytes(policy),
        free=policies.available_memory(policy.model.device),
    )  # fmt: skip
    objective = config.objective(sampling.max_tokens)
    if allocation.chosen(config.allocate).allocator.replaces_dead:
        objective = replace(objective, resample_dead=True)
    objective = _of_several(config, objective, task)
    size = config.micro_batch or micro_batch(policy, sampling.max_tokens)
    _check_training(policy, config, bool(objective.kl), size, sampling.max_tokens)
    reference = copy.deepcopy(policy.model).requires_grad_(False) if objective.kl else None
    if config.checkpointing:
        policies.recompute_activations(policy.model)
    lr = (
        policy.learning_rate * recipes.LEARNING_RATE_FACTORS.get(config.recipe, 1.0) if config.lr is None else config.lr
    )
    optimizer = optimizers.build(policy.model.parameters(), lr, config)
    staleness = Staleness.parse(config.staleness)
    context = AnnotationContext(policy, config.temperature, size, task.instruction, config.remote_code)
    return Setup(
        config=config,
        task=task,
        train_set=train_set,
        heldout=heldout[:evaluated],
        policy=policy,
        reference=reference,
        objective=objective,
        sampling=sampling,
        optimizer=optimizer,
        lr=lr,
        micro_batch=size,
        generation=generation.of(credit, task, policy),
        annotator=annotator(credit, context),
        stale=StaleWeights(policy, staleness, config.interval) if staleness.most else None,
    )


def _strange_prompts(policy: Policy, problems: Sequence[Problem]) -> str:
    """How many prompts, of the first PROMPTS_LOOKED_AT, have characters that a shipped model was not made on, or text
    that becomes the unknown token of the tokenizer; examples, and what to do. Empty where none has.
    """
    prompts = [problem.prompt for problem in problems[:PROMPTS_LOOKED_AT]]
    trained_on = policies.TRAINED_ON.get(policy.name)
    strange = _unknown_texts(policy, prompts) if trained_on is None else [
        [character for character in prompt if character not in trained_on] for prompt in prompts
    ]  # fmt: skip
    texts = list(dict.fromkeys(text for of_prompt in strange for text in of_prompt))
    if not texts:
        return ""
    first = "the first " if len(prompts) < len(problems) else ""
    count = f"{sum(map(bool, strange)):,} of {first}{len(prompts):,} training prompts have"
    examples = ", ".join(visible(repr(text), 40) for text in texts[:5])
    if trained_on is None:
        return (
            f"{count} text that the tokenizer of {policy.name} maps to its unknown token, such as {examples}: the "
            "model cannot tell it from other unknown text; write it otherwise, or choose a model whose tokenizer has it"
        )
    return (
        f"{count} characters that the model {policy.name} never saw when it was made, such as {examples}: it saw "
        f"{trained_on} alone; write prompts and answers with these, or choose another model, such as smollm2"
    )


def _unknown_texts(policy: Policy, prompts: Sequence[str]) -> list[list[str]]:
    """Of each prompt the characters that become the unknown token, or the words where no character alone does."""
    tokenizer = policy.tokenizer
    unknown, written = tokenizer.unk_token_id, tokenizer.unk_token
    if unknown is None or not prompts:
        return [[] for _ in prompts]

    def texts_of(texts: Sequence[str]) -> list[str]:
        rows = tokenizer(list(texts), add_special_tokens=False).input_ids if texts else []
        return [text for text, row in zip(texts, rows, strict=True) if unknown in row]

    plain = [prompt.replace(written, "") for prompt in prompts]  # who writes the unknown token means it
    strange = set(texts_of(plain))
    return [
        texts_of(list(dict.fromkeys(prompt))) or texts_of(prompt.split()) or [prompt] if prompt in strange else []
        for prompt in plain
    ]


def _training_bytes(policy: Policy, optimizer: str, reference: bool) -> float:
    """Bytes of what training keeps beside the weights: gradient, moments of the optimiser, weights of a reference.

    Activations come on top: see `micro_batch`, which chooses how many there are at a time.
    """
    trained = sum(p.numel() * p.element_size() for p in policy.model.parameters() if p.requires_grad)
    every = sum(p.numel() * p.element_size() for p in policy.model.parameters())
    return float(trained * (1 + optimizers.OPTIMIZERS[optimizer][1]) + every * reference)


def _check_training(policy: Policy, config: TrainConfig, reference: bool, micro: int, max_tokens: int) -> None:
    """UserError where what training keeps does not fit into memory; of models that are not small, it is told.

    micro: rollouts of a pass. So is the time of a step, from two passes without gradients: see `pass_cost`.
    """
    model, rows = policy.model, config.prompts * config.group
    kept, free = _training_bytes(policy, config.optimizer, reference), policies.available_memory(model.device)
    needed = kept + min(micro, rows) * _pass_bytes(model, max_tokens, config.checkpointing)
    said = f"training (gradient, moments{', reference' * reference}, activations)"
    remedy = (
        "use a smaller micro_batch, checkpointing, dtype bfloat16, optimizer sgd, no reference (kl 0) or a smaller "
        "model, or train adapters with TRL"
    )
    batch_memory.refuse_if_full(said, needed, free, remedy)
    if policy.small:
        return
    drawing, update = pass_cost.step_seconds(model, rows, max_tokens, config.checkpointing)
    seconds = drawing / config.interval + update / config.minibatches
    logger.warning("%s", batch_memory.foretold(said, needed, seconds, " a step"))


def _of_several(config: TrainConfig, objective: Objective, task: Task) -> Objective:
    """The objective with what the settings make of the task's rewards; UserError where they do not fit them."""
    for constraint in config.constraints():
        if constraint.name not in (*task.components, LENGTH, "reward"):
            known = ", ".join([*task.components, LENGTH, "reward"])
            raise UserError(
                f"constraint {constraint.text}: there is no reward {constraint.name!r}; choose among {known}"
            )
        if constraint.name == LENGTH and LENGTH not in task.components:
            _check_length(constraint, config.max_tokens or task.max_tokens)
    if config.aggregation in (None, METHODS[0]):
        return objective
    if len(task.components) < 2:
        raise UserError(
            f"aggregation {config.aggregation} combines several rewards, and task {task.name} has one; name "
            "several reward functions, or leave aggregation out"
        )
    how = Aggregation(config.aggregation, weights=task.weights)  # type: ignore[arg-type]  # one of the choices
    return replace(objective, aggregation=how)


def _check_length(constraint: Constraint, longest: int) -> None:
    """UserError for a constraint on the length that no completion of 1 to `longest` tokens can meet."""
    values = np.arange(1.0, longest + 1)
    if constraint.costs(values).min() > constraint.limit:
        raise UserError(f"constraint {constraint.text} cannot hold: completions have 1 to {longest} tokens")


def describe(setup: Setup) -> RunConfig:
    """Config of the record: the settings as given, their resolved values, and the environment."""
    model, task = setup.policy.model, setup.task
    return RunConfig(
        settings=asdict(setup.config),
        model=ModelInfo(setup.policy.name, type(model).__name__, setup.policy.parameters),
        resolved={
            "task": setup.task.name,
            **({"rewards": task.weighted} if task.components else {}),
            "objective": setup.objective.describe(),
            "sampling": asdict(setup.sampling),
            "lr": setup.lr,
        },
        environment={**environment(), "device": str(model.device), "threads": torch.get_num_threads()},
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def cache_bytes(policy: Policy) -> float:
    """Bytes of keys and values that the model keeps of a token while it samples; 0 where its config does not say."""
    config = policy.model.config
    heads, width = getattr(config, "num_attention_heads", 0), getattr(config, "hidden_size", 0)
    if not heads:
        return 0.0
    head = getattr(config, "head_dim", None) or width // heads
    kept = 2 * getattr(config, "num_hidden_layers", 0) * (getattr(config, "num_key_value_heads", None) or heads) * head
    return float(kept * policy.model.dtype.itemsize)


def micro_batch(policy: Policy, max_tokens: int) -> int:
    """Rollouts per forward pass, so that what a backward pass needs stays small beside a model of some size.

    Through the passes of `cpu` at most 0.2 GB of activations are kept; 0.4 GB gained nothing measurable. Autograd keeps
    more numbers per token, and all logits: near 2 GB, or half of what a GPU has free beside the gradient and two
    moments of every trained weight, which the first update allocates.
    """
    kept = _kept_bytes(policy.model)
    if kept is not None:
        return max(1, int(2e8 / (max_tokens * kept)))
    budget, device = 2e9, policy.model.device
    if device.type != "cpu":
        trained = sum(p.numel() * p.element_size() for p in policy.model.parameters() if p.requires_grad)
        budget = 0.5 * (policies.available_memory(device) - 3 * trained)
    return max(1, int(budget / pass_cost.autograd_bytes(policy.model, max_tokens)))


def _pass_bytes(model: PreTrainedModel, tokens: int, recomputed: bool = False) -> float:
    """Bytes that a forward pass over a row of so many tokens keeps for its backward pass.

    recomputed: whether blocks recompute their activations in it.
    """
    saved = None if recomputed else _kept_bytes(model)
    return autograd_bytes(model, tokens, recomputed) if saved is None else float(tokens * saved)


def _kept_bytes(model: PreTrainedModel) -> int | None:
    """Memory that a pass keeps for its backward pass, per token; None where the model's own forward decides."""
    passes = cpu.passes(model)
    return None if passes is None else passes.bytes_per_token
