"""Faults and clean twins of trainings on two ranks through `grposcope verify FOLDER` alone: no flag, no model.

    python benchmarks/faults/ranks.py [--seeds 2] [--only NAME] [--keep FOLDER] [--results FILE]

Rules, written before the first run, as those of folders.py: TRL's trainer under torchrun, two ranks on gloo, 6 steps, a
random Llama of 20 k parameters, `verify_every=1` and a checkpoint after every step. A fault is put into the trainer of
both ranks, or of the second alone, once it is made; CLEAN has trainings without one. Found: any claim is broken. Named:
the first finding of a claim that is broken is one of those listed. One threshold, that of the command. Results are kept
as they come; what is there is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folders

SPLIT = {"num_generations": 8, "per_device_train_batch_size": 4, "max_completion_length": 24}
"""A group whose rollouts are drawn on both ranks, half and half."""


def same_prompts(trainer: Any) -> None:
    """Every rank is given the prompts of the first."""
    from accelerate.utils import broadcast_object_list

    inner = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: inner(broadcast_object_list(list(inputs)))


def same_draws(trainer: Any) -> None:
    """Every rank draws with the same random numbers."""
    import torch

    inner, calls = trainer._generate, [0]

    def generate(*given: Any, **more: Any) -> Any:
        calls[0] += 1
        torch.manual_seed(calls[0])
        return inner(*given, **more)

    trainer._generate = generate


def of_second(fault: Callable[[Any], None]) -> Callable[[Any], None]:
    """The fault is in the second rank alone."""
    return lambda trainer: fault(trainer) if os.environ["RANK"] == "1" else None


def advantages_of_the_rank(trainer: Any) -> None:
    """The group mean is that of the rollouts of the same rank."""
    inner = trainer._generate_and_score_completions

    def score(inputs: Any) -> Any:
        out = inner(inputs)
        out["advantages"] = out["advantages"] - out["advantages"].mean()
        return out

    trainer._generate_and_score_completions = score


FAULTS: dict[str, tuple[Callable[[Any], None], dict[str, Any], tuple[str, ...]]] = {
    "every rank draws the same prompts": (same_prompts, {}, ("ranks draw the same",)),
    "every rank draws with the same numbers": (same_draws, SPLIT, ("copied rollouts", "ranks draw the same")),
    "advantages of the rank": (advantages_of_the_rank, SPLIT, ("wrong baseline", "split groups", "wrong group size")),
    "loss divided by the ranks": (folders.scaled(0.5), {}, ("scaled by a factor",)),
    "a quarter of the loss, with KL": (folders.scaled(0.25), folders.KL, ("scaled by a factor",)),
    "KL term doubled": (folders.set_to(beta=0.4), folders.KL, ("wrong kl term",)),
    "sign in the loss": (folders.of_batch(folders.reversed_sign), {}, ("reversed sign",)),
    "upper limit at 1.05": (folders.set_to(epsilon_high=0.05), folders.PASSES, ("wrong clip range",)),
    "sampler at T = 2": folders.FAULTS["sampler at T = 2"],
    "second rank at T = 2": (of_second(folders.hotter), *folders.FAULTS["sampler at T = 2"][1:]),
    "second rank keeps the first weights": (
        of_second(folders.frozen), {"learning_rate": 5e-2, "max_completion_length": 24},
        ("weights never arrived", "wrong weights at the sampler"),
    ),
    "second rank has another sign": (of_second(folders.of_batch(folders.reversed_sign)), {}, ("reversed sign",)),
}  # fmt: skip
"""Fault -> what puts it in, settings of its training, faults of the catalogue that name it rightly."""

CLEAN: dict[str, dict[str, Any]] = {
    "plain": {}, "KL": folders.KL, "three passes": folders.PASSES, "group on both ranks": SPLIT,
    "long": {"max_completion_length": 24}, "large rate": {"learning_rate": 5e-2, "max_completion_length": 24},
    "accumulation": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    "minibatches": {"per_device_train_batch_size": 4, "steps_per_generation": 2, "gradient_accumulation_steps": 1},
    "cut masked": {"mask_truncated_completions": True}, "dapo": {"loss_type": "dapo"}, "bfloat16": {"bf16": True},
    "large rate at T = 2's length": {"learning_rate": 0.1, "max_steps": 9, "max_completion_length": 24},
}  # fmt: skip
"""Sound trainings -> settings."""


def on_this_rank(name: str, seed: int, folder: Path) -> None:
    """This rank's share of a training, under torchrun."""
    from tiny_trl import trainer

    from grposcope.engines.trl import GRPOscopeTrainer

    kind, _, name = name.partition(": ")
    fault, settings = FAULTS[name][:2] if kind == "fault" else (None, CLEAN[name])
    given = {
        "save_strategy": "steps", "save_steps": 1, "max_steps": 6, "learning_rate": 5e-3, "seed": seed,
        "max_completion_length": 12, "per_device_train_batch_size": 8, **settings,
    }  # fmt: skip
    with folders.started(folder):
        made = trainer(folder, [], kind=GRPOscopeTrainer, ours={"verify_every": 1}, **given)
    if fault is not None:
        fault(made)
    made.train()


def trained(name: str, seed: int, folder: Path) -> None:
    """One training on two ranks; RuntimeError where it fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with folders.started(folder):
        pass  # the reference's weights are there before two ranks look for them
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", __file__]
    done = subprocess.run([*launcher, "--rank", name, str(seed), str(folder)], env=environment, capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-2000:])


def main() -> None:
    """Run what has no result yet, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="", help="trainings with this in their name")
    parser.add_argument("--results", type=Path, default=folders.HERE / "ranks.json")
    parser.add_argument("--keep", type=Path, default=Path("build/ranks"), help="folder of the runs")
    parser.add_argument("--judge", action="store_true", help="judge kept runs anew")
    parser.add_argument("--rank", nargs=3, metavar=("NAME", "SEED", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    if given.rank:
        on_this_rank(given.rank[0], int(given.rank[1]), Path(given.rank[2]))
        return
    results = json.loads(given.results.read_text()) if given.results.exists() else {}
    names = [*(f"fault: {name}" for name in FAULTS), *(f"clean: {name}" for name in CLEAN)]
    for seed in range(given.seeds):
        for name in names:
            key, began = f"{name}, seed {seed}", time.perf_counter()
            folder = given.keep / "".join(c if c.isalnum() else "-" for c in key)
            if given.only not in key or (key in results and not (given.judge and folder.exists())):
                continue
            if not (given.judge and folder.exists()):
                trained(name, seed, folder)
            with contextlib.redirect_stdout(io.StringIO()):
                results[key] = folders.judged(folder)
            given.results.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{key:50} {results[key]} {time.perf_counter() - began:.1f} s", flush=True)
    folders.told(results, FAULTS)


if __name__ == "__main__":
    main()
