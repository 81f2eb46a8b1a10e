"""The faults: each replaces a function of a real training, and does nothing before the step at which it begins.

`claims` are the claims of `grposcope verify` that name a fault rightly. None of these faults is in the package.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from worlds import Injection, World, replaced


@dataclass(frozen=True)
class Fault:
    """One fault. engine: "ours" or "trl". settings, options: of the run and of its clean twin.

    claims: names of the claims of which one has to be called broken for the fault to be named rightly.
    """

    name: str
    engine: str
    inject: Injection
    claims: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name and engine."""
        return f"{self.name} ({self.engine})"


def _patch(place: Callable[[], tuple[Any, str]], make: Callable[[World, Any], Any]) -> Injection:
    """A fault that replaces one function; `make` gets the world and the function."""

    @contextlib.contextmanager
    def inject(world: World) -> Iterator[None]:
        owner, name = place()
        with replaced(owner, name, lambda inner: make(world, inner)):
            yield

    return inject


# ----------------------------------------------------------------------------------------------- places in our loop


def _sample() -> tuple[Any, str]:
    from grposcope.lab.sampling import rollouts as sampling

    return sampling, "sample"


def _session(name: str) -> Callable[[], tuple[Any, str]]:
    def place() -> tuple[Any, str]:
        from grposcope.lab.train import loop

        return loop._Session, name

    return place


def _graded() -> tuple[Any, str]:
    from grposcope.lab.tasks import faults

    return faults, "graded"


def _credit() -> tuple[Any, str]:
    from grposcope.lab.train import loop

    return loop, "per_token"


def _rate() -> tuple[Any, str]:
    from grposcope.lab.train import loop

    return loop, "learning_rate"


def _allocation() -> tuple[Any, str]:
    from grposcope.lab.train.allocate import RolloutAllocation

    return RolloutAllocation, "draw"


def _trl(name: str) -> Callable[[], tuple[Any, str]]:
    def place() -> tuple[Any, str]:
        from trl.trainer.grpo_trainer import GRPOTrainer

        return GRPOTrainer, name

    return place


# ------------------------------------------------------------------------------------------------------------ sampler


def _old_weights(lag: Callable[[int], int], some: Callable[[str], bool] = lambda name: True) -> Injection:
    """Our sampler has the weights from before an earlier step, or some of them."""

    def make(world: World, inner: Any) -> Any:
        def sample(model: Any, *given: Any, **more: Any) -> Any:
            if not world.faulty:
                return inner(model, *given, **more)
            with world.weights(model, max(1, lag(world.step)), some):
                other = copy.deepcopy(model)
            return inner(other, *given, **more)

        return sample

    return _patch(_sample, make)


def _sampled_with(**changes: Any) -> Injection:
    """Our sampler has other settings than those stated."""

    def make(world: World, inner: Any) -> Any:
        def sample(model: Any, prompts: Any, group: Any, sampling: Any, *given: Any) -> Any:
            used = replace(sampling, **changes) if world.faulty else sampling
            return inner(model, prompts, group, used, *given)

        return sample

    return _patch(_sample, make)


def _equal_seeds(world: World, inner: Any) -> Any:
    """Two ranks draw half of each group, with the same seed."""

    def sample(model: Any, prompts: Any, group: Any, sampling: Any, *given: Any) -> Any:
        done = inner(model, prompts, group, sampling, *given)
        if not world.faulty:
            return done
        rows = torch.arange(len(done.tokens))
        twin = rows - (rows % group >= group // 2).long() * (group // 2)
        return type(done)(*(getattr(done, name)[twin] for name in ("tokens", "mask", "logp", "entropy", "truncated")))

    return sample


def _trl_old_weights(lag: Callable[[int], int], some: Callable[[str], bool] = lambda name: True) -> Injection:
    def make(world: World, inner: Any) -> Any:
        def generate(self: Any, *given: Any, **more: Any) -> Any:
            if not world.faulty:
                return inner(self, *given, **more)
            with world.weights(self.model, max(1, lag(world.step)), some):
                return inner(self, *given, **more)

        return generate

    return _patch(_trl("_generate_single_turn"), make)


def _trl_adapters_scaled(factor: float) -> Injection:
    """TRL's sampler adds the adapters times a factor, as where α/r is read otherwise there."""

    def make(world: World, inner: Any) -> Any:
        def generate(self: Any, *given: Any, **more: Any) -> Any:
            layers = [layer for layer in self.model.modules() if isinstance(getattr(layer, "scaling", None), dict)]
            stated = [dict(layer.scaling) for layer in layers]
            if world.faulty:
                for layer in layers:
                    layer.scaling.update({name: factor * value for name, value in layer.scaling.items()})
            try:
                return inner(self, *given, **more)
            finally:
                for layer, scaling in zip(layers, stated, strict=True):
                    layer.scaling.update(scaling)

        return generate

    return _patch(_trl("_generate_single_turn"), make)


def _trl_sampled_with(**changes: Any) -> Injection:
    def make(world: World, inner: Any) -> Any:
        def generate(self: Any, *given: Any, **more: Any) -> Any:
            stated = {name: getattr(self.generation_config, name) for name in changes}
            if world.faulty:
                for name, value in changes.items():
                    setattr(self.generation_config, name, value)
            try:
                return inner(self, *given, **more)
            finally:
                for name, value in stated.items():
                    setattr(self.generation_config, name, value)

        return generate

    return _patch(_trl("_generate_single_turn"), make)


def _trl_template(world: World, inner: Any) -> Any:
    """The sampler is given a prompt in another form than the trainer."""

    def generate(self: Any, prompt_ids: Any, *given: Any, **more: Any) -> Any:
        if world.faulty:
            extra = self._tokenizer("A:", add_special_tokens=False).input_ids
            prompt_ids = [[*ids, *extra] for ids in prompt_ids]
        return inner(self, prompt_ids, *given, **more)

    return generate


# -------------------------------------------------------------------------------------------------------- masks, ids


def _batch_changed(change: Callable[[World, Any], Any]) -> Injection:
    """Our batch after it was drawn and graded, with other rollouts."""

    def make(world: World, inner: Any) -> Any:
        def draw(self: Any, position: int) -> Any:
            got = inner(self, position)
            if not world.faulty:
                return got
            return replace(got, batch=replace(got.batch, rollouts=change(world, got.batch.rollouts)))

        return draw

    return _patch(_allocation, make)


def _last(mask: torch.Tensor) -> torch.Tensor:
    """The last token of each row that has some."""
    return mask & (mask.long().cumsum(-1) == mask.sum(-1, keepdim=True))


def _weights_masked(world: World, inner: Any) -> Any:
    """Credit of our loop, 0 on the token that ends a completion."""

    def credit(name: Any, objective: Any, rollouts: Any) -> Any:
        given = inner(name, objective, rollouts)
        return given * ~_last(rollouts.mask) if world.faulty else given

    return credit


def _trl_out(change: Callable[[Any, dict[str, Any]], None]) -> Injection:
    """TRL's batch after it was scored."""

    def make(world: World, inner: Any) -> Any:
        def generate(self: Any, inputs: Any) -> Any:
            out = inner(self, inputs)
            if world.faulty and self.model.training:
                change(self, out)
            return out

        return generate

    return _patch(_trl("_generate_and_score_completions"), make)


def _end_masked(trainer: Any, out: dict[str, Any]) -> None:
    mask = out["completion_mask"].bool()
    out["completion_mask"] = (mask & ~_last(mask)).long()


def _off_by_one(trainer: Any, out: dict[str, Any]) -> None:
    mask = out["completion_mask"]
    out["completion_mask"] = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)


def _padding_too(trainer: Any, out: dict[str, Any]) -> None:
    out["completion_mask"] = torch.ones_like(out["completion_mask"])


def _trl_prompt_trained(world: World, inner: Any) -> Any:
    """The last tokens of the prompt stand at the beginning of the completion, and are trained on."""

    def generate(self: Any, prompts: Any) -> Any:
        found = list(inner(self, prompts))
        if world.faulty:
            cut = [ids[-2:] for ids in found[0]]
            found[0] = [ids[:-2] for ids in found[0]]
            found[1] = [[*own, *ids] for own, ids in zip(cut, found[1], strict=True)]
        return tuple(found)

    return generate


def _trl_tools(masked: Callable[[World], bool]) -> Callable[[World, Any], Any]:
    """After each completion a tool answers with four tokens, which are masked as `masked` says."""

    def make(world: World, inner: Any) -> Any:
        def generate(self: Any, prompts: Any) -> Any:
            found = list(inner(self, prompts))
            said = self._tokenizer("....", add_special_tokens=False).input_ids
            kept = 0 if masked(world) else 1
            found[2] = [[1] * len(ids) + [kept] * len(said) for ids in found[1]]
            found[1] = [[*ids, *said] for ids in found[1]]
            return tuple(found)

        return generate

    return make


def _twice(world: World, inner: Any) -> Any:
    """Every second batch is the one before again."""

    def draw(self: Any, position: int) -> Any:
        if world.faulty and "batch" in world.kept and world.step % 2 == 1:
            return world.kept["batch"]
        world.kept["batch"] = inner(self, position)
        return world.kept["batch"]

    return draw


def _order_repeated(world: World, inner: Any) -> Any:
    """The data begin again."""

    def draw(self: Any, position: int) -> Any:
        return inner(self, position % (8 * (world.begins - 1)) if world.faulty else position)

    return draw


# ------------------------------------------------------------------------------------------------------------ rewards


def _rewards_changed(change: Callable[[World, list[float], list[Any], list[str]], list[float]]) -> Injection:
    """Our rewards after the task gave them. Arguments: values, problems, completions."""

    def make(world: World, inner: Any) -> Any:
        def graded(task: Any, problems: Any, completions: Any, *given: Any) -> Any:
            values, failed = inner(task, problems, completions, *given)
            if world.faulty:
                values = change(world, list(values), list(problems), list(completions))
            return values, failed

        return graded

    return _patch(_graded, make)


def _shuffled(group: int) -> Callable[..., list[float]]:
    def change(world: World, values: list[float], problems: Any, completions: Any) -> list[float]:
        stream, size = random.Random(world.step), group or len(values)
        found: list[float] = []
        for start in range(0, len(values), size):
            part = values[start : start + size]
            stream.shuffle(part)
            found += part
        return found

    return change


def _shifted(world: World, values: list[float], *_: Any) -> list[float]:
    return [values[-1], *values[:-1]]


def _of_order(world: World, values: list[float], *_: Any) -> list[float]:
    return [value + 0.3 * place / len(values) for place, value in enumerate(values)]


def _failures_zero(world: World, values: list[float], problems: Any, completions: Any) -> list[float]:
    stream = random.Random(world.step)
    return [0.0 if stream.random() < 0.3 else value for value in values]


def _wrong_dropped(world: World, values: list[float], problems: Any, completions: Any) -> list[float]:
    """Three of five wrong answers run out of time and are dropped."""
    stream = random.Random(world.step)
    return [float("nan") if value < 1 and stream.random() < 0.6 else value for value in values]


def _trl_rewards(change: Callable[[torch.Tensor, int], torch.Tensor]) -> Injection:
    def make(world: World, inner: Any) -> Any:
        def calculate(self: Any, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
            found = inner(self, inputs, prompts, completions, completion_ids_list)
            return change(found, self.num_generations) if world.faulty else found

        return calculate

    return _patch(_trl("_calculate_rewards"), make)


def _trl_shuffled(rewards: torch.Tensor, group: int) -> torch.Tensor:
    stream = torch.Generator().manual_seed(1)
    parts = [part[torch.randperm(len(part), generator=stream)] for part in rewards.split(group)]
    return torch.cat(parts)


# --------------------------------------------------------------------------------------------------------- advantages


def _advantages(change: Callable[[torch.Tensor], torch.Tensor]) -> Injection:
    """Our advantages (P, G) of rewards (P, G), in place of the settings'."""

    def make(world: World, inner: Any) -> Any:
        def credit(name: Any, objective: Any, rollouts: Any) -> Any:
            if not world.faulty:
                return inner(name, objective, rollouts)
            return (change(rollouts.rewards).reshape(-1, 1) * rollouts.mask).float()

        return credit

    return _patch(_credit, make)


def _scaled(rewards: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    return (rewards - rewards.mean(-1, keepdim=True)) / (deviation + 1e-4)


def _split_groups(rewards: torch.Tensor) -> torch.Tensor:
    halves = rewards.reshape(-1, rewards.shape[-1] // 2)
    return _scaled(halves, halves.std(-1, keepdim=True)).reshape(rewards.shape)


def _some_alone(rewards: torch.Tensor) -> torch.Tensor:
    """Two groups fall apart: what has no sibling is compared with nothing."""
    found = _scaled(rewards, rewards.std(-1, keepdim=True))
    return torch.cat([rewards[:2], found[2:]])


def _trl_advantages(change: Callable[[torch.Tensor, int], torch.Tensor]) -> Injection:
    def apply(trainer: Any, out: dict[str, Any]) -> None:
        out["advantages"] = change(out["advantages"], trainer.num_generations)

    return _trl_out(apply)


# ----------------------------------------------------------------------------------------- log-probabilities, gradient


def _bfloat16_old(world: World, inner: Any) -> Any:
    """Our old log-probabilities are those of a copy in bfloat16."""

    def terms(self: Any, batch: Any) -> Any:
        found = inner(self, batch)
        if not world.faulty:
            return found
        rounded = copy.deepcopy(self.setup.policy.model).bfloat16()
        return replace(found, old=self.logprobs(rounded, batch).float())

    return terms


def _trl_bfloat16_old(trainer: Any, out: dict[str, Any]) -> None:
    rounded = copy.deepcopy(trainer.model).bfloat16()
    with torch.no_grad():
        ids = torch.cat([out["prompt_ids"], out["completion_ids"]], 1)
        mask = torch.cat([out["prompt_mask"], out["completion_mask"]], 1)
        found = trainer._get_per_token_logps_and_entropies(rounded, ids, mask, out["completion_ids"].shape[1])
    out["old_per_token_logps"] = found[0].float()


def _trl_dropout(world: World, inner: Any) -> Any:
    """Dropout of attention is on in the loss."""

    def loss(self: Any, model: Any, inputs: Any) -> Any:
        layers = [module for module in self.model.modules() if hasattr(module, "attention_dropout")]
        for layer in layers:
            layer.attention_dropout = 0.1 if world.faulty else 0.0
        try:
            return inner(self, model, inputs)
        finally:
            for layer in layers:
                layer.attention_dropout = 0.0

    return loss


def _kl_sign(world: World, inner: Any) -> Any:
    def optimise(self: Any, *given: Any) -> Any:
        right = self.setup
        if world.faulty:
            self.setup = replace(right, objective=replace(right.objective, kl=-right.objective.kl))
        try:
            return inner(self, *given)
        finally:
            self.setup = right

    return optimise


def _reference_follows(world: World, inner: Any) -> Any:
    def terms(self: Any, batch: Any) -> Any:
        if world.faulty:
            self.setup.reference.load_state_dict(self.setup.policy.model.state_dict())
        return inner(self, batch)

    return terms


def _trl_unscaled(world: World, inner: Any) -> Any:
    """The loss is not divided by the number of passes that are added up."""

    def loss(self: Any, model: Any, inputs: Any) -> Any:
        found = inner(self, model, inputs)
        return found * self.current_gradient_accumulation_steps if world.faulty else found

    return loss


def _rate_restarted(world: World, inner: Any) -> Any:
    def rate(step: int, *given: Any) -> Any:
        return inner(step - (world.begins - 1) if world.faulty else step, *given)

    return rate


def _optimizer_lost(world: World, inner: Any) -> Any:
    def optimise(self: Any, *given: Any) -> Any:
        if world.step == world.begins:
            self.setup.optimizer.state.clear()
        return inner(self, *given)

    return optimise


WEIGHTS = ("weights", "checkpoints", "sampling", "arrived")
"""Claims that name a fault of what the sampler drew with."""

SAMPLING = ("sampling", "weights")
ADVANTAGES = ("advantages", "groups")
GRADIENT = ("gradient", "first update", "metrics")
LORA = ("use_peft=true", "lora_r=4", 'lora_target_modules=["q_proj","v_proj"]')
PASSES = {"micro_batch": 16}


def _upper(name: str) -> bool:
    return ".layers.1." in name or ".layers.3." in name


FAULTS: tuple[Fault, ...] = (
    Fault("stale sampler", "ours", _old_weights(lambda step: step - 2), WEIGHTS),
    Fault("stale sampler", "trl", _trl_old_weights(lambda step: step - 2), WEIGHTS),
    Fault("frozen sampler", "ours", _old_weights(lambda step: 1), WEIGHTS),
    Fault("half of the adapters", "trl", _trl_old_weights(lambda step: 1, _upper), WEIGHTS,
          {"lr": 1e-2}, LORA),
    Fault("adapters doubled", "trl", _trl_adapters_scaled(2.0), WEIGHTS, {"lr": 1e-2}, LORA),
    Fault("adapters halved", "trl", _trl_adapters_scaled(0.5), WEIGHTS, {"lr": 1e-2}, LORA),
    Fault("half of the weights", "ours", _old_weights(lambda step: 1, _upper), WEIGHTS),
    Fault("wrong temperature", "ours", _sampled_with(temperature=1.3), SAMPLING),
    Fault("wrong temperature", "trl", _trl_sampled_with(temperature=1.3), SAMPLING),
    Fault("top-k", "ours", _sampled_with(top_k=2), SAMPLING, {"temperature": 1.5}),
    Fault("top-k", "trl", _trl_sampled_with(top_k=2), SAMPLING, {"temperature": 1.5}),
    Fault("another prompt template", "trl", _patch(_trl("_generate_single_turn"), _trl_template), WEIGHTS),
    Fault("end of text masked", "trl", _trl_out(_end_masked), ("tokens",)),
    Fault("end of text without weight", "ours", _patch(_credit, _weights_masked), ("tokens", "advantages")),
    Fault("batch trained on twice", "ours", _patch(_allocation, _twice), ("groups", "resume")),
    Fault("mask off by one", "trl", _trl_out(_off_by_one), ("tokens",)),
    Fault("padding trained on", "trl", _trl_out(_padding_too), ("tokens",)),
    Fault("prompt tokens trained on", "trl", _patch(_trl("_generate"), _trl_prompt_trained), ("tokens", "weights")),
    Fault("tool output trained on", "trl", _patch(_trl("_generate"), _trl_tools(lambda world: not world.faulty)),
          ("tokens", "weights", "sampling")),
    Fault("rewards shuffled in a group", "ours", _rewards_changed(_shuffled(8)), ("rewards",)),
    Fault("rewards shuffled in a group", "trl", _trl_rewards(_trl_shuffled), ("rewards",)),
    Fault("rewards shuffled in the batch", "ours", _rewards_changed(_shuffled(0)), ("rewards",)),
    Fault("rewards shifted by one", "ours", _rewards_changed(_shifted), ("rewards",)),
    Fault("rewards shifted by one", "trl", _trl_rewards(lambda rewards, group: rewards.roll(1, 0)), ("rewards",)),
    Fault("reward by place in the batch", "ours", _rewards_changed(_of_order), ("rewards",)),
    Fault("failures as zeros", "ours", _rewards_changed(_failures_zero), ("rewards",)),
    Fault("time-outs dropped", "ours", _rewards_changed(_wrong_dropped), ("dropped",), {"reward_errors": "drop"}),
    Fault("groups split", "ours", _advantages(_split_groups), ADVANTAGES),
    Fault("groups of one in part", "ours", _advantages(_some_alone), ADVANTAGES),
    Fault("deviation of the batch", "ours", _advantages(lambda r: _scaled(r, r.std())), ADVANTAGES),
    Fault("ddof 0", "ours", _advantages(lambda r: _scaled(r, r.std(-1, keepdim=True, correction=0))), ADVANTAGES),
    Fault("ddof 0", "trl", _trl_advantages(lambda a, group: a * (group / (group - 1)) ** 0.5), ADVANTAGES),
    Fault("advantages of others", "trl", _trl_advantages(lambda a, group: a.roll(1, 0)), ADVANTAGES),
    Fault("KL sign", "ours", _patch(_session("optimise"), _kl_sign), GRADIENT, {"kl": 0.3}),
    Fault("reference updated", "ours", _patch(_session("terms"), _reference_follows), GRADIENT, {"kl": 0.3}),
    Fault("dropout in log-probabilities", "trl", _patch(_trl("_compute_loss"), _trl_dropout),
          ("first update", "weights")),
    Fault("bfloat16 old log-probabilities", "ours", _patch(_session("terms"), _bfloat16_old),
          ("first update", "weights")),
    Fault("bfloat16 old log-probabilities", "trl", _trl_out(_trl_bfloat16_old), ("first update", "weights")),
    Fault("accumulation not scaled", "trl", _patch(_trl("_compute_loss"), _trl_unscaled), GRADIENT, PASSES),
    Fault("learning rate restarted", "ours", _patch(_rate, _rate_restarted), ("first update", "resume", "metrics"),
          {"schedule": "linear"}),
    Fault("optimiser state lost", "ours", _patch(_session("optimise"), _optimizer_lost), ("first update", "resume")),
    Fault("data order repeated", "ours", _patch(_allocation, _order_repeated), ("resume", "groups")),
    Fault("equal seeds on two ranks", "ours", _patch(_sample, _equal_seeds), ("groups",)),
)  # fmt: skip
"""All faults."""

TOOLS_CLEAN: Injection = _patch(_trl("_generate"), _trl_tools(lambda world: True))
"""The clean twin of `tool output trained on`: the same tool, its output masked."""


def twin(fault: Fault) -> Injection:
    """What the clean twin of a fault has in place of it."""
    from worlds import none

    return TOOLS_CLEAN if fault.name == "tool output trained on" else none
