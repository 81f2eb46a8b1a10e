"""The critic: a value of every state of a rollout, learned beside the policy from the rewards of its rollouts.

V̂(s_t) is a head on the hidden state from which the policy draws token t: of a copy of the policy's layers that learns
too (`trunk=own`), or of the policy's own layers, through which nothing is passed back (`trunk=shared`). It descends the
mean over tokens of (V̂(s_t) − target)², with AdamW and a constant learning rate of its own; the targets are λ-returns
(`lab.credit.critic.targets`) of values that were taken before the batch was learned from. For every optimiser step on
the policy the critic takes `updates` steps, each on a random part of the same prompts, so that a batch is read once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from grposcope.core.errors import UserError
from grposcope.lab.credit.critic import targets, values_of
from grposcope.lab.objectives import advantages
from grposcope.lab.rollout_batch import RolloutBatch, rows_of_groups
from grposcope.lab.sampling.annotation import AnnotationContext, check_numbers
from grposcope.lab.sampling.logprobs import hidden_states
from grposcope.lab.tasks import Problem

FILE = "critic.safetensors"
"""Name of the critic's file in a checkpoint and in the folder of a run."""

RATE_SMALL, RATE = 1e-3, 5e-6
"""Learning rates below 10 M parameters, and above."""

LIMIT = 1.0
"""Largest norm of the critic's gradient."""


class Critic:
    """A value head with its layers and its optimiser; called with rollouts, it gives them their values.

    settings: those of credit `value`. UserError for a model whose layers cannot be found.
    """

    def __init__(self, context: AnnotationContext, settings: Mapping[str, Any]):
        policy = context.policy
        body = getattr(policy.model, "base_model", None)
        width = getattr(policy.model.config, "hidden_size", None)
        if body is None or body is policy.model or not width:
            raise UserError(
                f"credit value needs the hidden states of {type(policy.model).__name__}, whose layers and "
                "head cannot be separated; use another credit"
            )
        self.policy, self.settings, self.micro_batch = policy, settings, context.micro_batch
        self.own = settings["trunk"] == "own"
        self.body = copy.deepcopy(body) if self.own else body
        self.head = _head(width).to(policy.model.device)
        learning = [p for p in self.body.parameters() if p.requires_grad] if self.own else []
        rate = settings["lr"] or (RATE_SMALL if policy.small else RATE)
        self.optimizer = torch.optim.AdamW([*learning, *self.head.parameters()], lr=rate, weight_decay=0.0)

    def __call__(self, rollouts: RolloutBatch, problems: Sequence[Problem] = ()) -> RolloutBatch:
        """The rollouts with `values`; UserError that names the first token whose value is not finite."""
        rows = torch.arange(len(rollouts.mask), device=rollouts.mask.device)
        with torch.no_grad():
            values = torch.cat([self._values(rollouts, batch) for batch in rows.split(self.micro_batch)])
        remedy = "lower the critic's learning rate (value:lr=…), or continue from an earlier checkpoint"
        check_numbers(values, rollouts, self.policy, "the value head", remedy)
        return rollouts.annotated(values=values)

    def learn(self, rollouts: RolloutBatch, generator: torch.Generator) -> tuple[float, float]:
        """`updates` steps towards the λ-returns of rollouts that have values; the random parts are the generator's.

        The mean squared error before, in squared units of the reward, and the largest norm of a gradient.
        """
        wanted = targets(rollouts, self.settings["critic_lambda"], self.settings["gamma"]).float()
        before = (values_of(rollouts) - wanted)[rollouts.mask].square().mean()  # NaN where there is no token
        norms = []
        order = torch.randperm(len(rollouts.rewards), generator=generator).to(rollouts.mask.device)
        for prompts in order.chunk(self.settings["updates"]):
            norms.append(self._step(rollouts, wanted, rows_of_groups(prompts.sort().values, rollouts.groups[1])))
        return float(before), max(norms, key=lambda norm: math.inf if math.isnan(norm) else norm)

    def _step(self, rollouts: RolloutBatch, wanted: Tensor, rows: Tensor) -> float:
        """One step on the rows (r,); the norm of the gradient, of which one that is not finite is not applied."""
        self.optimizer.zero_grad()
        tokens = int(rollouts.mask[rows].sum())
        for batch in rows.split(self.micro_batch):
            error = (self._values(rollouts, batch) - wanted[batch]).where(rollouts.mask[batch], 0.0)
            (error.square().sum() / max(tokens, 1)).backward()
        learned = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.nn.utils.clip_grad_norm_(learned, LIMIT)
        if norm.isfinite():
            self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)

    def _values(self, rollouts: RolloutBatch, rows: Tensor) -> Tensor:
        """V̂ before each token of the rows (r,), (r, T), 0 where masked."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.own):
            states = hidden_states(self.policy.model, self.body, rollouts, rows)
        mask = rollouts.mask[rows]
        values = self.head(states.float())[:, 0]
        return torch.zeros(mask.shape, device=mask.device).masked_scatter(mask, values)

    @property
    def bytes(self) -> int:
        """Size of the weights that learn."""
        return sum(p.numel() * p.element_size() for group in self.optimizer.param_groups for p in group["params"])

    def state(self) -> dict[str, Tensor]:
        """Weights and optimiser state, by name."""
        parts = {"head": self.head.state_dict()} | ({"body": self.body.state_dict()} if self.own else {})
        weights = {f"{module}.{name}": tensor for module, tensors in parts.items() for name, tensor in tensors.items()}
        states = self.optimizer.state_dict()["state"]
        return weights | {f"optimizer.{i}.{name}": value for i, of in states.items() for name, value in of.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put weights and optimiser back as `state` has them; UserError where they are those of another critic."""
        try:
            self.head.load_state_dict(_part(state, "head"))
            if self.own:
                self.body.load_state_dict(_part(state, "body"))
        except RuntimeError as error:
            raise UserError(f"the saved critic is a different one ({str(error).splitlines()[0]}); use the credit "
                            "that the run was trained with") from None  # fmt: skip
        states: dict[int, dict[str, Tensor]] = {}
        for key, value in _part(state, "optimizer").items():
            index, name = key.split(".", 1)
            states.setdefault(int(index), {})[name] = value
        self.optimizer.load_state_dict({"state": states, "param_groups": self.optimizer.state_dict()["param_groups"]})


def explained_variance(rollouts: RolloutBatch) -> tuple[float, float]:
    """1 − Var(r − b)/Var(r) over the tokens of a fresh batch: for b the critic's value, and for b the others' mean.

    1 is a baseline that knows the outcome, 0 one that knows nothing; below 0 it adds noise. The second is what a group
    gives for nothing, NaN for groups of one. NaN where all rewards are equal.
    """
    if "values" not in rollouts.token_annotations:
        return math.nan, math.nan
    mask, rewards = rollouts.mask, rollouts.rewards
    spread = _variance((rewards.reshape(-1, 1) * mask)[mask])
    if not spread:
        return math.nan, math.nan
    of_critic = 1 - _variance((rewards.reshape(-1, 1) - rollouts.token_annotations["values"])[mask]) / spread
    if rewards.shape[1] < 2:
        return of_critic, math.nan
    targets = (advantages.leave_one_out(rewards).reshape(-1, 1) * mask)[mask]
    return of_critic, 1 - _variance(targets) / spread


def load(critic: Critic, folder: Path) -> None:
    """Give the critic what one had learned that is kept in `folder`, of a checkpoint or a run; UserError without."""
    file = folder / FILE
    if not file.is_file():
        raise UserError(
            f"credit value needs the critic of a run, and {file} is not there: the run was trained without one; use "
            "another credit, or train with credit value"
        )
    try:
        state = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file} cannot be read ({error}); use another checkpoint") from None
    critic.restore(state)


def _head(width: int) -> nn.Sequential:
    """A hidden layer and a number; the number begins at 0, so that the first credit is the reward itself."""
    first, last = nn.Linear(width, width), nn.Linear(width, 1)
    with torch.no_grad():
        torch.nn.init.orthogonal_(first.weight, generator=torch.Generator().manual_seed(0))
        for zero in (first.bias, last.weight, last.bias):
            zero.zero_()
    return nn.Sequential(first, nn.Tanh(), last)


def _part(state: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}


def _variance(values: Tensor) -> float:
    return float(values.double().var(correction=0)) if len(values) else 0.0
