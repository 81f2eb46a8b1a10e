"""Memory that a probe says it will take, against what the process took above its loaded model.

    python benchmarks/probe_memory.py            twelve small random models, a process each
    python benchmarks/probe_memory.py wide long  only these

Every configuration is a random model and one group of random rollouts. Predicted is `probe.memory_needed` after the
self-check, as a probe asks it before it begins; measured is the peak of the resident memory during a probe with its
self-check, above that right before. The rule: within 15 % on ten configurations. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

import torch
from peak_memory import peak_memory, reset_peak
from probe import batch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3MoeConfig

from grposcope.instruments.gradient import backward, probe
from grposcope.lab.objectives import recipes

BASE: dict[str, Any] = {"width": 512, "layers": 6, "inside": 1536, "vocabulary": 32_000, "rows": 8, "length": 96}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "base": {},
    "wide": {"width": 1024, "inside": 3072, "layers": 4},
    "deep": {"layers": 16},
    "long": {"length": 192},
    "short": {"length": 48, "width": 1024, "inside": 4096},
    "many": {"rows": 16},
    "few": {"rows": 4, "length": 128},
    "large vocabulary": {"vocabulary": 96_000, "rows": 4},
    "small vocabulary": {"vocabulary": 4_000, "width": 1024, "inside": 3072, "length": 160},
    "untied": {"tied": False},
    "bfloat16": {"dtype": "bfloat16"},
    "checkpointing": {"checkpointing": True, "layers": 12},
    "experts": {"experts": 8, "inside": 512},
}


def measure(name: str) -> dict[str, float]:
    """Predicted and measured GB of one configuration, in this process."""
    one = {**BASE, "tied": True, "dtype": "float32", "checkpointing": False, "experts": 0, **CONFIGURATIONS[name]}
    common = {
        "vocab_size": one["vocabulary"], "hidden_size": one["width"], "num_hidden_layers": one["layers"],
        "intermediate_size": one["inside"], "num_attention_heads": one["width"] // 64,
        "num_key_value_heads": one["width"] // 128, "tie_word_embeddings": one["tied"], "head_dim": 64,
    }  # fmt: skip
    config = (
        Qwen3MoeConfig(**common, num_experts=one["experts"], moe_intermediate_size=one["inside"], num_experts_per_tok=2)
        if one["experts"]
        else LlamaConfig(**common)
    )
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, one["dtype"])).eval()
    if one["checkpointing"]:
        model.gradient_checkpointing_enable()
    backward.attach(model, batch(2, 40, one["vocabulary"]))  # libraries and threads begin
    rollouts = batch(one["rows"], one["length"], one["vocabulary"])
    reset_peak()
    before = peak_memory()
    predicted = probe.memory_needed(backward.attach(model, rollouts), rollouts) / 1e9
    probe.probe(model, rollouts, recipes.GRPO)
    return {"before": before, "predicted": predicted, "measured": peak_memory() - before}


def main() -> None:
    """A process each; a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(CONFIGURATIONS))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(given.names[0])))
        return
    print("| configuration | predicted, GB | measured, GB | predicted ÷ measured |\n|---|---|---|---|")
    rows = {}
    for name in given.names or CONFIGURATIONS:
        done = subprocess.run([sys.executable, __file__, name, "--child"], capture_output=True, text=True)
        if done.returncode:
            print(f"| {name} | {done.stderr.strip().splitlines()[-1][:120]} | | |", flush=True)
            continue
        rows[name] = one = json.loads(done.stdout.splitlines()[-1])
        share = one["predicted"] / one["measured"]
        print(f"| {name} | {one['predicted']:.2f} | {one['measured']:.2f} | {share:.2f} |", flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
