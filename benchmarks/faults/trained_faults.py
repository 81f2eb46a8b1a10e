"""Faults that are put into short trainings of our loop, the sound settings beside them, and what names a fault rightly.

Fixed before the first training. A name of the catalogue is right where its remedy, as `grposcope explain` prints it,
would mend the fault that was put in; "rung NAME" is a rung of the ladder of a flat run. Names in `NEW` were not in the
catalogue then: nothing in it has the remedy. `needs` are quantities of which a log has to have one for the fault to be
seen at all. Faults of the reward change what training is paid, never the held-out score.

Changed after the first development seed, before any held-out one: the sampler with other numerics was off by 0.06 of
each weight, with which training went well (k3 0.001); a length penalty was dropped, since completions of `tiny` have
nearly one length, so that it changed nothing; a logged policy loss is left out, which was given the KL term.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import catalogue
import torch
from worlds import Injection, World, none

NEW = ("hot sampling", "update not applied", "kl penalty outweighs the reward")
"""Faults that the catalogue lacked when this list was made."""

HACKED = ("reward hacking",)

SOUND: dict[str, dict[str, Any]] = {
    "base": {},
    "fast": {"lr": 2e-4},
    "groups of 16": {"prompts": 4, "group": 16, "lr": 2e-4},
    "groups of 4": {"prompts": 16, "group": 4},
    "two passes": {"interval": 2, "kl": 0.02},
    "minibatches": {"interval": 4, "minibatches": 4},
    "bfloat16 sampler": {"sampler_precision": "bfloat16", "correction": "none"},
    "stale by 2": {"staleness": "2", "correction": "none"},
    "Dr. GRPO": {"recipe": "dr_grpo", "lr": 2e-4},
    "strong KL": {"kl": 0.1, "lr": 2e-4},
}
"""Name -> what differs from BASE: settings with which training goes well, or at least not wrong."""

BASE: dict[str, Any] = {
    "steps": 60, "prompts": 8, "group": 8, "lr": 1e-4, "kl": 1e-3, "eval_every": 15, "eval_problems": 40,
    "checkpoint_every": 0, "verify_every": 0, "rollouts_every": 10,
}  # fmt: skip
"""Settings of every training: 60 steps of 8 prompts × 8 rollouts on sums of three operations."""


@dataclass(frozen=True)
class TrainedFault:
    """A fault. right: names that are right. needs: any of these quantities shows it. sound: its clean twin in SOUND.

    settings: what it changes itself. remedy: settings that do what the remedy of the catalogue says, empty where that
    is no setting; the fault's own settings and what is put in stay as they are.
    """

    name: str
    right: tuple[str, ...]
    needs: tuple[str, ...]
    inject: Injection = none
    settings: Mapping[str, Any] = field(default_factory=dict)
    sound: str = "base"
    remedy: Mapping[str, Any] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------------------ rewards


def _paid(change: Callable[[float, str, str], float]) -> Injection:
    """Rewards of training as a function of the right reward, the prompt and the completion."""

    def make(world: World, inner: Any) -> Any:
        def graded(task: Any, problems: Any, completions: Any, *given: Any) -> Any:
            values, failed = inner(task, problems, completions, *given)
            if world.kept.get("drawing"):
                every = zip(values, problems, completions, strict=True)
                values = [float(change(value, problem.prompt, text)) for value, problem, text in every]
            return values, failed

        return graded

    return catalogue._patch(catalogue._graded, make)


def _shuffled(world: World, inner: Any) -> Any:
    """Rewards change places within groups of 8."""

    def graded(task: Any, problems: Any, completions: Any, *given: Any) -> Any:
        values, failed = inner(task, problems, completions, *given)
        if world.kept.get("drawing"):
            stream = random.Random(world.step)
            groups = [list(values[start : start + 8]) for start in range(0, len(values), 8)]
            for group in groups:
                stream.shuffle(group)
            values = [value for group in groups for value in group]
        return values, failed

    return graded


def _one_prompt(world: World, inner: Any) -> Any:
    """There are two problems to train on."""

    def draw(self: Any, position: int) -> Any:
        self.setup = replace(self.setup, train_set=self.setup.train_set[:2])
        return inner(self, position)

    return draw


# ------------------------------------------------------------------------------------------------------------ sampler


def _sampler_weights(make_model: Callable[[World, Any], Any]) -> Injection:
    """Our sampler draws with what `make_model` makes of the trainer's model."""

    def make(world: World, inner: Any) -> Any:
        def sample(model: Any, *given: Any, **more: Any) -> Any:
            return inner(make_model(world, model), *given, **more)

        return sample

    return catalogue._patch(catalogue._sample, make)


def _stuck(first: int) -> Callable[[World, Any], Any]:
    """From a step on the sampler keeps the weights that it has then."""

    def model_of(world: World, model: Any) -> Any:
        if world.step < first:
            return model
        if "stuck" not in world.kept:
            world.kept["stuck"] = copy.deepcopy(model)
        return world.kept["stuck"]

    return model_of


def _rounded(world: World, model: Any) -> Any:
    """Each weight of the sampler is off by a fifth of itself, in the same way at every step."""
    other = copy.deepcopy(model)
    stream = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1 + 0.2 * torch.randn(weight.shape, generator=stream))
    return other


def _other_prompt(world: World, inner: Any) -> Any:
    """The sampler is given each prompt with its last token but one changed to its first."""

    def sample(model: Any, prompts: Any, *given: Any, **more: Any) -> Any:
        ids, mask = prompts
        changed = ids.clone()
        changed[:, -2] = ids[:, -5]
        return inner(model, (changed, mask), *given, **more)

    return sample


def _hotter(world: World, inner: Any) -> Any:
    """The sampler draws at T = 1.6 and returns its own log-probabilities."""

    def sample(model: Any, prompts: Any, group: Any, sampling: Any, *given: Any) -> Any:
        return inner(model, prompts, group, replace(sampling, temperature=1.6), *given)

    return sample


# ------------------------------------------------------------------------------------------------------------- update


def _credit(change: Callable[[Any, Any], Any]) -> Injection:
    """Credit (B, T) after it was worked out, changed."""

    def make(world: World, inner: Any) -> Any:
        def credit(name: Any, objective: Any, rollouts: Any) -> Any:
            return change(inner(name, objective, rollouts), rollouts)

        return credit

    return catalogue._patch(catalogue._credit, make)


def _rewards_as_advantages(credit: Any, rollouts: Any) -> Any:
    return (rollouts.rewards.reshape(-1, 1) * rollouts.mask).float()


def _no_update(world: World, inner: Any) -> Any:
    """The optimiser's step changes nothing."""

    def optimise(self: Any, *given: Any) -> Any:
        self.setup.optimizer.step = lambda *_: None
        return inner(self, *given)

    return optimise


def _not_finite(world: World, inner: Any) -> Any:
    """At step 30 weights become NaN."""

    def optimise(self: Any, *given: Any) -> Any:
        if world.step == 30:
            with torch.no_grad():
                next(self.setup.policy.model.parameters()).view(-1)[:4096] = torch.nan
        return inner(self, *given)

    return optimise


def _lost(world: World, inner: Any) -> Any:
    """At step 40 the weights are those of the beginning."""

    def draw(self: Any, step: int, position: int) -> Any:
        model = self.setup.policy.model
        if step == 1:
            world.kept["first"] = copy.deepcopy(model.state_dict())
        if step == 40:
            model.load_state_dict(world.kept["first"])
        return inner(self, step, position)

    return draw


def _session(name: str, make: Callable[[World, Any], Any]) -> Injection:
    return catalogue._patch(catalogue._session(name), make)


NEVER_ARRIVED = ("weights never arrived", "wrong weights at the sampler", "stale sampler", "rung sampler")
NOT_PAID = ("never paid",)
NO_GRADIENT = ("no token trained on", "lost gradient")
CUT = ("length", "unseen truncation", "room for sequences", "rung room")

FAULTS: tuple[TrainedFault, ...] = (
    TrainedFault("rate × 30", ("high learning rate", "kl blow-up"), ("kl",), settings={"lr": 3e-3},
                 remedy={"lr": 3e-4}),
    TrainedFault("rate 0", ("zero learning rate",), ("lr",), settings={"lr": 0.0}, remedy={"lr": 1e-4}),
    TrainedFault("rate ÷ 10,000", ("low learning rate", "rung learning rate", "rung weights"), ("kl",),
                 settings={"lr": 1e-8}, remedy={"lr": 1e-5}),
    TrainedFault("weights never reach the sampler", NEVER_ARRIVED, ("mismatch",), _sampler_weights(_stuck(1)),
                 {"correction": "none", "lr": 2e-4}, "fast"),
    TrainedFault("sampler with other numerics", ("sampler numerics differ", "sampler mismatch"), ("mismatch",),
                 _sampler_weights(_rounded), {"correction": "none"}),
    TrainedFault("sampler reads another prompt", ("inputs differ",), ("mismatch",),
                 catalogue._patch(catalogue._sample, _other_prompt), {"correction": "none"}),
    TrainedFault("sampler at T = 1.6", ("sampler temperature differs", "sampler mismatch", "sampler numerics differ"),
                 ("mismatch",), catalogue._patch(catalogue._sample, _hotter), {"correction": "none"}),
    TrainedFault("limit too short", CUT, ("truncated", "length"), settings={"max_tokens": 9},
                 remedy={"max_tokens": 36}),
    TrainedFault("temperature 3", ("hot sampling", "entropy explosion", "gibberish"), ("entropy", "truncated"),
                 settings={"temperature": 3.0}, remedy={"temperature": 1.0}),
    TrainedFault("temperature 0", ("greedy sampling", "copied rollouts", "prompt decides the reward", "one text"),
                 ("dead_fraction", "entropy"), settings={"temperature": 1e-3}, remedy={"temperature": 1.0}),
    TrainedFault("no baseline", ("no baseline", "group of one"), ("advantage_max",), _credit(_rewards_as_advantages)),
    TrainedFault("groups of 2 on hard prompts", ("starved", "group of two", "empty steps", "rung groups"),
                 ("dead_fraction", "reward_std"),
                 settings={"group": 2, "prompts": 32, "task": "arithmetic:steps=5,limit=999,largest=99"},
                 remedy={"group": 8, "prompts": 8, "task": "arithmetic"}),
    TrainedFault("grader pays nothing", NOT_PAID, ("reward",), _paid(lambda right, prompt, text: 0.0)),
    TrainedFault("grader pays everything", ("constant reward",), ("reward",), _paid(lambda right, prompt, text: 1.0)),
    TrainedFault("grader pays length", (*HACKED, "length pays"), ("evaluation",),
                 _paid(lambda right, prompt, text: min(len(text), 60) / 60), {"lr": 2e-4}, "fast"),
    TrainedFault("grader pays the form", (*HACKED, "format is the whole reward", "magic string"), ("evaluation",),
                 _paid(lambda right, prompt, text: min(text.count("="), 4) / 4), {"lr": 2e-4}, "fast"),
    TrainedFault("grader reads the prompt", ("prompt decides the reward",), ("dead_fraction",),
                 _paid(lambda right, prompt, text: float(int(prompt[0]) % 2))),
    TrainedFault("rewards shuffled in the group", ("misplaced rewards", "wrong rewards"), ("rollouts",),
                 catalogue._patch(catalogue._graded, _shuffled)),
    TrainedFault("sign reversed", ("reversed sign",), ("reward", "evaluation"), _credit(lambda c, rollouts: -c)),
    TrainedFault("mask of zeros", NO_GRADIENT, ("grad_norm",), _credit(lambda c, rollouts: 0 * c), {"kl": 0.0}),
    TrainedFault("KL of the wrong sign", ("kl against its penalty",), ("kl",), _session("optimise", catalogue._kl_sign),
                 {"kl": 0.1, "lr": 2e-4}, "strong KL"),
    TrainedFault("beta 20", ("kl penalty outweighs the reward",), ("kl",), settings={"kl": 20.0},
                 remedy={"kl": 0.02}),
    TrainedFault("updates not applied", ("update not applied", "lost gradient"), ("kl",),
                 _session("optimise", _no_update)),
    TrainedFault("NaN in a weight", ("non-finite",), ("grad_norm", "loss"), _session("optimise", _not_finite)),
    TrainedFault("weights lost at step 40", ("weights lost at a restart",), ("kl",), _session("draw", _lost),
                 {"lr": 3e-4}, "fast"),
    TrainedFault("two problems only", ("repeated data", "held-out decline"), ("evaluation",),
                 catalogue._patch(catalogue._allocation, _one_prompt), {"lr": 2e-4}, "fast"),
    TrainedFault("clip range of 0.0001", ("clip saturation", "wrong clip range"), ("clip",),
                 settings={"interval": 4, "clip_low": 1e-4, "clip_high": 1e-4},
                 remedy={"interval": 1}),
    TrainedFault("entropy bonus of 0.3", ("entropy explosion",), ("entropy",), settings={"entropy": 0.3},
                 remedy={"entropy": 0.0}),
)  # fmt: skip
"""All faults."""
