"""A probe of two processes with one thread each against one process with two threads, in turn.

    python benchmarks/probe_distributed.py                       SmolLM2, 8 rollouts × 128 tokens, five rounds
    python benchmarks/probe_distributed.py --model tiny --rows 64 --length 64
    python benchmarks/probe_distributed.py --memory              peak memory of each of 1, 2, 4 processes with FSDP2

The program starts itself under torchrun. In each round the first process makes the probe by itself, with two threads,
while the other waits; then both make it together, with one thread each. Results of the two are compared. Memory is
that of a random Llama of 214 M parameters, sharded before it is filled, so that no process ever holds all of it: the
peak of the process that has the most above what it had before the model. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
import torch.distributed as dist
from probe import batch, peak
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.utils import logging

from grposcope.engines import distributed
from grposcope.instruments.gradient import checkpointing, probe
from grposcope.lab import policies
from grposcope.lab.objectives import recipes

LARGER = {
    "vocab_size": 32000,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 14,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}


def torchrun(processes: int, arguments: list[str]) -> str:
    """Standard output of this program in several processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}", __file__]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def differences(one: probe.Probe, other: probe.Probe) -> dict[str, float]:
    """Largest relative differences of Gram matrices, leading singular values, and sparsity."""
    pairs = list(zip(one.layers, other.layers, strict=True))
    name = one.recipe
    values = [(a.spectra[name].values, b.spectra[name].values) for a, b in pairs if name in b.spectra]
    return {
        "gram": max(float(np.abs(a.gram - b.gram).max() / np.abs(b.gram).max()) for a, b in pairs),
        "gram of all": float(np.abs(one.gram - other.gram).max() / np.abs(other.gram).max()),
        "singular values": max(float(np.abs(a - b).max() / b[0]) for a, b in values),
        "sparsity": max(abs(a.value / other.parameters[key].value - 1) for key, a in one.parameters.items()),
    }


def rounds(given: argparse.Namespace) -> None:
    """What each process does: the rounds, of which the first process prints the times as JSON."""
    model = policies.load(given.model).model
    rollouts = batch(given.rows, given.length, model.config.vocab_size)
    times: list[tuple[float, float]] = []
    for number in range(given.rounds + 1):
        torch.set_num_threads(given.threads)
        began = time.perf_counter()
        if dist.get_rank() == 0:
            one = probe.probe(model, rollouts, recipes.GRPO)
        alone = time.perf_counter() - began
        dist.barrier()
        torch.set_num_threads(1)
        began = time.perf_counter()
        with distributed.sharing(rollouts.mask.device) as workers:
            shared = probe.probe(model, rollouts, recipes.GRPO, workers=workers)
        together = time.perf_counter() - began
        if number:  # the first round warms up
            times.append((alone, together))
    if dist.get_rank() == 0:
        print(json.dumps({"times": times, "differences": differences(shared, one)}))


def memory(given: argparse.Namespace) -> None:
    """What each process of a measurement of memory does; the first prints the largest peak in GB."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**LARGER))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in checkpointing.blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    before = peak()
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(dist.get_rank())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.to_local().normal_(0, 0.02, generator=generator)  # type: ignore[attr-defined]
        for module in model.modules():
            if hasattr(module, "original_inv_freq"):  # a buffer that to_empty has not filled
                module.inv_freq = type(module)(model.config).inv_freq  # type: ignore[call-arg, arg-type]
                module.original_inv_freq = module.inv_freq
    weights = sum(p.to_local().nbytes for p in model.parameters())  # type: ignore[attr-defined]
    rollouts = batch(given.rows, given.length, LARGER["vocab_size"])
    with distributed.sharing(rollouts.mask.device) as workers:
        measured = probe.probe(distributed.bare(model), rollouts, recipes.GRPO, workers=workers)
    found: list[tuple[float, float]] = [(0.0, 0.0)] * dist.get_world_size()
    dist.all_gather_object(found, ((peak() - before), weights / 1e9))
    if dist.get_rank() == 0:
        print(json.dumps({"peak": max(p for p, _ in found), "weights": found[0][1], "self-check": measured.error}))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=128, help="tokens of a row, of which 32 are the prompt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="of the one process")
    parser.add_argument("--memory", action="store_true")
    given = parser.parse_args()
    if given.length <= 32:
        parser.error("--length counts the prompt of 32 tokens: give more than 32")
    if "WORLD_SIZE" in os.environ:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        (memory if given.memory else rounds)(given)
        dist.destroy_process_group()
        return
    if given.memory:
        table = {count: json.loads(torchrun(count, sys.argv[1:]).splitlines()[-1]) for count in (1, 2, 4)}
        for count, row in table.items():
            print(f"{count} processes: weights {row['weights']:.2f} GB each, peak {row['peak']:.2f} GB")
        print(json.dumps(table))
        return
    found = json.loads(torchrun(2, sys.argv[1:]).splitlines()[-1])
    ratios = [alone / together for alone, together in found["times"]]
    medians = [statistics.median(side) for side in zip(*found["times"], strict=True)]
    print(f"one process, {given.threads} threads {medians[0]:.2f} s; two processes, one thread each {medians[1]:.2f} s")
    print(f"speed of two over one: {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}), goal ≥ 0.9")
    print("largest differences: " + ", ".join(f"{name} {value:.1e}" for name, value in found["differences"].items()))
    print(json.dumps(found | {"model": given.model, "speed": statistics.median(ratios), "script": Path(__file__).name}))


if __name__ == "__main__":
    main()
