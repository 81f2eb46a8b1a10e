"""Faults and clean twins through `grposcope verify FOLDER` alone: no flag, no model, the folder that TRL leaves.

    python benchmarks/faults/folders.py [--seeds 2] [--only NAME] [--keep FOLDER] [--results FILE]

Rules, written before the first run: each training is of TRL's trainer, 6 to 9 steps of 4 prompts × 4 rollouts with a
random Llama of 20 k parameters, `verify_every=1` and a checkpoint after every step. A fault is put into the trainer
once it is made, so that all settings say otherwise; the clean twin of a fault is the same training without it, and
CLEAN has more. Found: any claim is broken. Named: the first finding of a claim that is broken is one of those listed.
One threshold, that of the command. Results are kept as they come; what is there is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).parent
for name in ("helpers", "engines"):
    sys.path.insert(0, str(HERE.parents[1] / "tests" / name))

PASSES = {"num_iterations": 3, "max_steps": 9, "learning_rate": 2e-2}
KL = {"beta": 0.2, "learning_rate": 2e-2}


def exchanged(trainer: Any) -> None:
    """The two sides of the clip change places."""
    trainer.epsilon_low, trainer.epsilon_high = trainer.epsilon_high, trainer.epsilon_low


def set_to(**values: float) -> Callable[[Any], None]:
    """Attributes that the loss reads are others than the settings."""

    def change(trainer: Any) -> None:
        for name, value in values.items():
            setattr(trainer, name, value)

    return change


def of_batch(change: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> Callable[[Any], None]:
    """The loss is taken of a changed batch."""

    def put(trainer: Any) -> None:
        inner = trainer._compute_loss
        trainer._compute_loss = lambda model, inputs: inner(model, change(trainer, dict(inputs)))

    return put


def no_old(trainer: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The ratio is to the policy itself in every pass."""
    return {**inputs, "old_per_token_logps": None}


def reversed_sign(trainer: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Advantages have the opposite sign in the loss."""
    return {**inputs, "advantages": -inputs["advantages"]}


def inverted_mask(trainer: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The mask is that of the padding."""
    return {**inputs, "completion_mask": 1 - inputs["completion_mask"]}


def scaled(factor: float) -> Callable[[Any], None]:
    """The loss is multiplied before its backward pass."""

    def put(trainer: Any) -> None:
        inner = trainer.compute_loss
        trainer.compute_loss = lambda *given, **more: inner(*given, **more) * factor

    return put


def tiny_clip(trainer: Any) -> None:
    """The gradient is clipped at a ten-thousandth of the stated norm."""
    inner = trainer.accelerator.clip_grad_norm_

    def clip(parameters: Any, most: float, *more: Any, **given: Any) -> Any:
        parameters = list(parameters)
        norm = inner(parameters, most, *more, **given)
        inner(parameters, most * 1e-4, *more, **given)
        return norm

    trainer.accelerator.clip_grad_norm_ = clip


def frozen(trainer: Any) -> None:
    """The sampler keeps the first weights."""
    first = {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}
    inner = trainer._generate

    def generate(*given: Any, **more: Any) -> Any:
        own = {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}
        trainer.model.load_state_dict(first)
        try:
            return inner(*given, **more)
        finally:
            trainer.model.load_state_dict(own)

    trainer._generate = generate


def hotter(trainer: Any) -> None:
    """The sampler draws at twice the temperature."""
    trainer.generation_config.temperature = 2.0


def shifted_rewards(trainer: Any) -> None:
    """Each rollout has the advantage of the one before it."""
    inner = trainer._generate_and_score_completions

    def score(inputs: Any) -> Any:
        out = inner(inputs)
        out["advantages"] = out["advantages"].roll(1)
        return out

    trainer._generate_and_score_completions = score


FAULTS: dict[str, tuple[Callable[[Any], None], dict[str, Any], tuple[str, ...]]] = {
    "upper limit at 1.05": (set_to(epsilon_high=0.05), PASSES, ("wrong clip range",)),
    "lower limit at 0.98": (set_to(epsilon_low=0.02), PASSES, ("wrong clip range",)),
    "no clip at all": (set_to(epsilon_low=1e6, epsilon_high=1e6), PASSES, ("wrong clip range",)),
    "sides exchanged": (exchanged, {**PASSES, "epsilon_high": 0.5}, ("wrong clip range",)),
    "ratio to itself": (of_batch(no_old), PASSES, ("ratio always 1",)),
    "a quarter of the loss": (scaled(0.25), {}, ("scaled by a factor",)),
    "a quarter of the loss, with KL": (scaled(0.25), KL, ("scaled by a factor",)),
    "no KL term": (set_to(beta=0.0), KL, ("wrong kl term",)),
    "KL term doubled": (set_to(beta=0.4), KL, ("wrong kl term",)),
    "sign in the loss": (of_batch(reversed_sign), {}, ("reversed sign",)),
    "mask of the padding": (
        of_batch(inverted_mask), {"max_completion_length": 16}, ("mask inverted", "no token trained on"),
    ),
    "clipped at 1e-4": (tiny_clip, {}, ("clip norm not in force",)),
    "sampler keeps the first weights": (
        frozen, {"learning_rate": 5e-2, "max_completion_length": 24},
        ("weights never arrived", "wrong weights at the sampler"),
    ),
    "sampler at T = 2": (
        hotter, {"learning_rate": 0.1, "max_steps": 9, "max_completion_length": 24},
        ("sampler temperature differs", "unlikely tokens"),
    ),
}  # fmt: skip
"""Fault -> what puts it in, settings of its training, faults of the catalogue that name it rightly."""

CLEAN: dict[str, dict[str, Any]] = {
    "plain": {}, "KL": KL, "three passes": PASSES, "two sides": {**PASSES, "epsilon_high": 0.5},
    "long": {"max_completion_length": 24}, "large rate": {"learning_rate": 5e-2, "max_completion_length": 24},
    "accumulation": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
    "minibatches": {"per_device_train_batch_size": 8, "steps_per_generation": 2, "gradient_accumulation_steps": 1},
    "cut masked": {"mask_truncated_completions": True}, "bfloat16": {"bf16": True},
    "bfloat16, KL": {"bf16": True, **KL},
    "bfloat16, three passes": {"bf16": True, **PASSES}, "dapo": {"loss_type": "dapo"}, "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"}, "batch": {"scale_rewards": "batch"},
    "T = 0.7": {"temperature": 0.7}, "top-k 4": {"top_k": 4}, "delta": {**PASSES, "delta": 1.5},
    "sequence ratio": {**PASSES, "importance_sampling_level": "sequence"}, "dead batches": {**KL, "dead": 2},
    "completions logged": {"log_completions": True},
}  # fmt: skip
"""Sound trainings -> settings."""


def trained(folder: Path, settings: dict[str, Any], seed: int, fault: Callable[[Any], None] | None) -> None:
    """One training."""
    from tiny_trl import reward_letters, trainer

    from grposcope.engines.trl import GRPOscopeTrainer

    shutil.rmtree(folder, ignore_errors=True)
    given = {
        "save_strategy": "steps", "save_steps": 1, "max_steps": 6, "learning_rate": 5e-3, "seed": seed,
        "max_completion_length": 12, "per_device_train_batch_size": 16, **settings,
    }  # fmt: skip
    dead, calls = given.pop("dead", 0), [0]

    def letters(completions: list[str], **more: Any) -> list[float]:
        calls[0] += 1
        return [0.0] * len(completions) if calls[0] <= dead else reward_letters(completions, **more)

    with started(folder):
        made = trainer(folder, [], reward=letters, kind=GRPOscopeTrainer, ours={"verify_every": 1}, **given)
    if fault is not None:
        fault(made)
    made.train()


@contextlib.contextmanager
def started(folder: Path) -> Iterator[None]:
    """Inside the block TRL's reference model is the model of the trainer, which has no name that it could load."""
    from tiny_trl import trainer
    from transformers import AutoModelForCausalLM

    first = folder.parent / "first weights"
    if not first.exists():
        trainer(folder.parent / "none", []).model.save_pretrained(first)
    load = AutoModelForCausalLM.from_pretrained
    with mock.patch("trl.trainer.grpo_trainer.create_model_from_path", side_effect=lambda *given, **more: load(first)):
        yield


def judged(folder: Path) -> list[str]:
    """The first fault of each claim that `verify FOLDER` calls broken."""
    from asked import asked

    _, document = asked("verify", folder)
    return [claim["findings"][0]["fault"] for claim in document["claims"] if claim["status"] == "broken"]


def main() -> None:
    """Run what has no result yet, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="", help="trainings with this in their name")
    parser.add_argument("--results", type=Path, default=HERE / "folders.json")
    parser.add_argument("--keep", type=Path, default=Path("build/folders"), help="folder of the runs")
    parser.add_argument("--judge", action="store_true", help="judge kept runs anew")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    results = json.loads(given.results.read_text()) if given.results.exists() else {}
    cells: list[tuple[str, dict[str, Any], Callable[[Any], None] | None]] = [
        *((f"fault: {name}", settings, fault) for name, (fault, settings, _) in FAULTS.items()),
        *((f"clean: {name}", settings, None) for name, settings in CLEAN.items()),
    ]
    for seed in range(given.seeds):
        for name, settings, fault in cells:
            key, began = f"{name}, seed {seed}", time.perf_counter()
            folder = given.keep / "".join(c if c.isalnum() else "-" for c in key)
            if given.only not in key or (key in results and not (given.judge and folder.exists())):
                continue
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                if not (given.judge and folder.exists()):
                    trained(folder, dict(settings), seed, fault)
                results[key] = judged(folder)
            given.results.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{key:50} {results[key]} {time.perf_counter() - began:.1f} s", flush=True)
    told(results)


def told(results: dict[str, list[str]], table: dict[str, Any] | None = None) -> None:
    """Print the counts with Wilson's 95 % interval. table: of the faults and how they are named, FAULTS by default."""
    from grposcope.maths.intervals import wilson

    faults = {key: found for key, found in results.items() if key.startswith("fault")}
    clean = {key: found for key, found in results.items() if key.startswith("clean")}
    named = FAULTS if table is None else table
    right = {key: set(found) & set(named[key.removeprefix("fault: ").rpartition(", seed")[0]][2])
             for key, found in faults.items()}  # fmt: skip
    counts = {
        "faults found": (sum(map(bool, faults.values())), len(faults)),
        "faults named": (sum(map(bool, right.values())), len(faults)),
        "clean runs with a claim called broken": (sum(map(bool, clean.values())), len(clean)),
    }
    for words, (count, total) in counts.items():
        low, high = wilson(count / max(total, 1), max(total, 1))
        print(f"{words}: {count} of {total} ({low:.1%} to {high:.1%})")


if __name__ == "__main__":
    main()
