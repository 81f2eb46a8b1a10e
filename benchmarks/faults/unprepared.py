"""Thirty faults that nobody prepared for, and their clean twins, through `grposcope verify FOLDER` alone.

    python benchmarks/faults/unprepared.py [--which first|second] [--seeds 1] [--only NAME] [--judge]

Rules, written before the first run: trainings are those of `folders.py` (TRL's trainer, 6 to 9 steps,
`verify_every=1`, a checkpoint after every step); a fault is put into the trainer once it is made, so that all
settings say otherwise. FIRST is scored as the program is. What it misses is mended in general, by what a claim looks
at and never by the name of a fault; then SECOND, of other places and sizes, which is not run before, is scored once.
Found: any claim is broken. Named: the first finding of a broken claim is one of those listed here, fixed before the
first run. The clean twins are those of `folders.py`, which have the settings of all faults.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folders
from folders import KL, PASSES, of_batch, scaled, set_to

Fault = tuple[Callable[[Any], None], dict[str, Any], tuple[str, ...]]
HERE = Path(__file__).parent

LONG = {"max_completion_length": 16}
FAST = {"learning_rate": 5e-2, "max_completion_length": 24}


def inputs(**changes: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Tensors of the batch as the loss takes it, changed."""

    def change(trainer: Any, batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, **{name: make(batch[name]) for name, make in changes.items() if batch.get(name) is not None}}

    return of_batch(change)


def scored(change: Callable[[Any, dict[str, Any]], None]) -> Callable[[Any], None]:
    """The batch after it was scored, before it is kept as evidence."""

    def put(trainer: Any) -> None:
        inner = trainer._generate_and_score_completions

        def score(given: Any) -> Any:
            out = inner(given)
            change(trainer, out)
            return out

        trainer._generate_and_score_completions = score

    return put


def drawn(**settings: Any) -> Callable[[Any], None]:
    """The sampler's settings are others."""

    def put(trainer: Any) -> None:
        for name, value in settings.items():
            setattr(trainer.generation_config, name, value)

    return put


def positives_only(trainer: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Rollouts below the mean of their group are not trained on."""
    return {**batch, "advantages": batch["advantages"].clamp(min=0)}


def first_token_out(mask: Any) -> Any:
    """The first token of each completion has no weight."""
    changed = mask.clone()
    changed[:, 0] = 0
    return changed


def every_second_out(mask: Any) -> Any:
    """Every second token has no weight."""
    changed = mask.clone()
    changed[:, 1::2] = 0
    return changed


def last_two_out(mask: Any) -> Any:
    """The last two tokens of each completion have no weight."""
    left = mask.flip(1).cumsum(1).flip(1)
    return mask * (left > 2)


def entropy_bonus(trainer: Any) -> None:
    """The loss has a bonus for the entropy that no setting states."""
    inner = trainer._get_per_token_logps_and_entropies
    own = trainer._compute_loss

    def loss(model: Any, batch: dict[str, Any]) -> Any:
        logps = inner(model, __import__("torch").cat([batch["prompt_ids"], batch["completion_ids"]], 1),
                      __import__("torch").cat([batch["prompt_mask"], batch["completion_mask"]], 1),
                      batch["completion_ids"].size(1))[0]  # fmt: skip
        mask = batch["completion_mask"]
        return own(model, batch) + 0.3 * (logps * mask).sum() / mask.sum()

    trainer._compute_loss = loss


def optimizer_change(change: Callable[[Any], None]) -> Callable[[Any], None]:
    """Something about the optimiser once it is there, before each of its steps."""

    def put(trainer: Any) -> None:
        inner = trainer.create_optimizer

        def create(*given: Any, **more: Any) -> Any:
            made = inner(*given, **more)
            step = made.step

            def stepped(*own: Any, **other: Any) -> Any:
                kept = [(group["lr"], group["weight_decay"]) for group in made.param_groups]
                change(made)
                try:
                    return step(*own, **other)
                finally:
                    for group, (rate, decay) in zip(made.param_groups, kept, strict=True):
                        group["lr"], group["weight_decay"] = rate, decay

            made.step = stepped
            return made

        trainer.create_optimizer = create

    return put


def rate_times(factor: float) -> Callable[[Any], None]:
    """The rate in force is another than the scheduler's, which is logged."""

    def change(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"] *= factor

    return optimizer_change(change)


def decay_of(value: float) -> Callable[[Any], None]:
    """A weight decay in force that is not stated."""

    def change(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            group["weight_decay"] = value

    return optimizer_change(change)


def half_frozen(trainer: Any) -> None:
    """The optimiser leaves out the second layer."""
    for name, weight in trainer.model.named_parameters():
        if ".layers.1." in name:
            weight.register_hook(lambda gradient: gradient * 0)


def lagged(steps: int) -> Callable[[Any], None]:
    """The sampler has the weights from some optimiser steps ago."""

    def put(trainer: Any) -> None:
        seen: list[Any] = []
        inner = trainer._generate

        def generate(*given: Any, **more: Any) -> Any:
            own = {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}
            seen.append(own)
            trainer.model.load_state_dict(seen[max(0, len(seen) - 1 - steps)])
            try:
                return inner(*given, **more)
            finally:
                trainer.model.load_state_dict(own)

        trainer._generate = generate

    return put


def noisy(part: str, size: float) -> Callable[[Any], None]:
    """The sampler's weights of some modules are off by a share of themselves."""

    def put(trainer: Any) -> None:
        import torch

        inner, stream = trainer._generate, torch.Generator().manual_seed(5)

        def generate(*given: Any, **more: Any) -> Any:
            own = {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}
            other = {name: value * (1 + size * torch.randn(value.shape, generator=stream)) if part in name else value
                     for name, value in own.items()}  # fmt: skip
            trainer.model.load_state_dict(other)
            try:
                return inner(*given, **more)
            finally:
                trainer.model.load_state_dict(own)

        trainer._generate = generate

    return put


def single_turn(change: Callable[[Any], Any]) -> Callable[[Any], None]:
    """The sampler is given other prompt ids than the trainer keeps."""

    def put(trainer: Any) -> None:
        inner = trainer._generate_single_turn
        trainer._generate_single_turn = lambda ids, *given, **more: inner([change(own) for own in ids], *given, **more)

    return put


def doubled(trainer: Any) -> None:
    """The second half of each group is the first again."""
    inner, group = trainer._generate_single_turn, trainer.num_generations

    def generate(*given: Any, **more: Any) -> Any:
        found = list(inner(*given, **more))
        for k in (0, 1):
            if isinstance(found[k], list):
                found[k] = [found[k][i - group // 2 if i % group >= group // 2 else i] for i in range(len(found[k]))]
        return tuple(found)

    trainer._generate_single_turn = generate


def advantages(change: Callable[[Any, int], Any]) -> Callable[[Any], None]:
    """Advantages (B,) after they were worked out, given the size of groups."""

    def put(trainer: Any, out: dict[str, Any]) -> None:
        out["advantages"] = change(out["advantages"], trainer.num_generations)

    return scored(put)


def within(groups: Any, size: int) -> Any:
    """Each group's advantages in the reverse order."""
    return groups.view(-1, size).flip(1).reshape(-1)


def across(values: Any, size: int) -> Any:
    """Each group has the advantages of the next."""
    return values.view(-1, size).roll(1, 0).reshape(-1)


def of_pairs(values: Any, size: int) -> Any:
    """Advantages less the mean of each pair."""
    pairs = values.view(-1, 2)
    return (pairs - pairs.mean(1, keepdim=True)).reshape(-1)


def shifted(logps: Any) -> Any:
    """Each token has the log-probability of the one before."""
    return logps.roll(1, 1)


OFF = ("scaled by a factor", "another loss")
ADVANTAGES = ("unexplained advantages", "wrong divisor", "wrong baseline", "scaled by a factor")
SHUFFLED = ("misplaced rewards", "unexplained advantages")
MASKED = ("tokens left out", "mask off by one", "end of text masked", "another loss")
WEIGHTS = ("wrong weights at the sampler", "weights never arrived", "stale sampler")
RATE = ("learning rate off schedule", "learning rate not in force", "update not applied")
DECAY = ("weight decay not in force", "learning rate not in force")
OLD = ("wrong old log-probabilities", "misaligned log-probabilities", "log-probabilities of another kind")
TRUNCATED = ("truncated sampler", "unlikely tokens", "sampler temperature differs")

FIRST: dict[str, Fault] = {
    "loss times 3": (scaled(3.0), {}, OFF),
    "loss times 0.9": (scaled(0.9), LONG, OFF),
    "only what was better": (of_batch(positives_only), LONG, ("another loss", *ADVANTAGES)),
    "dr_grpo in place of the default": (set_to(loss_type="dr_grpo"), LONG, ("wrong aggregation", *OFF)),
    "grpo in place of the default": (set_to(loss_type="grpo"), LONG, ("wrong aggregation", *OFF)),
    "first tokens out": (inputs(completion_mask=first_token_out), LONG, MASKED),
    "every second token out": (inputs(completion_mask=every_second_out), LONG, MASKED),
    "last two tokens out": (inputs(completion_mask=last_two_out), LONG, MASKED),
    "old shifted by one": (inputs(old_per_token_logps=shifted), PASSES, OLD),
    "old in base 2": (inputs(old_per_token_logps=lambda own: own / 0.6931), PASSES, OLD),
    "old at half the temperature": (inputs(old_per_token_logps=lambda own: own * 2), PASSES, OLD),
    "reference off by 0.3": (
        inputs(ref_per_token_logps=lambda own: own + 0.3), KL, ("wrong reference", "wrong kl term"),
    ),
    "reference shifted by one": (
        inputs(ref_per_token_logps=shifted), KL, ("wrong reference", "wrong kl term", *OLD),
    ),
    "KL term of the other sign": (set_to(beta=-0.2), KL, ("wrong kl term", "kl against its penalty")),
    "entropy bonus": (entropy_bonus, LONG, ("another loss", "wrong kl term")),
    "rate times 5": (rate_times(5.0), {}, RATE),
    "rate times 0.2": (rate_times(0.2), {}, RATE),
    "decay of 5": (decay_of(5.0), {}, DECAY),
    "a layer not trained": (half_frozen, {}, ("update not applied", "another loss", "lost gradient", *RATE)),
    "advantages not divided": (set_to(scale_rewards="none"), {}, ADVANTAGES),
    "advantages by the batch": (set_to(scale_rewards="batch"), {}, ADVANTAGES),
    "advantages clipped at 0.5": (advantages(lambda own, size: own.clamp(-0.5, 0.5)), {}, ADVANTAGES),
    "advantages plus 0.2": (advantages(lambda own, size: own + 0.2), {}, ADVANTAGES),
    "advantages reversed in groups": (advantages(within), {}, SHUFFLED),
    "advantages of the next group": (advantages(across), {}, SHUFFLED),
    "sampler at T = 0.5": (drawn(temperature=0.5), {**FAST, "max_steps": 9}, TRUNCATED),
    "sampler with top-p 0.6": (drawn(top_p=0.6), {**FAST, "max_steps": 9}, TRUNCATED),
    "sampler three steps behind": (lagged(3), {**FAST, "max_steps": 9}, WEIGHTS),
    "head of the sampler off by a half": (noisy("lm_head", 0.5), FAST, (*WEIGHTS, "unlikely tokens")),
    "half of each group copied": (doubled, LONG, ("copied rollouts", "ranks draw the same")),
}  # fmt: skip
"""Fault -> what puts it in, settings of its training, faults of the catalogue that name it rightly."""

SECOND: dict[str, Fault] = {
    "loss times 1.3": (scaled(1.3), LONG, OFF),
    "loss divided by the accumulation again": (
        scaled(0.5), {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
        (*OFF, "accumulation not scaled"),
    ),
    "only what was worse": (
        of_batch(lambda trainer, batch: {**batch, "advantages": batch["advantages"].clamp(max=0)}), LONG,
        ("another loss", *ADVANTAGES),
    ),
    "bnpo in place of the default": (
        set_to(loss_type="bnpo"), {**LONG, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
        ("wrong aggregation", *OFF),
    ),
    "sequence ratio": (
        set_to(importance_sampling_level="sequence"), PASSES, ("another loss", "wrong aggregation", "wrong clip range"),
    ),
    "mask moved to the right": (inputs(completion_mask=lambda own: own.roll(1, 1)), LONG, MASKED),
    "second half of the tokens out": (
        inputs(completion_mask=lambda own: own * (own.cumsum(1) <= 8)), LONG, MASKED,
    ),
    "old off by 0.2": (inputs(old_per_token_logps=lambda own: own + 0.2), PASSES, OLD),
    "old shifted by two": (inputs(old_per_token_logps=lambda own: own.roll(2, 1)), PASSES, OLD),
    "old in base 10": (inputs(old_per_token_logps=lambda own: own / 2.302585), PASSES, OLD),
    "reference in base 2": (
        inputs(ref_per_token_logps=lambda own: own / 0.6931), KL, ("wrong reference", "wrong kl term", *OLD),
    ),
    "KL term of a tenth": (set_to(beta=0.02), KL, ("wrong kl term",)),
    "upper limit at 3": (set_to(epsilon_high=3.0), PASSES, ("wrong clip range",)),
    "rate times 2": (rate_times(2.0), {}, RATE),
    "rate times 0.5": (rate_times(0.5), {}, RATE),
    "rate of 0": (rate_times(0.0), {}, (*RATE, "zero learning rate")),
    "decay of 1": (decay_of(1.0), {"learning_rate": 2e-2}, DECAY),
    "stated decay not in force": (decay_of(0.0), {"weight_decay": 2.0, "learning_rate": 2e-2}, DECAY),
    "advantages times 0.5": (advantages(lambda own, size: own * 0.5), {}, ADVANTAGES),
    "advantages of pairs": (advantages(of_pairs), {}, (*ADVANTAGES, "split groups")),
    "advantages squared": (advantages(lambda own, size: own.sign() * own**2), {}, ADVANTAGES),
    "two advantages exchanged": (
        advantages(lambda own, size: own.view(-1, size)[:, [1, 0, *range(2, size)]].reshape(-1)), {}, SHUFFLED,
    ),
    "advantages with the sign changed": (
        advantages(lambda own, size: -own), {}, ("reversed sign", *ADVANTAGES),
    ),
    "sampler at T = 1.5": (drawn(temperature=1.5), {"learning_rate": 0.1, "max_steps": 9, **LONG}, TRUNCATED),
    "sampler with top-k 3": (drawn(top_k=3), FAST, TRUNCATED),
    "sampler that never ends": (drawn(min_new_tokens=24), FAST, (*TRUNCATED, "wrong weights at the sampler")),
    "sampler a step behind": (lagged(1), {**FAST, "learning_rate": 0.1, "max_steps": 9}, WEIGHTS),
    "first layer of the sampler off": (noisy(".layers.0.", 0.5), FAST, (*WEIGHTS, "unlikely tokens")),
    "embedding of the sampler off": (noisy("embed_tokens", 0.5), FAST, (*WEIGHTS, "unlikely tokens")),
    "prompts turned round at the sampler": (
        single_turn(lambda ids: ids[::-1]), {**FAST, "max_steps": 9}, ("inputs differ", *WEIGHTS, "unlikely tokens"),
    ),
}  # fmt: skip
"""The second list, scored once after what the first one showed was mended."""


def main() -> None:
    """Run a list by the means of `folders`."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--which", choices=("first", "second"), default="first")
    given, rest = parser.parse_known_args()
    folders.FAULTS.clear()
    folders.FAULTS.update(FIRST if given.which == "first" else SECOND)
    folders.CLEAN.clear()
    results = HERE / f"unprepared_{given.which}.json"
    sys.argv = [sys.argv[0], "--results", str(results), "--keep", f"build/unprepared-{given.which}", *rest]
    folders.main()


if __name__ == "__main__":
    main()
