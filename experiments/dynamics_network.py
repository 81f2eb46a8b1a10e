"""Experiment: the refresh instability in a network, the demonstration arXiv:2606.30789 leaves to future work.

Claim    With SGD, momentum and a frozen force (no importance ratio), a network is stable up to the refresh interval N*
         that the cycle map gives for its curvature κ, measured beforehand and not from the reward curve.
Command  python experiments/dynamics_network.py --out runs/dynamics_network           resumable, a file per piece
         … --stages small tiny --seeds 0 1       some of the pieces; … --report       what there is, no training
         … --quick --out FOLDER              a smoke test that proves nothing
Plateau  An outcome reward alone leaves no restoring force where it saturates. So the reward carries a KL of weight λ
         to the starting policy: the optimum is ∝ π_ref e^{r/λ}, advantages vanish there, and κ = λ × Fisher.
Stages   small   a Llama of one layer and width 32, four prompts, all 64 answers of two tokens
         tiny    the shipped model, twelve sums, all 99 first tokens
         Both in exact expectation; `dynamics_network_sampled.py` samples whole answers.
Method   (1) Train to the plateau at N = 1. (2) Measure κ: eigenvalues of the Hessian of the objective by Lanczos, the
         part of it that is current, a response experiment along the first eigenvector, κ along the way from the start
         and along the last updates. (3) Predict N* and the first interval that oscillates. (4) Push the weights along
         the first eigenvector and in a random direction, train on at intervals around N*, and read the multiplier of
         a cycle from the displacement x_c along the eigenvector at the refreshes: x_{c+2} = t x_{c+1} − d x_c +
         constant, least squares. Cosine: of the last cycle's step with the eigenvector.
Controls At N* + 1: with the importance ratio (the KL in the payoff is as old: unstable too), and with the KL in the
         loss, always current, and the reward frozen: the two parts of κ predict it.
Verdict  holds if the first unstable interval is N* + 1 for every seed and setting.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from torch import Tensor

from grposcope.core.estimate import Estimate
from grposcope.core.files import dumps, write_json
from grposcope.instruments.dynamics import refresh
from grposcope.lab import policies, tasks
from grposcope.lab.tasks.arithmetic import _solution
from grposcope.lab.train import pretrain
from grposcope.lab.train.run_curvature import (
    _hessian_product,
    _largest_eigenpairs,
    _parameter_vector,
    _set_parameters,
    _unit,
)

EXACT = [(0.0, 0.19), (0.5, 0.17), (0.9, 0.11), (0.9, 0.043)]
"""(β, ηκ) of the runs; `tiny` has the first and the last of them."""
CYCLES = 24


class Answers:
    """All answers of a small model: prompts of one length (P, S), K = V^L answers of L tokens, and rewards (P, K)."""

    def __init__(self, model: Any, prompts: Tensor, length: int, rewards: Tensor, kl: float):
        vocabulary = model.config.vocab_size
        grid = [torch.arange(vocabulary)] * (length - 1)
        self.heads = torch.cartesian_prod(*grid).reshape(-1, length - 1) if grid else torch.zeros(1, 0).long()
        self.ids = torch.cat([prompts.repeat_interleave(len(self.heads), 0), self.heads.repeat(len(prompts), 1)], 1)
        self.model, self.length, self.shape, self.rewards, self.kl = model, length, rewards.shape, rewards, kl
        with torch.no_grad():
            self.reference = self.logp()

    def logp(self) -> Tensor:
        """log π of every answer, (P, K)."""
        logits = self.model(input_ids=self.ids, use_cache=False, logits_to_keep=self.length).logits
        each = logits.log_softmax(-1).reshape(self.shape[0], len(self.heads), self.length, -1)
        total = each[:, :, -1]
        for t in range(self.length - 1):
            picked = self.heads[:, t].expand(self.shape[0], -1)[..., None]
            total = total + each[:, :, t].gather(-1, picked)
        return total.reshape(self.shape)

    def objective(self) -> Tensor:
        """−E[r] + λ KL, whose Hessian is the stiffness."""
        logp = self.logp()
        return -(logp.exp() * (self.rewards - self.kl * (logp - self.reference))).sum(-1).mean()

    def frozen(self, mode: str = "none") -> Callable[[], Tensor]:
        """The loss of rollouts drawn now, in expectation: without ratio, with it, or with the KL in the loss."""
        with torch.no_grad():
            logp = self.logp()
        policy = logp.exp()
        payoff = self.rewards if mode == "kl in the loss" else self.rewards - self.kl * (logp - self.reference)
        weight = policy * (payoff - (policy * payoff).sum(-1, keepdim=True))

        def loss() -> Tensor:
            now = self.logp()
            if mode == "ratio":
                return -(weight / policy * now.exp()).sum(-1).mean()
            total = -(weight * now).sum(-1).mean()
            if mode == "kl in the loss":
                total = total + self.kl * (now.exp() * (now - self.reference)).sum(-1).mean()
            return total

        return loss

    def state(self) -> dict[str, float]:
        """Expected reward, KL to the reference, and root mean square advantage."""
        with torch.no_grad():
            logp = self.logp()
        policy, payoff = logp.exp(), self.rewards - self.kl * (logp - self.reference)
        edge = payoff - (policy * payoff).sum(-1, keepdim=True)
        return {"reward": float((policy * self.rewards).sum(-1).mean()),
                "kl": float((policy * (logp - self.reference)).sum(-1).mean()),
                "advantage": float((policy * edge**2).sum(-1).mean().sqrt())}  # fmt: skip


def small(seed: int, kl: float = 0.2) -> Answers:
    """The small network: random weights, one right answer of two tokens to each of four random prompts."""
    torch.manual_seed(seed)
    model = pretrain._model(8, 32, 1).double().eval()
    prompts, right = torch.randint(2, 8, (4, 4)), torch.randint(0, 64, (4,))
    return Answers(model, prompts, 2, torch.nn.functional.one_hot(right, 64).double(), kl)


def shipped(seed: int, kl: float = 0.5) -> Answers:
    """`tiny` on twelve sums a+b+c+d=, answered by one token: right is the first digit of a+b."""
    policy = policies.load("tiny")
    problems = [p for p in tasks.load("arithmetic").problems("train") if len(p.prompt) == 9][12 * seed : 12 * seed + 12]
    ids, _ = policies.encode(policy, [p.prompt for p in problems])
    right = torch.tensor([policy.tokenizer(_solution(p.prompt[:-1])[0][0]).input_ids[0] for p in problems])
    vocabulary = policy.model.config.vocab_size
    return Answers(policy.model.double(), ids, 1, torch.nn.functional.one_hot(right, vocabulary).double(), kl)


def to_plateau(answers: Answers, steps: int) -> tuple[Tensor, Tensor]:
    """Train by Adam with a falling rate; returns the weights (D,) at the start and after nine tenths of the steps."""
    start = late = _parameter_vector(answers.model)
    optimizer = torch.optim.Adam(answers.model.parameters(), lr=1.0)
    for step in range(steps):
        if step == int(0.9 * steps):
            late = _parameter_vector(answers.model)
        optimizer.param_groups[0]["lr"] = (3e-3 if answers.length > 1 else 3e-4) * (1 - step / steps)
        optimizer.zero_grad()
        answers.objective().backward()
        optimizer.step()
    return start, late


def measured(answers: Answers, start: Tensor, late: Tensor, seed: int) -> tuple[dict[str, Any], Tensor]:
    """κ at the plateau (eigenvalues, its current part, by response, along the way), and the first eigenvector (D,)."""
    model, here = answers.model, _parameter_vector(answers.model)
    whole = _hessian_product(model, answers.objective)
    guess = torch.randn(len(here), generator=torch.Generator().manual_seed(seed), dtype=here.dtype)
    modes = _largest_eigenpairs(whole, guess, 30, 3)
    u = modes[0].vector
    now, eager = (_hessian_product(model, answers.frozen(mode)) for mode in ("none", "kl in the loss"))
    epsilon, ends = 0.003 / math.sqrt(modes[0].value / answers.kl), []
    for side in (epsilon, -epsilon):
        _set_parameters(model, here + side * u)
        gradient = torch.autograd.grad(answers.frozen()(), list(model.parameters()))
        ends.append(float(torch.cat([g.reshape(-1) for g in gradient]) @ u))
    _set_parameters(model, here)
    way, last = _unit(here - start), _unit(here - late)
    return {"eigenvalues": [m.value for m in modes], "residual": modes[0].residual, "current": float(u @ now(u)),
            "current, kl in the loss": float(u @ eager(u)),
            "response": (ends[0] - ends[1]) / (2 * epsilon), "way": float(way @ whole(way)),
            "last updates": float(last @ whole(last))}, u  # fmt: skip


def trained_on(answers: Answers, u: Tensor, push: Tensor, lr: float, momentum: float, interval: int, cycles: int,
               mode: str = "none") -> dict[str, Any]:  # fmt: skip
    """Run heavy ball from the plateau pushed by `push` (D,); returns x along u at each refresh, and the final state."""
    model, centre = answers.model, _parameter_vector(answers.model)
    _set_parameters(model, centre + push)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    path = []
    for _ in range(cycles):
        before = _parameter_vector(model)
        path.append(float(u @ (before - centre)))
        loss = answers.frozen(mode)
        for _ in range(interval):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        if not math.isfinite(path[-1]):
            break
    last = _parameter_vector(model) - before
    end = {**answers.state(), "cosine": abs(float(u @ _unit(last)))} if last.isfinite().all() else {}
    _set_parameters(model, centre)
    return {"interval": interval, "mode": mode, "path": path, "end": end}


def radius_of_parts(lr: float, momentum: float, current: float, stale: float, interval: int) -> float:
    """Spectral radius of a cycle whose force −current·x − stale·x_old is only partly frozen."""
    step = np.array([[1 - lr * current, lr * momentum, -lr * stale], [-current, momentum, -stale], [0, 0, 1]])
    cycle = np.linalg.matrix_power(step, interval) @ np.array([[1, 0], [0, 1], [1, 0]])
    return float(np.abs(np.linalg.eigvals(cycle[:2])).max())


def multiplier(paths: list[list[float]], momentum: float, limit: float) -> tuple[Estimate, bool]:
    """Largest |multiplier| of a cycle while |x| stays within `limit` times the first, and whether it oscillates.

    Its standard error follows from that of the least squares by the delta method, with numerical derivatives. Paths of
    several runs are fitted together.
    """
    rows, ends = [], []
    for index, path in enumerate(paths):
        x = np.array(path)
        bad = np.flatnonzero(~((np.abs(x) < limit * abs(x[0])) & (np.abs(x) > 3e-3 * abs(x[0]))))
        x = x[: max(bad[0], 5) if len(bad) else len(x)] / abs(x[0])
        offsets = [float(index == i) for i in range(len(paths))]
        rows += [[x[c + 1], x[c] if momentum else 0.0, *offsets] for c in range(len(x) - 2)]
        ends += list(x[2:])
    a, b = np.array(rows), np.array(ends)
    if len(b) <= a.shape[1]:  # the path left the linear range at once, so only its speed is known
        return Estimate(float(abs(x[-1] / x[0]) ** (1 / (len(x) - 1))), math.nan, len(b), "left at once"), False
    fitted, *_ = np.linalg.lstsq(a, b, rcond=None)
    degrees = max(len(b) - len(fitted) + (not momentum), 1)
    spread = float(((b - a @ fitted) ** 2).sum()) / degrees * np.linalg.pinv(a.T @ a)

    def largest(t: float, d: float) -> tuple[float, bool]:
        roots = np.roots([1.0, -t, -d])
        top = roots[np.abs(roots).argmax()]
        return float(abs(top)), bool(abs(top.imag) > 1e-9 or top.real < 0)

    t, d = float(fitted[0]), float(fitted[1])
    slope = np.array([(largest(t + h, d + k)[0] - largest(t - h, d - k)[0]) / 2e-5 for h, k in ((1e-5, 0), (0, 1e-5))])
    radius, turns = largest(t, d)
    return Estimate(radius, math.sqrt(max(float(slope @ spread[:2, :2] @ slope), 0.0)), len(b)), turns


def exact(stage: str, seed: int, quick: bool) -> dict[str, Any]:
    """Train one network in exact expectation: plateau, κ, and runs around N* for every setting of EXACT."""
    answers = small(seed) if stage == "small" else shipped(seed)
    start, late = to_plateau(answers, 60 if quick else 1000 if stage == "small" else 300)
    plateau = answers.state()
    kappa, u = measured(answers, start, late, seed)
    top, settings = kappa["eigenvalues"][0], []
    random = torch.randn(len(u), generator=torch.Generator().manual_seed(seed + 1), dtype=u.dtype)
    size = 5e-4 / math.sqrt(top / answers.kl)  # moves log π by 0.0005, root mean square
    push = size * (u + _unit(random) * math.sqrt(len(u)) / 30)
    for momentum, pull in EXACT[:1] if quick else EXACT if stage == "small" else EXACT[::3]:
        lr = pull / top
        last, first = int(refresh.threshold(lr, momentum, top)), int(refresh.onset(lr, momentum, top))
        runs = []
        for interval in sorted({max(first - 1, 1), first, last, last + 1, 2 * last}):
            run = trained_on(answers, u, push, lr, momentum, interval, 8 if quick else CYCLES)
            radius, turns = multiplier([run["path"]], momentum, 30)
            runs.append({**run, "radius": radius.value, "radius se": radius.se, "turns": turns,
                         "predicted": float(refresh.spectral_radius(lr, momentum, top, interval)),
                         "predicted turns": bool(refresh.oscillates(lr, momentum, top, interval))})  # fmt: skip
        controls = [trained_on(answers, u, push, lr, momentum, last + 1, 8 if quick else CYCLES, mode)
                    for mode in ("ratio", "kl in the loss")]  # fmt: skip
        for control in controls:
            current = kappa["current, kl in the loss"] if control["mode"] == "kl in the loss" else 0.0
            control["radius"] = multiplier([control["path"]], momentum, 30)[0].value
            control["predicted"] = radius_of_parts(lr, momentum, current, top - current, last + 1)
        settings.append({"momentum": momentum, "lr": lr, "predicted": last, "onset": first, "runs": runs,
                         "controls": controls, "by the way": refresh.threshold(lr, momentum, kappa["way"]),
                         "by the last updates": refresh.threshold(lr, momentum, max(kappa["last updates"], 1e-9)),
                         })  # fmt: skip
    return {"stage": stage, "seed": seed, "kl": answers.kl, "plateau": plateau, "kappa": kappa, "settings": settings}


def piece_rows(piece: dict[str, Any]) -> list[dict[str, Any]]:
    """Print and return the rows of one piece: N* predicted and measured, multipliers, and what other κ would give."""
    kappa, rows = piece["kappa"], []
    print(f"{piece['stage']} {piece['seed']}: κ {', '.join(f'{v:.4g}' for v in kappa['eigenvalues'])}; response "
          f"{kappa['response']:.4g}, current part {kappa['current']:.2g}, along the way {kappa['way']:.3g}, along the "
          f"last updates {kappa['last updates']:.2g}; rms advantage {piece['plateau']['advantage']:.2g}")  # fmt: skip
    for s in piece["settings"]:
        unstable = [r["interval"] for r in s["runs"] if r["radius"] >= 1]
        right = sum(r["turns"] == r["predicted turns"] for r in s["runs"])
        near = [r for r in s["runs"] if r["interval"] in (s["predicted"], s["predicted"] + 1)]
        row = {"stage": piece["stage"], "seed": piece["seed"], "momentum": s["momentum"],
               "first unstable": min(unstable) if unstable else math.nan, "predicted": s["predicted"] + 1,
               "oscillates as predicted": f"{right} of {len(s['runs'])}", "all turns right": right == len(s["runs"]),
               "radii": [(r["interval"], r["radius"], r["predicted"]) for r in s["runs"]],
               "by the way": s["by the way"], "by the last updates": s["by the last updates"]}  # fmt: skip
        rows.append(row)
        around = ", ".join(f"{r['radius']:.3f} ({r['predicted']:.3f})" for r in near)
        far = s["runs"][-1]
        fate = f"{piece['plateau']['reward']:.2f} → {far['end'].get('reward', math.nan):.2f}"
        controls = ", ".join(f"{c['radius']:.2f} ({c['predicted']:.2f})" for c in s["controls"])
        cosine = near[-1]["end"].get("cosine", math.nan)
        print(f"| {row['stage']} {row['seed']} | {s['momentum']} | {s['lr'] * kappa['eigenvalues'][0]:.3f} | "
              f"{row['first unstable']} | {row['predicted']} | {around} | {row['oscillates as predicted']} | "
              f"{s['by the way']:.4g} | {fate} | {cosine:.2f} | {controls} |")  # fmt: skip
    return rows


def report(folder: Path) -> None:
    """Print the table and the verdict from the files in the folder; the last line is JSON."""
    pieces = [json.loads(p.read_text()) for stage in ("small", "tiny") for p in sorted(folder.glob(f"{stage}-*.json"))]
    print("| network | β | ηκ | first unstable N | predicted | multiplier (predicted) at N* and N* + 1 | oscillates as "
          "predicted | N* by κ along the way | reward, plateau and at 2N* | cosine at N* + 1 | with ratio, KL in the "
          "loss |\n" + "|---" * 11 + "|")  # fmt: skip
    rows = [row for p in pieces for row in piece_rows(p)]
    right = sum(r["first unstable"] == r["predicted"] for r in rows)
    verdict = f"N* right to the step in {right} of {len(rows)}: " + ("holds" if rows and right == len(rows) else
              "does not hold" if rows else "cannot tell")  # fmt: skip
    print("verdict:", verdict)
    print(dumps({"rows": rows, "verdict": verdict}))


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser of the options that this experiment and the sampled one have in common."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/dynamics_network"), help="folder of the results")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    return parser


def main() -> None:
    """Make the pieces that are missing, then report."""
    parser = arguments(__doc__)
    parser.add_argument("--stages", nargs="+", choices=("small", "tiny"), default=["small", "tiny"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    for stage in given.stages:
        for seed in given.seeds[:1] if given.quick else given.seeds:
            path = given.out / f"{stage}-{seed}.json"
            if not given.report and not path.exists():
                write_json(path, exact(stage, seed, given.quick))
    report(given.out)


if __name__ == "__main__":
    main()
