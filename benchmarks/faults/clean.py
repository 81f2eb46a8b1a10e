"""Clean runs through `verify`: in how many of them is any claim called broken?

    python benchmarks/faults/clean.py [--results FILE] [--keep FOLDER] [--later 100]

Rules, written before the first run: 64 real trainings of 4 steps, 32 of our loop and 32 of TRL's trainer, with the
model `tiny`, 8 prompts × 4 rollouts: recipes and settings, other seeds, LoRA, several rewards, resumed runs, filtered
groups, earlier and rounded weights that the settings state. All artefacts are given: the evidence of every batch,
settings, log, the checkpoint before every step, and the reward function. Counted is a run in which any claim is broken;
the bound is the upper end of the 95 % Clopper-Pearson interval. A run that cannot be made
because the settings do not go together is no run, and is listed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import run
import torch
import worlds
from scipy.stats import beta
from transformers.utils import logging

from grposcope.core.errors import UserError

SIZE = {"steps": 4, "prompts": 8, "group": 4}
OURS: tuple[dict[str, Any], ...] = (
    {}, {"recipe": "dr_grpo"}, {"recipe": "rloo"}, {"recipe": "dapo"}, {"recipe": "gspo"}, {"recipe": "cispo"},
    {"recipe": "batch_grpo"}, {"recipe": "reinforce"}, {"recipe": "maxrl"}, {"recipe": "ppo"}, {"kl": 0.1},
    {"interval": 2}, {"interval": 2, "minibatches": 2}, {"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 5},
    {"sampler_precision": "bfloat16"}, {"staleness": "2"}, {"micro_batch": 8}, {"optimizer": "sgd", "lr": 0.1},
    {"schedule": "linear", "warmup": 2}, {"entropy": 0.01}, {"allocate": "filter"}, {"max_tokens": 10},
    {"resumed": True}, {"resumed": True, "recipe": "dapo"}, {"seed": 1}, {"seed": 2}, {"seed": 3, "kl": 0.1},
    {"seed": 4, "recipe": "dapo", "max_tokens": 12}, {"seed": 5, "recipe": "rloo"}, {"seed": 6, "temperature": 1.2},
)  # fmt: skip
TRL: tuple[dict[str, Any], ...] = (
    {}, {"recipe": "dr_grpo"}, {"recipe": "rloo"}, {"recipe": "dapo"}, {"recipe": "gspo"}, {"recipe": "cispo"},
    {"recipe": "batch_grpo"}, {"kl": 0.1}, {"interval": 2}, {"interval": 2, "minibatches": 2}, {"temperature": 0.7},
    {"top_p": 0.9}, {"top_k": 5}, {"micro_batch": 8}, {"optimizer": "sgd", "lr": 0.1},
    {"schedule": "linear", "warmup": 2}, {"allocate": "filter"}, {"max_tokens": 10}, {"lora": True},
    {"lora": True, "recipe": "dapo"}, {"lora": True, "kl": 0.1}, {"lora": True, "micro_batch": 8},
    {"max_tokens": 12, "recipe": "dapo"},
    {"options": ["mask_truncated_completions=true"], "max_tokens": 10},
    {"options": ["mask_truncated_completions=true"], "max_tokens": 12, "seed": 1}, {"seed": 1}, {"seed": 2},
    {"seed": 3, "kl": 0.1}, {"seed": 4, "recipe": "dapo"}, {"seed": 5, "recipe": "rloo"},
    {"seed": 6, "temperature": 1.2}, {"seed": 7, "lora": True},
)  # fmt: skip


def main() -> None:
    """Train what has no result yet, judge it, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=run.HERE / "clean.json")
    parser.add_argument("--keep", type=Path, default=Path("build/clean"), help="folder of the runs")
    parser.add_argument("--later", type=int, default=0, help="added to every seed, for further runs")
    parser.add_argument("--judge", action="store_true", help="judge the kept runs anew")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    results = json.loads(given.results.read_text()) if given.results.exists() else {}
    for engine, every in (("ours", OURS), ("trl", TRL)):
        for listed in every:
            settings = {**listed, "seed": int(listed.get("seed", 0)) + given.later} if given.later else listed
            key = f"{engine} {json.dumps(settings)}"
            if key in results and not given.judge:
                continue
            began, folder = time.perf_counter(), given.keep / run._named(key)
            try:
                if not (given.judge and (folder / "verify").exists()):
                    trained(engine, dict(settings), folder)
                evidence = run.whole_evidence(folder)[0]
                results[key] = {"broken": run.broken(evidence), "tested": tested(evidence)}
            except UserError as error:
                results[key] = {"refused": str(error)}
            run.write_json(given.results, results)
            print(f"{key:70} {results[key]} {time.perf_counter() - began:.1f} s"[:300], flush=True)
    told(results)


def trained(engine: str, settings: dict[str, Any], folder: Path) -> None:
    """Train one run, in two parts where it is to be resumed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    options = list(settings.pop("options", []))
    if settings.pop("lora", False):
        options += ["use_peft=true", "lora_r=4", 'lora_target_modules=["q_proj","v_proj"]']
        settings["lr"] = 1e-2
    resumed = settings.pop("resumed", False)
    given = {**SIZE, **settings}
    if resumed:
        worlds.ours(folder, worlds.none, {**given, "steps": 2})
        worlds.resumed(folder, given["steps"])
    else:
        worlds.WORLDS[engine](folder, worlds.none, given, worlds.BEGINS, *options)


def tested(evidence: Any) -> list[str]:
    """The claims that could be tested, if in part."""
    from grposcope.faults.judge_rollouts import prove
    from grposcope.signs.rollouts.findings import was_tested

    return [proof.name for proof, findings in prove(evidence).items() if any(map(was_tested, findings))]


def told(results: dict[str, Any]) -> None:
    """Print the count."""
    made = {key: one for key, one in results.items() if "refused" not in one}
    wrong = {key: one["broken"] for key, one in made.items() if one["broken"]}
    n, k = len(made), len(wrong)
    upper = float(beta.ppf(0.975, k + 1, n - k)) if n > k else 1.0
    print(f"{n} clean runs, {k} with a claim called broken ({k / max(n, 1):.1%}, 95 % bound {upper:.1%})")
    for key, broken in wrong.items():
        print(f"  {key}: {broken}")
    for key, one in results.items():
        if "refused" in one:
            print(f"  not run: {key}: {one['refused']}")


if __name__ == "__main__":
    main()
