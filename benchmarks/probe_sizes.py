"""Memory and time of a probe of 8 × 64 tokens against the size of the model, random models with bfloat16 weights.

    python benchmarks/probe_sizes.py                       Llamas of 0.1, 0.25 and 0.5 B, and a Qwen3-MoE of 0.5 B
    python benchmarks/probe_sizes.py 1b --picture FILE     only this one; with FILE a picture of cost against weights

A process each. Tokens include a prompt of 16. Measured is the peak of the resident memory during the probe with its
self-check, above the loaded model. The fit is a line through memory and time against weights. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peak_memory import peak_memory, reset_peak
from probe import batch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3MoeConfig

from grposcope.instruments.gradient import backward, probe
from grposcope.lab.objectives import recipes

SIZES: dict[str, dict[str, Any]] = {
    "0.1b": {"width": 768, "layers": 10, "inside": 2048},
    "0.25b": {"width": 1024, "layers": 17, "inside": 3072},
    "0.5b": {"width": 1408, "layers": 20, "inside": 3840},
    "0.5b-moe": {"width": 1024, "layers": 12, "inside": 1024, "experts": 12},
    "1b": {"width": 2048, "layers": 18, "inside": 5632},
    "2b": {"width": 2560, "layers": 24, "inside": 6912},
}


def build(one: dict[str, Any]) -> Any:
    """A random model in bfloat16."""
    common = {
        "vocab_size": 32_000, "hidden_size": one["width"], "num_hidden_layers": one["layers"], "head_dim": 64,
        "intermediate_size": one["inside"], "num_attention_heads": one["width"] // 64,
        "num_key_value_heads": one["width"] // 128, "tie_word_embeddings": True,
    }  # fmt: skip
    experts = {"moe_intermediate_size": one["inside"], "num_experts_per_tok": 2}
    config = (
        Qwen3MoeConfig(**common, num_experts=one["experts"], **experts) if "experts" in one else LlamaConfig(**common)
    )
    torch.set_default_dtype(torch.bfloat16)
    try:
        return AutoModelForCausalLM.from_config(config).eval()
    finally:
        torch.set_default_dtype(torch.float32)


def measure(name: str, length: int) -> dict[str, float]:
    """Weights in billions, predicted and measured GB, seconds told and taken, in this process."""
    model, rollouts = build(SIZES[name]), batch(8, length, 32_000, prompt=16)
    reset_peak()
    before = peak_memory()
    attached = backward.attach(model, rollouts)
    predicted, told = probe.memory_needed(attached, rollouts) / 1e9, probe.seconds_needed(attached, rollouts)
    began = time.perf_counter()
    probe.probe(model, rollouts, recipes.GRPO, check=False)
    taken = time.perf_counter() - began
    weights = sum(p.numel() for p in model.parameters()) / 1e9
    return {"weights": weights, "before": before, "predicted": predicted, "measured": peak_memory() - before,
            "told": told, "taken": taken, "tokens": 8.0 * length}  # fmt: skip


def draw(rows: dict[str, dict[str, float]], to: Path) -> None:
    """Memory and time against weights, with the line through each."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    sizes = np.array([one["weights"] for one in rows.values()])
    for axis, key, what in zip(axes, ("measured", "taken"), ("GB above the loaded model", "seconds"), strict=True):
        values = np.array([one[key] for one in rows.values()])
        slope, start = np.polyfit(sizes, values, 1)
        ends = np.array([0.0, sizes.max()])
        axis.plot(sizes, values, "o")
        axis.plot(ends, start + slope * ends, "-")
        axis.set(xlabel="weights, billions", ylabel=what, title=f"{slope:.2g} per billion", ylim=(0, None))
    figure.savefig(to, dpi=110)


def main() -> None:
    """A process each; a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(SIZES))
    parser.add_argument("--length", type=int, default=64, help="tokens of a rollout, its prompt included")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(given.names[0], given.length)))
        return
    print(
        "| model | weights, 10⁹ | memory told, GB | measured, GB | time told, s | taken, s |\n|---|---|---|---|---|---|"
    )
    rows = {}
    for name in given.names or ["0.1b", "0.25b", "0.5b", "0.5b-moe"]:
        words = [sys.executable, __file__, name, "--child", "--length", str(given.length)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            print(f"| {name} | {done.stderr.strip().splitlines()[-1][:120]} | | | | |", flush=True)
            continue
        rows[name] = one = json.loads(done.stdout.splitlines()[-1])
        shown = (f"{one[key]:.2f}" for key in ("weights", "predicted", "measured", "told", "taken"))
        print(f"| {name} | {' | '.join(shown)} |", flush=True)
    if given.picture:
        draw(rows, given.picture)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
