"""Memory and time of a probe of 8 × 64 tokens against the size of the model, random models with bfloat16 weights.

    python benchmarks/probe_sizes.py                       Llamas of 0.1, 0.25 and 0.5 B, and a Qwen3-MoE of 0.5 B
    python benchmarks/probe_sizes.py 1b 2b --keep FILE     only these; FILE keeps what was measured, and is added to
    python benchmarks/probe_sizes.py 0.25b --length 128    other numbers of tokens
    python benchmarks/probe_sizes.py --keep FILE --picture FILE   the picture and the fits of what is kept, no runs

A process each. Tokens include a prompt of 16. Measured is the peak of the resident memory during the self-check and the
probe, above the loaded model; peak is all that the process held. Fits are of the exponent: the slope of the logarithm
of a cost against that of the number of weights, at 64 tokens, over Llamas and mixtures together, and of the number of
tokens, at one size, with its 95 % interval by Student's t. The rule: 2 B within 20 GB, and exponents of 1 or less, or
intervals that hold 1. The last line is JSON.
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
from scipy import stats
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3MoeConfig

from grposcope.instruments.gradient import backward, probe
from grposcope.lab.objectives import recipes

SIZES: dict[str, dict[str, Any]] = {
    "0.1b": {"width": 768, "layers": 10, "inside": 2048},
    "0.25b": {"width": 1024, "layers": 17, "inside": 3072},
    "0.5b": {"width": 1408, "layers": 20, "inside": 3840},
    "0.5b-moe": {"width": 1024, "layers": 12, "inside": 1024, "experts": 12},
    "1b": {"width": 2048, "layers": 20, "inside": 5632},
    "1b-moe": {"width": 1280, "layers": 16, "inside": 1280, "experts": 12},
    "2b": {"width": 2560, "layers": 27, "inside": 6912},
    "2b-moe": {"width": 1536, "layers": 20, "inside": 1536, "experts": 14},
}

COSTS = {"measured": "GB above the loaded model", "taken": "seconds"}


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
            "peak": peak_memory(), "told": told, "taken": taken, "tokens": 8.0 * length}  # fmt: skip


def exponent(sizes: np.ndarray, costs: np.ndarray) -> tuple[float, float]:
    """Slope of log cost against log size, and half of its 95 % interval, NaN for two points."""
    found = stats.linregress(np.log(sizes), np.log(costs))
    width = stats.t.ppf(0.975, len(sizes) - 2) * found.stderr if len(sizes) > 2 else np.nan
    return float(found.slope), float(width)


def draw(rows: list[dict[str, Any]], to: Path | None) -> None:
    """Memory and time against weights and against tokens, with the exponent of each, printed and drawn."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
    size = max({one["name"] for one in rows}, key=lambda name: sum(one["name"] == name for one in rows))
    against = {
        "weights": ([one for one in rows if one["length"] == 64], "weights, billions"),
        "tokens": ([one for one in rows if one["name"] == size], f"tokens, model of {size}"),
    }
    for below, (over, (some, label)) in zip(axes.T, against.items(), strict=True):
        for axis, (key, what) in zip(below, COSTS.items(), strict=True):
            x, y = (np.array([one[name] for one in some]) for name in (over, key))
            if len(set(x)) < 2:
                continue
            slope, width = exponent(x, y)
            print(f"{what} against {over}: exponent {slope:.2f} ± {width:.2f} ({len(x)} points)")
            for mixture, colour, kind in ((False, "C0", "Llama"), (True, "C1", "Qwen3-MoE")):
                mine = [("moe" in one["name"]) == mixture for one in some]
                axis.plot(x[mine], y[mine], "o", color=colour, label=kind if any(mine) else None)
            ends = np.array([x.min(), x.max()])
            axis.plot(ends, np.exp(np.log(y).mean() + slope * (np.log(ends) - np.log(x).mean())), "-", color="0.6")
            axis.set(xscale="log", yscale="log", xlabel=label, ylabel=what, title=f"exponent {slope:.2f} ± {width:.2f}")
            axis.legend()
    if to is not None:
        figure.savefig(to, dpi=100)


def main() -> None:
    """A process each; a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(SIZES))
    parser.add_argument("--length", type=int, default=64, help="tokens of a rollout, its prompt included")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--keep", type=Path, help="file of what was measured, one JSON a line")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(given.names[0], given.length)))
        return
    rows = (
        [json.loads(line) for line in given.keep.read_text().splitlines()] if given.keep and given.keep.exists() else []
    )
    print("| model | tokens | weights, 10⁹ | memory told, GB | measured, GB | peak, GB | time told, s | taken, s |")
    print("|---|---|---|---|---|---|---|---|")
    names = given.names or ([] if rows else ["0.1b", "0.25b", "0.5b", "0.5b-moe"])
    for one in rows:
        print(row(one))
    for name in names:
        words = [sys.executable, __file__, name, "--child", "--length", str(given.length)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            print(f"| {name} | {(done.stderr.strip().splitlines() or [str(done.returncode)])[-1][:120]} | | | | | | |")
            continue
        rows.append({"name": name, "length": given.length, **json.loads(done.stdout.splitlines()[-1])})
        print(row(rows[-1]), flush=True)
        if given.keep:
            given.keep.write_text("".join(json.dumps(one) + "\n" for one in rows))
    if len(rows) > 1:
        draw(rows, given.picture)
    print(json.dumps(rows))


def row(one: dict[str, Any]) -> str:
    """A row of the table."""
    keys = ("weights", "predicted", "measured", "peak", "told", "taken")
    return f"| {one['name']} | {one['tokens']:.0f} | {' | '.join(f'{one[key]:.2f}' for key in keys)} |"


if __name__ == "__main__":
    main()
