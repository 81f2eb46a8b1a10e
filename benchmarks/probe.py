"""The probe against a plain forward + backward, and against the plain way to the same numbers, in turn.

    python benchmarks/probe.py                              SmolLM2, 8 rollouts × 128 tokens, five rounds
    python benchmarks/probe.py --model tiny --rounds 2      a quick look
    python benchmarks/probe.py --sides pass fast checked    only these sides, without memory
    python benchmarks/probe.py --scaling --picture FILE     time against tokens and against layers, and a plot of it

Six sides by default, one after the other in each round, on the same rollouts:

    pass      one plain forward + backward of the batch
    fast      the whole fast probe: Gram, leading spectra of all layers, sparsity, baseline
    checked   the same with the self-check that comes with attaching to a model, as a single probe does it;
              `train --probe-every` does so at every tenth probe
    exact     `checked` with all singular values
    plain     a backward per rollout, gradients stored, their combination per layer, svdvals per layer, Gram
    sweep     `checked` of R in 2, 4, 8 × grpo, rloo, dr_grpo

and two of rollouts of three turns, which are asked for by name:

    holes     `checked`, where the last eighth of each third was written by an environment
    turns     `holes` and the turn Gram matrix

The plain sweep is one `plain` and, for each further weighting, its combination and svdvals, which is what
`plain` measures of one weighting; it is reported as that sum. On this one group of equal lengths recipes differ by a
factor, so that the probe takes three spectra for the nine weightings. Wall time and CPU time are both given: on a
machine shared with others the ratios of CPU time are the ones to read. Memory is the peak of the process
above what it was before, each side in a process of its own. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import torch
from torch import Tensor
from transformers.utils import logging

from grposcope.instruments.gradient import probe, turns
from grposcope.instruments.gradient.weightings import of_recipe
from grposcope.lab import policies
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_batch import RolloutBatch

SIDES = ("pass", "fast", "checked", "exact", "sweep", "plain")

OF_TURNS = ("holes", "turns")

SWEEP = {"sweep": (2, 4, 8), "also": (recipes.RLOO, recipes.DR_GRPO)}


def batch(rows: int, length: int, vocabulary: int, prompt: int = 32) -> RolloutBatch:
    """Rollouts of random tokens: one group of `rows` rollouts, half of it solved."""
    random = torch.Generator().manual_seed(0)
    width = length - prompt
    tokens = torch.randint(3, vocabulary, (rows, width), generator=random)
    return RolloutBatch(
        prompt_ids=torch.randint(3, vocabulary, (1, prompt), generator=random).repeat(rows, 1),
        prompt_mask=torch.ones(rows, prompt, dtype=torch.bool),
        tokens=tokens,
        mask=torch.ones_like(tokens, dtype=torch.bool),
        logp=torch.zeros(rows, width),
        entropy=torch.zeros(rows, width),
        truncated=torch.zeros(rows, dtype=torch.bool),
        rewards=torch.tensor([[0.0, 1.0] * (rows // 2)], dtype=torch.float64),
    )


def of_turns(rollouts: RolloutBatch, count: int = 3) -> RolloutBatch:
    """The rollouts as if of `count` turns: an environment wrote the last eighth of each."""
    place = torch.arange(rollouts.tokens.shape[1])
    width = math.ceil(len(place) / count)
    drawn = (place % width < width - width // 8) | (place == len(place) - 1)
    return replace(
        rollouts, mask=rollouts.mask & drawn, token_annotations={"turns": (place // width).expand_as(rollouts.tokens)}
    )


def log_likelihood(model: torch.nn.Module, rollouts: RolloutBatch) -> Tensor:
    """Σ log π over all tokens, by plain autograd."""
    ids, width = torch.cat((rollouts.prompt_ids, rollouts.tokens), 1), rollouts.tokens.shape[1]
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=width + 1).logits[:, :-1]
    return logits.log_softmax(-1).gather(-1, rollouts.tokens[..., None]).sum()


def plain_pass(model: torch.nn.Module, rollouts: RolloutBatch) -> None:
    """Run one forward and backward pass of the whole batch."""
    log_likelihood(model, rollouts).backward()
    model.zero_grad(set_to_none=True)


def plain_scores(model: torch.nn.Module, rollouts: RolloutBatch) -> list[dict[str, Tensor]]:
    """Gradients of every rollout by parameter name, from one backward pass per rollout."""
    stored = []
    for row in range(len(rollouts.tokens)):
        log_likelihood(model, rollouts.rows(slice(row, row + 1))).backward()
        stored.append({name: p.grad for name, p in model.named_parameters()})
        model.zero_grad(set_to_none=True)
    return stored


def plain_weighting(stored: list[dict[str, Tensor]], rows: Tensor) -> None:
    """Compute the gradient of one weighting per layer, and its singular values."""
    for name, first in stored[0].items():
        if first.dim() == 2:
            torch.linalg.svdvals(sum(float(u) * one[name] for u, one in zip(rows, stored, strict=True)))


def plain_gram(stored: list[dict[str, Tensor]]) -> None:
    """Compute the inner products of the gradients of all pairs of rollouts."""
    for one in stored:
        for other in stored:
            sum(float((one[name] * other[name]).sum()) for name in one)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def peak() -> float:
    """Largest resident size of this process so far, in GB; Linux's ru_maxrss begins with that of the parent."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(one.split()[1]) for one in status.read_text().splitlines() if one.startswith("VmHWM:")) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def memory(side: str, given: argparse.Namespace) -> float:
    """Peak memory of one side in GB above the loaded and warmed-up model, in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--model",
        given.model,
        "--rows",
        str(given.rows),
        "--length",
        str(given.length),
    ]
    done = subprocess.run(
        [*command, "--threads", str(given.threads), "--memory", side], capture_output=True, text=True, check=True
    )
    return float(done.stdout.strip().splitlines()[-1])


def sides(model: torch.nn.Module, rollouts: RolloutBatch) -> dict[str, Callable[[], object]]:
    """The calls that are measured, by name of the side."""
    rows = of_recipe(recipes.GRPO, rollouts).per_rollout
    assert rows is not None

    def plain() -> None:
        stored = plain_scores(model, rollouts)
        plain_gram(stored)
        plain_weighting(stored, rows)

    several = of_turns(rollouts)

    def with_turns() -> None:
        probe.probe(model, several, recipes.GRPO)
        turns.savings(several, turns.measure(model, several))

    return {
        "pass": lambda: plain_pass(model, rollouts),
        "holes": lambda: probe.probe(model, several, recipes.GRPO),
        "turns": with_turns,
        "fast": lambda: probe.probe(model, rollouts, recipes.GRPO, check=False),
        "checked": lambda: probe.probe(model, rollouts, recipes.GRPO),
        "exact": lambda: probe.probe(model, rollouts, recipes.GRPO, tier="exact"),
        "sweep": lambda: probe.probe(model, rollouts, recipes.GRPO, **SWEEP),
        "plain": plain,
    }


def scaling(model: torch.nn.Module, given: argparse.Namespace, vocabulary: int) -> list[dict[str, float]]:
    """CPU seconds of the fast probe against tokens, and against layers: the least of `--rounds`, taken in turn."""
    every = model.model.layers
    whole = len(every)
    cells = [(length, whole) for length in (64, 128, 192, 256)] + [(given.length, whole * k // 3) for k in (1, 2)]
    best = dict.fromkeys(cells, float("inf"))
    for number in range(given.rounds):
        for length, count in cells:
            model.model.layers = every[:count]
            rollouts = batch(given.rows, length, vocabulary)
            cpu = timed(lambda r=rollouts: probe.probe(model, r, recipes.GRPO))[1]
            best[length, count] = min(best[length, count], cpu)
            print(f"round {number}: {given.rows * length} tokens, {count} layers: {cpu:.1f} s", file=sys.stderr)
    model.model.layers = every
    return [{"tokens": given.rows * length, "layers": count, "cpu": cpu} for (length, count), cpu in best.items()]


def line(points: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Slope, intercept and R² of the straight line through points."""
    x, y = (torch.tensor(v, dtype=torch.float64) for v in zip(*points, strict=True))
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    start = float(y.mean()) - slope * float(x.mean())
    return slope, start, 1 - float((y - start - slope * x).square().sum() / (y - y.mean()).square().sum())


def plot(table: list[dict[str, float]], given: argparse.Namespace) -> None:
    """Print the straight line through each of the two curves; draw both into the file of --picture, if it is given."""
    panels = []
    for name, other in (("tokens", "layers"), ("layers", "tokens")):
        usual = max(row["layers"] for row in table) if other == "layers" else given.rows * given.length
        rows = sorted((row for row in table if row[other] == usual), key=lambda row: row[name])
        slope, start, fit = line([(row[name], row["cpu"]) for row in rows])
        print(f"{usual} {other}: {start:.2f} s + {slope:.4g} s per {name.removesuffix('s')}, R² {fit:.4f}")
        drawn = [{**row, "line": start + slope * row[name]} for row in rows]
        axis = {"field": name, "type": "quantitative", "title": f"{name} ({usual} {other})", "scale": {"zero": True}}
        height = {"type": "quantitative", "title": "CPU seconds of a fast probe", "scale": {"zero": True}}
        panels.append({
            "data": {"values": drawn}, "width": 260, "height": 220,
            "layer": [
                {"mark": "line", "encoding": {"x": axis, "y": {**height, "field": "line"}}},
                {"mark": {"type": "point", "filled": True}, "encoding": {"x": axis, "y": {**height, "field": "cpu"}}},
            ],
        })  # fmt: skip
    if given.picture:
        import vl_convert

        chart = {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", "background": "white", "hconcat": panels}
        given.picture.write_bytes(vl_convert.vegalite_to_png(chart, scale=2))


def ratios(times: dict[str, list[tuple[float, float]]], rounds: int) -> dict[str, float]:
    """Print the ratios of the sides that were measured; their medians by name and clock."""
    print("\n| ratio | wall, median (min-max) | CPU, median (min-max) | goal |\n|---|---|---|---|")
    results = {}
    pairs = [
        ("fast", "pass", "≤ 1.3"), ("checked", "pass", "≤ 1.3"), ("exact", "pass", "≤ 2.5"), ("plain", "exact", ""),
        ("plain", "checked", "≥ 3"), ("plain sweep", "sweep", "≥ 8"), ("holes", "checked", "≤ 1.1"),
        ("turns", "checked", "≤ 1.1"),
    ]  # fmt: skip
    for one, other, goal in pairs:
        if other not in times or one.removesuffix(" sweep") not in times:
            continue
        cells = []
        for clock in (0, 1):
            values = []
            for i in range(rounds):
                further = 8 * times["weighting"][i][clock] if one == "plain sweep" else 0
                values.append((times[one.removesuffix(" sweep")][i][clock] + further) / times[other][i][clock])
            cells.append(f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})")
            results[f"{one} / {other}, {'wall' if clock == 0 else 'CPU'}"] = statistics.median(values)
        print(f"| {one} / {other} | {cells[0]} | {cells[1]} | {goal} |")
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sides", nargs="+", choices=SIDES + OF_TURNS, default=SIDES)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--picture", type=Path, help="file for the plot of --scaling (PNG)")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(given.threads)
    model = policies.load(given.model).model
    vocabulary = model.config.vocab_size
    rollouts = batch(given.rows, given.length, vocabulary)
    if given.memory:
        for parameter in model.parameters():  # weights are mapped from a file: read them once
            parameter.detach().sum()
        before = peak()
        sides(model, rollouts)[given.memory]()
        print(peak() - before)
        return
    if given.scaling:
        table = scaling(model, given, vocabulary)
        plot(table, given)
        print(json.dumps(table))
        return
    work = sides(model, rollouts)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in given.sides}
    for number in range(given.rounds):
        for name in given.sides:
            times[name].append(timed(work[name]))
        if "plain" in given.sides:
            stored = plain_scores(model, rollouts)
            rows = of_recipe(recipes.GRPO, rollouts).per_rollout
            weighting = timed(lambda s=stored, r=rows: plain_weighting(s, r))
            times.setdefault("weighting", []).append(weighting)
            del stored
        print(f"round {number}: " + ", ".join(f"{n} {t[-1][0]:.1f} s" for n, t in times.items()), file=sys.stderr)
    for name, measured in times.items():
        wall, cpu = (statistics.median(t[i] for t in measured) for i in (0, 1))
        print(f"{name:8} wall {wall:7.2f} s   CPU {cpu:7.2f} s")
    results = ratios(times, given.rounds)
    for side in ("pass", "checked", "sweep", "plain") if given.sides == SIDES else ():
        results[f"memory {side}"] = memory(side, given)
        print(f"extra memory {side}: {results[f'memory {side}']:.2f} GB")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
