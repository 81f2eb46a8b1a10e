"""Experiment: do curvature and time constant scale with the size of a network by one exponent?

Claim    arXiv:2606.30789: κ ∝ size^(−γ), and so the time constant of the reward τ ∝ size^γ.
Command  python experiments/dynamics_size.py --out runs/dynamics_size      a quarter of an hour on one core; resumable,
         a file per seed and size; --report prints what is there; --quick --out FOLDER proves nothing
Setting  Llamas of one layer and widths 32, 64, 96, 160 and 256 (13,000 to 810,000 parameters) with random weights; four
         prompts, all 64 answers of two tokens, one right; a KL of weight 0.2 to the start inside the reward; everything
         in exact expectation. Prompts and answers of a seed are the same at every size. Eight seeds; seed 100 was
         looked at before, for the time that it takes.
Method   κ: the largest eigenvalue of the Hessian of the objective at the plateau, found by Adam. Then the same start is
         trained by heavy ball (β = 0.9, η = 0.3/κ · 32/width, which makes all take hundreds of steps). τ is the time at
         which the expected reward has covered half of its way to the plateau's, in units of η/(1 − β) a step, so that
         it is that of the gradient flow; beside it, from a tenth to half of the way, which leaves out how long a random
         network takes to start.
Verdict  By slopes on log(parameters) within each seed, and t intervals over seeds:
         falls    "κ falls with size": holds if the interval of γ_κ = −slope(log κ) lies above 0, does not hold if it
                  lies below 0, else cannot tell
         one      "one exponent": holds if the interval of γ_τ − γ_κ, γ_τ = slope(log τ), lies within ± 0.1; does not
                  hold if it leaves 0 out and its middle is beyond ± 0.1; else cannot tell
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from dynamics_network import Answers, to_plateau
from scipy import stats

from grposcope.core.files import dumps, write_json
from grposcope.lab.train import pretrain
from grposcope.lab.train.run_curvature import (
    _hessian_product,
    _largest_eigenpairs,
    _parameter_vector,
    _set_parameters,
    _unit,
)

WIDTHS, KL, BETA, PULL = (32, 64, 96, 160, 256), 0.2, 0.9, 0.3


def network(width: int, seed: int) -> Answers:
    """A random network with the prompts and right answers of the seed."""
    torch.manual_seed(seed)
    prompts, right = torch.randint(2, 8, (4, 4)), torch.randint(0, 64, (4,))
    model = pretrain._model(8, width, 1).double().eval()
    return Answers(model, prompts, 2, torch.nn.functional.one_hot(right, 64).double(), KL)


def studied(width: int, seed: int, quick: bool) -> dict[str, Any]:
    """κ at the plateau, and the times of a run."""
    answers = network(width, seed)
    model, start = answers.model, _parameter_vector(answers.model)
    before = answers.state()["reward"]
    to_plateau(answers, 60 if quick else 600)
    plateau, here = answers.state(), _parameter_vector(model)
    guess = torch.randn(len(here), generator=torch.Generator().manual_seed(seed), dtype=here.dtype)
    top = _largest_eigenpairs(_hessian_product(model, answers.objective), guess, 20)[0]
    way = _unit(here - start)
    along = float(way @ _hessian_product(model, answers.objective)(way))
    _set_parameters(model, start)
    lr = PULL / top.value * WIDTHS[0] / width
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=BETA)
    rewards = [before]
    for _ in range(40 if quick else 3000):
        optimizer.zero_grad()
        answers.objective().backward()
        optimizer.step()
        rewards.append(answers.state()["reward"])
        if rewards[-1] - before > 0.6 * (plateau["reward"] - before):
            break
    share = (np.array(rewards) - before) / (plateau["reward"] - before)
    times = {f"{at:g}": crossing(share, at) * lr / (1 - BETA) for at in (0.1, 0.5)}
    return {"width": width, "seed": seed, "parameters": len(here), "kappa": top.value, "residual": top.residual,
            "along": along, "lr": lr, "steps": len(rewards) - 1, "times": times, "plateau": plateau,
            "before": before}  # fmt: skip


def crossing(share: np.ndarray, at: float) -> float:
    """Step at which a curve first passes a share, NaN if it never does."""
    above = np.flatnonzero(share >= at)
    if not len(above):
        return math.nan
    k = int(above[0])
    return k - 1 + (at - share[k - 1]) / (share[k] - share[k - 1]) if k else 0.0


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean with its 95 % t interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(np.mean(values)), float(np.mean(values) - half), float(np.mean(values) + half)


def report(folder: Path) -> None:
    """Tables and verdicts; the last line is JSON."""
    runs = [json.loads(p.read_text()) for p in sorted(folder.glob("w*-s*.json"))]
    at = {(r["width"], r["seed"]): r for r in runs}
    seeds = [s for s in sorted({r["seed"] for r in runs}) if all((w, s) in at for w in WIDTHS)]
    print("| width | parameters | κ | κ along the way | τ to a half | from a tenth to a half | κ τ | reward |\n"
          + "|---" * 8 + "|")  # fmt: skip

    def tau(r: dict[str, Any], part: bool) -> float:
        half, tenth = float(r["times"]["0.5"]), float(r["times"]["0.1"])
        return half - tenth if part else half

    for w in sorted({r["width"] for r in runs}):
        own = [r for r in runs if r["width"] == w]
        columns = [[float(r["kappa"]) for r in own], [float(r["along"]) for r in own], [tau(r, False) for r in own],
                   [tau(r, True) for r in own], [float(r["kappa"]) * tau(r, False) for r in own],
                   [r["plateau"]["reward"] for r in own]]  # fmt: skip
        shown = [f"{np.mean(c):.3g} ± {np.std(c, ddof=1) / math.sqrt(len(c)):.2g}" if len(c) > 1 else f"{c[0]:.3g}"
                 for c in columns]  # fmt: skip
        print(f"| {w} | {own[0]['parameters']} | {' | '.join(shown)} |")
    if len(seeds) < 2:
        print("verdict: cannot tell, fewer than two seeds have all sizes")
        return

    def slopes(value) -> list[float]:
        x = np.log([at[w, seeds[0]]["parameters"] for w in WIDTHS])
        return [float(np.polyfit(x, np.log([value(at[w, s]) for w in WIDTHS]), 1)[0]) for s in seeds]

    kappa = [-v for v in slopes(lambda r: float(r["kappa"]))]
    along = [-v for v in slopes(lambda r: max(float(r["along"]), 1e-12))]
    taus = {"to a half": slopes(lambda r: tau(r, False)), "from a tenth to a half": slopes(lambda r: tau(r, True))}
    falls = interval(kappa)
    differences = {name: interval([t - k for t, k in zip(v, kappa, strict=True)]) for name, v in taus.items()}
    middle, low, high = differences["to a half"]
    one = ("holds" if low >= -0.1 and high <= 0.1 else
           "does not hold" if (low > 0 or high < 0) and abs(middle) > 0.1 else "cannot tell")  # fmt: skip
    verdicts = {"falls": "holds" if falls[1] > 0 else "does not hold" if falls[2] < 0 else "cannot tell", "one": one}
    print(f"{len(seeds)} seeds; γ of κ " + "{:.3f} [{:.3f}, {:.3f}]".format(*falls) + "; of κ along the way "
          + "{:.3f} [{:.3f}, {:.3f}]".format(*interval(along)))  # fmt: skip
    for name, values in taus.items():
        print(f"γ of τ {name} " + "{:.3f} [{:.3f}, {:.3f}]".format(*interval(values)) + ", less that of κ "
              + "{:.3f} [{:.3f}, {:.3f}]".format(*differences[name]))  # fmt: skip
    print("verdicts:", ", ".join(f"{k}: {v}" for k, v in verdicts.items()))
    print(dumps({"verdicts": verdicts, "kappa": kappa, "along": along, "tau": taus, "differences": differences}))


def main() -> None:
    """Make what is missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/dynamics_size"), help="folder of the results")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in range(2 if given.quick else given.seeds):
        for width in WIDTHS:
            path, began = given.out / f"w{width}-s{seed}.json", time.process_time()
            if not given.report and not path.exists():
                write_json(path, studied(width, seed, given.quick))
                print(f"width {width}, seed {seed}: {time.process_time() - began:.0f} s of CPU", flush=True)
    report(given.out)


if __name__ == "__main__":
    main()
