"""Memory that a probe says it will take, against what the process took above its loaded model.

    python benchmarks/probe_memory.py            random models, a process each
    python benchmarks/probe_memory.py wide long  only these
    python benchmarks/probe_memory.py --page     and writes benchmarks/probe_memory.md
    python benchmarks/probe_memory.py --kept FILE … --page    of earlier runs, whose output FILE is

Every configuration is a random model and one group of random rollouts. Predicted is `memory.needed` after the
self-check, as a probe asks it before it begins; measured is the peak of the resident memory during a probe with its
self-check, above that right before. The rule: within 15 % on the ten and more of TESTED, and never more than that
below. Time told is `probe.seconds_needed`, time taken that of the probe after its self-check; the factor in it was
found on TUNED too. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peak_memory import peak_memory, reset_peak
from probe import batch
from transformers import AutoConfig, AutoModelForCausalLM

from grposcope.instruments.gradient import backward, memory, probe
from grposcope.lab import cpu
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_batch import RolloutBatch

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
    "small vocabulary": {"vocabulary": 4_000, "width": 1024, "inside": 3072, "length": 160},
    "untied, 64,000 tokens": {"tied": False, "vocabulary": 64_000, "width": 768, "rows": 6},
    "Mamba": {"kind": "mamba", "layers": 4, "rows": 6, "length": 80},
    "LoRA": {"lora": True, "layers": 12, "width": 768, "inside": 2304, "length": 128},
}
"""Configurations on which the terms of `memory` were found."""

TESTED: dict[str, dict[str, Any]] = {
    "deep": {"layers": 16},
    "many short": {"rows": 32, "length": 56, "width": 640, "layers": 8},
    "few long": {"rows": 4, "length": 288},
    "wide, bfloat16": {"dtype": "bfloat16", "width": 1024, "inside": 2816, "length": 160},
    "deep, checkpointing": {"checkpointing": True, "layers": 20, "width": 640, "length": 128},
    "many experts": {"experts": 16, "inside": 384, "width": 768, "length": 128},
    "padding": {"padded": 24, "length": 160, "vocabulary": 48_000},
    "GPT-2": {"kind": "gpt2", "width": 768, "layers": 8, "inside": 3072, "vocabulary": 50_257},
    "NeoX, untied": {"kind": "gpt_neox", "tied": False, "width": 896, "layers": 5, "inside": 3584, "length": 112},
    "Gemma 2": {"kind": "gemma2", "width": 768, "inside": 3072, "vocabulary": 80_000, "rows": 6, "length": 128},
    "Mixtral, bfloat16": {"kind": "mixtral", "dtype": "bfloat16", "experts": 6, "inside": 1024, "width": 768,
                          "tied": False, "length": 120},
    "LoRA, bfloat16": {"lora": True, "dtype": "bfloat16", "layers": 10, "width": 1024, "inside": 2816, "length": 144},
    "Mamba 2": {"kind": "mamba2", "layers": 4, "width": 768, "rows": 4, "length": 96},
    "Qwen 2, many rows": {"kind": "qwen2", "rows": 16, "length": 72, "width": 896, "inside": 2560, "layers": 10},
}  # fmt: skip
"""Configurations that were first measured when the terms stood."""

CONFIGURATIONS = TUNED | TESTED


def build(one: dict[str, Any]) -> Any:
    """The random model of a configuration."""
    kind = one["kind"] if one["kind"] != "transformer" else "qwen3_moe" if one["experts"] else "llama"
    usual = AutoConfig.for_model(kind)
    heads = one["width"] // 64
    wanted = {
        "vocab_size": one["vocabulary"], "hidden_size": one["width"], "num_hidden_layers": one["layers"],
        "tie_word_embeddings": one["tied"], "num_attention_heads": heads, "num_key_value_heads": max(1, heads // 2),
        "head_dim": 64, "intermediate_size": one["inside"], "moe_intermediate_size": one["inside"],
        "num_experts": one["experts"], "num_local_experts": one["experts"], "num_experts_per_tok": 2,
        "n_inner": one["inside"], "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    if one["kind"].startswith("mamba"):  # what these call inside and heads follows from the width
        del wanted["intermediate_size"]
    if one["kind"] == "mamba2":
        wanted |= {"num_heads": 2 * heads, "n_groups": 1, "state_size": 64, "chunk_size": 32}
    known = {name: value for name, value in wanted.items() if hasattr(usual, name) or name in usual.attribute_map}
    config = AutoConfig.for_model(kind, **known)
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, one["dtype"])).eval()
    if one["checkpointing"]:
        model.gradient_checkpointing_enable()
    if one["lora"]:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    return model


def rollouts_of(one: dict[str, Any]) -> RolloutBatch:
    """Its rollouts; every second prompt has `padded` tokens of padding."""
    rollouts = batch(one["rows"], one["length"], one["vocabulary"])
    rollouts.prompt_mask[1::2, : one["padded"]] = False
    return rollouts


def measure(name: str) -> dict[str, float]:
    """Predicted and measured GB of one configuration, in this process."""
    one = {**BASE, **CONFIGURATIONS[name]}
    model, rollouts = build(one), rollouts_of(one)
    backward.attach(model, batch(2, 40, one["vocabulary"]))  # libraries and threads begin
    with cpu.returning(torch.device("cpu")):
        pass  # what making the model left behind is given back
    reset_peak()
    before = peak_memory()
    attached = backward.attach(model, rollouts)
    moments, told = memory.needed(attached, rollouts), probe.seconds_needed(attached, rollouts)
    del attached
    began: list[float] = []
    probe.probe(model, rollouts, recipes.GRPO, foretold=lambda _: began.append(time.perf_counter()))
    taken = time.perf_counter() - began[0]
    held = {f"of {name}": value / 1e9 for name, value in asdict(moments).items()}
    return {"before": before, "predicted": moments.peak / 1e9, "measured": peak_memory() - before, "told": told,
            "taken": taken, **held}  # fmt: skip


PAGE = Path(__file__).with_suffix(".md")

HEADER = """| configuration | predicted, GB | measured, GB | predicted ÷ measured | time told ÷ taken |
|---|---|---|---|---|"""


def row(name: str, one: dict[str, float]) -> str:
    """A row of the table."""
    share, slower = one["predicted"] / one["measured"], one["told"] / one["taken"]
    return f"| {name} | {one['predicted']:.2f} | {one['measured']:.2f} | {share:.2f} | {slower:.2f} |"


def summary(rows: dict[str, dict[str, float]]) -> str:
    """How many are within 15 %, and the spread of the ratios of time."""
    shares = [one["predicted"] / one["measured"] for one in rows.values()]
    slower = np.log([one["told"] / one["taken"] for one in rows.values()])
    middle, width = np.exp(slower.mean()), np.exp(1.96 * slower.std(ddof=1))
    return (
        f"Memory: {sum(abs(x - 1) <= 0.15 for x in shares)} of {len(shares)} within 15 % ({min(shares):.2f} to "
        f"{max(shares):.2f}). Time: {middle:.2f} times what it took in the geometric mean, 95 % within a factor "
        f"of {width:.1f} of that if they are log-normal ({np.exp(slower.min()):.2f} to {np.exp(slower.max()):.2f})."
    )


def page(rows: dict[str, dict[str, float]]) -> str:
    """Both tables."""
    lines = ["# What a probe says it will take", "",
             "Written by `python benchmarks/probe_memory.py --page`: random models in a process each, on cores that "
             "other work shared, which spreads the times. Terms and factor were found on the first table. The second "
             "was first measured when they stood; what it showed was mended in the code that took the memory, and in "
             "one term, that of Mamba 2's chunks; then the terms of heap gaps were set anew on the first "
             "table."]  # fmt: skip
    for title, names in (("Found on", TUNED), ("Tested on", TESTED)):
        some = {name: rows[name] for name in names if name in rows}
        lines += ["", f"## {title}", "", summary(some), "", HEADER, *(row(name, one) for name, one in some.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    """A process each; a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(CONFIGURATIONS))
    parser.add_argument("--page", action="store_true", help="write the page beside this script")
    parser.add_argument("--kept", nargs="+", type=Path, default=[], help="outputs of earlier runs")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(given.names[0])))
        return
    print(HEADER)
    rows: dict[str, dict[str, float]] = {}
    for path in given.kept:
        rows |= json.loads(path.read_text().strip().splitlines()[-1])
    for name in given.names or (() if rows else CONFIGURATIONS):
        settings = os.environ | {"MKL_DISABLE_FAST_MM": "1"}  # as the command line has it
        done = subprocess.run([sys.executable, __file__, name, "--child"], capture_output=True, text=True, env=settings)
        if done.returncode:
            print(f"| {name} | {done.stderr.strip().splitlines()[-1][:120]} | | | |", flush=True)
            continue
        rows[name] = json.loads(done.stdout.splitlines()[-1])
        print(row(name, rows[name]), flush=True)
    if given.page:
        PAGE.write_text(page(rows))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
