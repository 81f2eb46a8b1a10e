"""Memory that a probe says it will take, against what the process took above its loaded model.

    python benchmarks/probe_memory.py            random models, a process each
    python benchmarks/probe_memory.py wide long  only these

Every configuration is a random model and one group of random rollouts. Predicted is `memory.needed` after the
self-check, as a probe asks it before it begins; measured is the peak of the resident memory during a probe with its
self-check, above that right before. The rule: within 15 % on the ten and more of TESTED, and never more than that
below. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import torch
from peak_memory import peak_memory, reset_peak
from probe import batch
from transformers import AutoModelForCausalLM, LlamaConfig, MambaConfig, Qwen3MoeConfig

from grposcope.instruments.gradient import backward, memory, probe
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_arrays import Rollouts

BASE: dict[str, Any] = {
    "kind": "transformer", "width": 512, "layers": 6, "inside": 1536, "vocabulary": 32_000, "rows": 8, "length": 96,
    "tied": True, "dtype": "float32", "checkpointing": False, "experts": 0, "lora": False, "padded": 0,
}  # fmt: skip
TUNED: dict[str, dict[str, Any]] = {
    "base": {},
    "wide": {"width": 1024, "inside": 3072, "layers": 4},
    "long": {"length": 192},
    "large vocabulary": {"vocabulary": 96_000, "rows": 4},
    "untied": {"tied": False},
    "bfloat16": {"dtype": "bfloat16"},
    "checkpointing": {"checkpointing": True, "layers": 12},
    "experts": {"experts": 8, "inside": 512},
}
"""Configurations on which the terms of `memory` were found."""

TESTED: dict[str, dict[str, Any]] = {
    "deep": {"layers": 16},
    "many short": {"rows": 32, "length": 56, "width": 640, "layers": 8},
    "few long": {"rows": 4, "length": 288},
    "small vocabulary": {"vocabulary": 4_000, "width": 1024, "inside": 3072, "length": 160},
    "untied, 64,000 tokens": {"tied": False, "vocabulary": 64_000, "width": 768, "rows": 6},
    "wide, bfloat16": {"dtype": "bfloat16", "width": 1024, "inside": 2816, "length": 160},
    "deep, checkpointing": {"checkpointing": True, "layers": 20, "width": 640, "length": 128},
    "many experts": {"experts": 16, "inside": 384, "width": 768, "length": 128},
    "Mamba": {"kind": "mamba", "layers": 4, "rows": 6, "length": 80},
    "LoRA": {"lora": True, "layers": 12, "width": 768, "inside": 2304, "length": 128},
    "padding": {"padded": 24, "length": 160, "vocabulary": 48_000},
}
"""Configurations that were first measured when the terms stood."""

CONFIGURATIONS = TUNED | TESTED


def build(one: dict[str, Any]) -> Any:
    """The random model of a configuration."""
    common = {"vocab_size": one["vocabulary"], "hidden_size": one["width"], "num_hidden_layers": one["layers"],
              "tie_word_embeddings": one["tied"]}  # fmt: skip
    attention = {"num_attention_heads": one["width"] // 64, "num_key_value_heads": one["width"] // 128, "head_dim": 64,
                 "intermediate_size": one["inside"]}  # fmt: skip
    config: Any
    if one["kind"] == "mamba":
        config = MambaConfig(**common)
    elif one["experts"]:
        config = Qwen3MoeConfig(**common, **attention, num_experts=one["experts"], num_experts_per_tok=2,
                                moe_intermediate_size=one["inside"])  # fmt: skip
    else:
        config = LlamaConfig(**common, **attention)
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, one["dtype"])).eval()
    if one["checkpointing"]:
        model.gradient_checkpointing_enable()
    if one["lora"]:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    return model


def rollouts_of(one: dict[str, Any]) -> Rollouts:
    """Its rollouts; every second prompt has `padded` tokens of padding."""
    rollouts = batch(one["rows"], one["length"], one["vocabulary"])
    rollouts.prompt_mask[1::2, : one["padded"]] = False
    return rollouts


def measure(name: str) -> dict[str, float]:
    """Predicted and measured GB of one configuration, in this process."""
    one = {**BASE, **CONFIGURATIONS[name]}
    model, rollouts = build(one), rollouts_of(one)
    backward.attach(model, batch(2, 40, one["vocabulary"]))  # libraries and threads begin
    reset_peak()
    before = peak_memory()
    moments = memory.needed(backward.attach(model, rollouts), rollouts)
    probe.probe(model, rollouts, recipes.GRPO)
    held = {f"of {name}": value / 1e9 for name, value in asdict(moments).items()}
    return {"before": before, "predicted": moments.peak / 1e9, "measured": peak_memory() - before, **held}


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
