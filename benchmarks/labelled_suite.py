"""Made-up logs whose failure is known, in the shapes of TRL, verl and OpenRLHF, and how often each rule sees it.

    python benchmarks/labelled_suite.py                 detection and false alarms by mode and AR(1) φ, in memory
    python benchmarks/labelled_suite.py --format trl    the same, written to files and read back (trl, verl, openrlhf)
    python benchmarks/labelled_suite.py --speed         100,000 rows × 40 metrics, and how time grows
    python benchmarks/labelled_suite.py --peers         rldoctor on the same files, if it is installed

A run has ROWS steps of smooth curves plus AR(1) noise of the same marginal spread for every φ, independent between
metrics; shares stay in [0, 1], positive quantities get noise by a factor, and the noise of a
share s is in proportion to √(s (1 − s)). The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.signal import lfilter

from grposcope.diagnosis import diagnose
from grposcope.diagnosis.findings import Finding
from grposcope.runs.table import Evaluations, Groups, Meta, Run

Array = np.ndarray
ROWS = 200
EVERY = 10
"""Steps from one held-out evaluation to the next."""

PHI = (0.0, 0.3, 0.6, 0.9)
GROUP = 8
GIVEN = {"group": GROUP, "rewards": "binary"}
"""What a user gives by flag for logs that do not say it."""


@dataclass
class Curves:
    """Mean curves (n,) of a run before noise; evaluation None: there is none. parts: reward components."""

    reward: Array
    evaluation: Array | None
    dead: Array
    entropy: Array
    kl: Array
    length: Array
    truncated: Array
    gradient: Array
    parts: dict[str, Array] = field(default_factory=dict)


def saturating(u: Array, tau: float) -> Array:
    """From 0 to 1 over u in [0, 1]."""
    return (1 - np.exp(-u / tau)) / (1 - np.exp(-1 / tau))


def dead_groups(p: Array) -> Array:
    """Share of dead groups of GROUP rollouts, prompts spread like a Beta distribution with a + b = 3."""
    total, right, wrong = 3.0, np.ones_like(p), np.ones_like(p)
    for j in range(GROUP):
        right = right * (total * p + j) / (total + j)
        wrong = wrong * (total * (1 - p) + j) / (total + j)
    return right + wrong


def healthy(u: Array) -> Curves:
    """Reward and held-out accuracy rise, entropy falls by half, KL grows to 0.08."""
    p = 0.25 + 0.45 * saturating(u, 0.5)
    one = np.ones_like(u)
    return Curves(p, 0.9 * p, dead_groups(p), 0.8 - 0.35 * u, 0.005 + 0.08 * u, 300 + 60 * u, 0.03 * one, 0.5 * one)


def plateau(u: Array) -> Curves:
    """The same, over after a fifth of the run."""
    c = healthy(u)
    c.reward = 0.25 + 0.45 * saturating(u, 0.07)
    c.evaluation, c.dead = 0.9 * c.reward, dead_groups(c.reward)
    c.entropy, c.kl = 0.8 - 0.3 * saturating(u, 0.1), 0.005 + 0.06 * saturating(u, 0.15)
    return c


def flat(u: Array) -> Curves:
    """Nothing happens."""
    one = np.ones_like(u)
    c = healthy(u)
    c.reward, c.evaluation, c.dead = 0.4 * one, 0.35 * one, dead_groups(0.4 * one)
    c.entropy, c.kl, c.length = 0.8 * one, 0.01 * one, 300 * one
    return c


def starved(u: Array) -> Curves:
    """Hardly ever a reward."""
    c = flat(u)
    one = np.ones_like(u)
    c.reward, c.evaluation, c.dead, c.gradient = 0.004 * one, 0.004 * one, 0.985 * one, 0.01 * one
    return c


def saturated(u: Array) -> Curves:
    """Everything solved before half-time."""
    c = healthy(u)
    c.reward = 0.4 + 0.585 * saturating(u, 0.12)
    c.evaluation, c.dead = 0.9 * c.reward, 0.2 + 0.785 * saturating(u, 0.15)
    c.gradient = 0.5 - 0.48 * saturating(u, 0.15)
    return c


def collapse(u: Array) -> Curves:
    """Entropy to almost nothing, reward stuck half-way."""
    c = healthy(u)
    c.reward = 0.25 + 0.3 * saturating(u, 0.12)
    c.evaluation, c.dead = 0.9 * c.reward, np.minimum(dead_groups(c.reward) + 0.4 * u, 0.8)
    c.entropy = 0.8 * np.exp(-5 * saturating(u, 0.4)) + 0.02
    return c


def hacked(u: Array) -> Curves:
    """Reward to 0.9 while held-out accuracy, after a good start, falls."""
    c = healthy(u)
    c.reward = 0.3 + 0.6 * saturating(u, 0.5)
    c.evaluation = 0.3 + 0.1 * np.minimum(u / 0.2, 1) - 0.18 * np.maximum(u - 0.2, 0) / 0.8
    c.dead, c.kl = dead_groups(c.reward), 0.005 + 0.3 * u
    return c


def hacked_unseen(u: Array) -> Curves:
    """No held-out evaluation; the reward for the format rises, that for the answer falls, their sum rises."""
    c = healthy(u)
    c.parts = {"correct": 0.55 - 0.5 * saturating(u, 0.5), "format": 0.1 + 1.4 * saturating(u, 0.4)}
    c.reward, c.evaluation = c.parts["correct"] + c.parts["format"], None
    c.kl = 0.005 + 0.3 * u
    return c


def long_winded(u: Array) -> Curves:
    """Completions four times as long and cut, for little reward; no held-out evaluation."""
    c = healthy(u)
    c.reward, c.evaluation = 0.35 + 0.05 * u, None
    c.dead, c.length, c.truncated = dead_groups(c.reward), 300 * np.exp(1.4 * u), 0.03 + 0.8 * u**2
    return c


def kl_blow_up(u: Array) -> Curves:
    """KL to 6 nats in the last third, and the reward falls with it."""
    c = healthy(u)
    late = np.clip((u - 0.65) / 0.35, 0, None)
    c.kl = 0.02 + 0.05 * u + 6 * (np.expm1(3 * late) / np.expm1(3))
    c.reward = c.reward - 0.35 * late**2
    c.evaluation, c.dead, c.gradient = 0.9 * c.reward, dead_groups(c.reward), 0.5 + 1.2 * late
    return c


def oscillating(u: Array) -> Curves:
    """Five swings of ±0.1."""
    c = healthy(u)
    c.reward = 0.3 + 0.25 * saturating(u, 0.4) + 0.1 * np.sin(2 * np.pi * 5 * u)
    c.evaluation, c.dead = 0.9 * c.reward, dead_groups(c.reward)
    return c


def growing(u: Array) -> Curves:
    """Six swings from ±0.01 to ±0.2."""
    c = healthy(u)
    c.reward = 0.35 + 0.15 * saturating(u, 0.4) + 0.2 * np.exp(3 * (u - 1)) * np.sin(2 * np.pi * 6 * u)
    c.evaluation, c.dead = 0.9 * c.reward, dead_groups(c.reward)
    c.gradient = 0.5 * (1 + 1.5 * u**3)
    return c


SCENARIOS: dict[str, tuple[Callable[[Array], Curves], str]] = {
    "healthy": (healthy, ""),
    "healthy-plateau": (plateau, ""),
    "flat null": (flat, "no learning"),
    "starved": (starved, "starved"),
    "saturated": (saturated, "saturated"),
    "entropy collapse": (collapse, "entropy collapse"),
    "hacking, evaluated": (hacked, "reward hacking"),
    "hacking, components": (hacked_unseen, "reward hacking"),
    "length hack": (long_winded, "length"),
    "KL blow-up": (kl_blow_up, "kl blow-up"),
    "oscillation": (oscillating, "oscillation"),
    "growing oscillation": (growing, "growing oscillation"),
    "gradient spikes": (healthy, "gradient spikes"),
}
"""Name -> its curves, and the mode that is right for it."""


def noise(rng: np.random.Generator, n: int, phi: float) -> Array:
    """AR(1) of variance 1, stationary from the start."""
    drawn = rng.normal(size=n)
    drawn[1:] *= math.sqrt(1 - phi**2)
    return lfilter([1.0], [1.0, -phi], drawn)


def columns(name: str, seed: int, phi: float, rows: int = ROWS) -> tuple[dict[str, Array], dict[str, Array]]:
    """The step table under our names, and the evaluations {"step", "accuracy"}, empty if there are none."""
    rng = np.random.default_rng([seed, int(1000 * phi), rows, list(SCENARIOS).index(name)])
    u = (np.arange(rows) + 0.5) / rows
    c = SCENARIOS[name][0](u)

    def ar() -> Array:
        return noise(rng, rows, phi)

    def share(mean: Array, sd: float) -> Array:
        return np.clip(mean + sd * np.sqrt(4 * mean * (1 - mean)) * ar(), 0, 1)

    def positive(mean: Array, sd: float) -> Array:
        return mean * np.exp(sd * ar() - sd**2 / 2)

    table = {"step": np.arange(1.0, rows + 1)}
    if c.parts:
        for part, mean in c.parts.items():
            table[f"component/{part}"] = mean + 0.03 * ar()
        table["reward"] = np.sum([table[f"component/{part}"] for part in c.parts], axis=0)
        for part, mean in c.parts.items():
            table[f"component_std/{part}"] = positive(np.sqrt(np.clip(mean * (1 - mean), 0.02, None)), 0.1)
    else:
        table["reward"] = np.round(share(c.reward, 0.03), 4)
    p = np.clip(table["reward"] / max(1.0, table["reward"].max()), 0, 1)
    table["reward_std"] = np.sqrt(p * (1 - p)) * (1 - c.dead) ** 0.5
    table["dead_fraction"] = share(c.dead, 0.05)
    table["entropy"], table["kl"] = positive(c.entropy, 0.05), positive(c.kl, 0.15)
    table["length"], table["truncated"] = positive(c.length, 0.05), share(c.truncated, 0.04)
    table["grad_norm"] = positive(c.gradient, 0.25)
    if name == "gradient spikes":
        at = rng.choice(np.arange(rows // 4, rows), 5, replace=False)
        table["grad_norm"][at] *= rng.uniform(6, 20, 5)
    table["clip_low"], table["clip_high"] = share(np.full(rows, 0.01), 0.015), share(np.full(rows, 0.015), 0.015)
    table["loss"], table["lr"] = 2e-3 * ar(), np.full(rows, 1e-6)
    if c.evaluation is None:
        return table, {}
    at = np.arange(EVERY, rows + 1, EVERY)
    scores = np.clip(c.evaluation[at - 1] + 0.02 * noise(rng, len(at), phi**EVERY), 0, 1)
    return table, {"step": at.astype(np.float64), "accuracy": scores}


def as_run(table: dict[str, Array], held: dict[str, Array]) -> Run:
    """A Run without the detour over a file."""
    none = np.empty(0, np.int64)
    count = len(held["step"]) if held else 0
    evaluations = Evaluations(
        held["step"].astype(np.int64) if held else none, ("accuracy",) * count,
        held["accuracy"] if held else np.empty(0), np.full(count, np.nan), np.zeros(count, np.int64), ("",) * count,
    )  # fmt: skip
    groups = Groups(none, none, (), np.empty(0), np.zeros(1, np.int64))
    return Run(Meta(Path("made up"), "made up", "made up", "finished"), {}, table, groups, evaluations)


# The shapes that trainers write

TRL = {
    "reward": "reward", "reward_std": "reward_std", "dead_fraction": "frac_reward_zero_std", "entropy": "entropy",
    "kl": "kl", "length": "completions/mean_length", "truncated": "completions/clipped_ratio", "loss": "loss",
    "grad_norm": "grad_norm", "clip_low": "clip_ratio/low_mean", "clip_high": "clip_ratio/high_mean",
    "lr": "learning_rate",
}  # fmt: skip
VERL = {
    "reward": "critic/score/mean", "entropy": "actor/entropy", "kl": "actor/kl_loss", "length": "response_length/mean",
    "truncated": "response_length/clip_ratio", "loss": "actor/pg_loss", "grad_norm": "actor/grad_norm",
    "clip_fraction": "actor/pg_clipfrac", "lr": "actor/lr", "reward_max": "critic/score/max",
    "reward_min": "critic/score/min", "ppo_kl": "actor/ppo_kl",
}  # fmt: skip
OPENRLHF = {
    "reward": "reward", "reward_std": "group_reward_std", "entropy": "entropy_loss", "kl": "kl",
    "length": "response_length", "truncated": "truncated", "loss": "policy_loss", "grad_norm": "actor_grad_norm",
    "clip_fraction": "ppo_clip_ratio", "lr": "actor_lr",
}  # fmt: skip


def write(folder: Path, form: str, table: dict[str, Array], held: dict[str, Array]) -> Path:
    """The run as the files of TRL 1.16 (trainer_state.json), verl 0.9 (JSONL) or OpenRLHF 0.11 (console)."""
    rng = np.random.default_rng(1)
    table = dict(table)
    table["clip_fraction"] = table["clip_low"] + table["clip_high"]
    live = table["reward_std"] > 0
    table["reward_max"] = np.where(live | (table["reward"] > 0), 1.0, 0.0)
    table["reward_min"] = np.where(live & (table["reward"] < 1), 0.0, table["reward_max"])
    table["ppo_kl"] = 1e-4 * np.abs(rng.normal(size=len(table["step"])))
    keys = {"trl": TRL, "verl": VERL, "openrlhf": OPENRLHF}[form]
    names = {key: name for name, key in keys.items() if name in table}
    if form == "trl":
        for name in table:
            kind, _, part = name.partition("/")
            if kind in ("component", "component_std"):
                names[f"rewards/{part}/{'mean' if kind == 'component' else 'std'}"] = name
    elif any(name.startswith("component/") for name in table):
        names |= {name.replace("component/", "reward_extra/"): name for name in table if name.startswith("component/")}
    scores = dict(zip(held["step"].astype(int).tolist(), held["accuracy"].tolist(), strict=True)) if held else {}
    rows = []
    for i, step in enumerate(table["step"].astype(int).tolist()):
        rows.append((step, {key: float(table[name][i]) for key, name in names.items()}))
    if form == "trl":
        path = folder / "trainer_state.json"
        history: list[dict[str, Any]] = []
        for step, row in rows:
            history.append({"epoch": step / 100, "step": step, **row})
            if step in scores:
                history.append({"epoch": step / 100, "step": step, "eval_reward": scores[step]})
        path.write_text(json.dumps({"log_history": history, "global_step": rows[-1][0], "logging_steps": 1}))
    elif form == "verl":
        path = folder / "run.jsonl"
        lines = []
        for step, row in rows:
            extra = {"val-core/gsm8k/acc/mean@1": scores[step]} if step in scores else {}
            lines.append(json.dumps({"step": step, "data": {**row, **extra, "training/global_step": step}}))
        path.write_text("\n".join(lines) + "\n")
    else:
        path = folder / "console.log"
        lines = []
        for step, row in rows:
            stamp = "INFO 2026-11-01 10:00:00,000 ppo_trainer.py"
            lines.append(f"(PPOTrainer pid=71) {stamp}:550] ✨ Global step {step}: {row!r}")
            if step in scores:
                found = {"eval_gsm8k_pass1": scores[step]}
                lines.append(
                    f"(PPOTrainer pid=71) {stamp}:598] ✨ Evaluation completed in 0.1s, global_step {step}, "
                    f"eval_metrics: {found!r}"
                )
        path.write_text("\n".join(lines) + "\n")
    return path


# Tables


@dataclass
class Tally:
    """What came of the runs of one scenario and φ."""

    runs: int = 0
    flagged: dict[str, int] = field(default_factory=dict)
    single: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    untold: dict[str, int] = field(default_factory=dict)
    any: int = 0

    def add(self, findings: tuple[Finding, ...]) -> None:
        """Count one run: flagged after Holm, p < 0.05 alone, the headline."""
        self.runs += 1
        modes = [f.mode for f in findings if f.status == "flagged"]
        for mode in modes:
            self.flagged[mode] = self.flagged.get(mode, 0) + 1
        head = modes[0] if modes else "-"
        self.first[head] = self.first.get(head, 0) + 1
        self.any += any(mode != "no learning" for mode in modes)
        for finding in findings:
            if finding.p < 0.05:
                self.single[finding.mode] = self.single.get(finding.mode, 0) + 1
            if finding.status == "cannot tell":
                self.untold[finding.mode] = self.untold.get(finding.mode, 0) + 1


def measured(form: str, seeds: int, phis: tuple[float, ...], rows: int) -> dict[tuple[str, float], Tally]:
    """Diagnose `seeds` runs of every scenario and φ."""
    from grposcope.runs import read

    tallies = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in SCENARIOS:
            for phi in phis:
                tally = tallies[name, phi] = Tally()
                for seed in range(seeds):
                    made = columns(name, seed, phi, rows)
                    run = as_run(*made) if form == "memory" else read(write(Path(scratch), form, *made), GIVEN)
                    tally.add(diagnose(run))
            print(f"  {name} done", file=sys.stderr, flush=True)
    return tallies


def percent(count: int, of: int) -> str:
    """Share with its binomial standard error."""
    share = count / of
    return f"{100 * share:5.1f} ± {100 * math.sqrt(max(share * (1 - share), 0.25 / of) / of):.1f}"


def report(tallies: dict[tuple[str, float], Tally], phis: tuple[float, ...]) -> dict[str, Any]:
    """Print detection by scenario, then false alarms by rule; the same as a document."""
    document: dict[str, Any] = {"detection": {}, "false_alarms": {}}
    print("\nflagged as the right mode, % (in brackets: it is the headline)")
    print(f"  {'scenario':22}" + "".join(f"{f'φ = {phi:g}':>22}" for phi in phis))
    for name, (_, mode) in SCENARIOS.items():
        if not mode:
            continue
        cells = []
        for phi in phis:
            t = tallies[name, phi]
            right, first = t.flagged.get(mode, 0), t.first.get(mode, 0)
            untold = 100 * t.untold.get(mode, 0) / t.runs
            cell = f"{percent(right, t.runs)} [{100 * first / t.runs:.0f}]"
            cells.append(f"cannot tell {untold:.0f}" if untold > 50 else cell)
            document["detection"][f"{name}, {phi:g}"] = [right, first, t.runs]
        print(f"  {name:22}" + "".join(f"{cell:>22}" for cell in cells))
    for kind, title in (("single", "p < 0.05 of the rule alone"), ("flagged", "flagged, Holm over rules")):
        print(f"\nfalse alarms on healthy, healthy-plateau and flat runs together, %: {title}")
        print(f"  {'rule':22}" + "".join(f"{f'φ = {phi:g}':>22}" for phi in phis))
        nulls = ("healthy", "healthy-plateau", "flat null")
        modes = sorted({m for name in nulls for phi in phis for m in getattr(tallies[name, phi], kind)})
        for mode in modes:
            cells = []
            for phi in phis:
                rows = [tallies[n, phi] for n in (nulls[:2] if mode == "no learning" else nulls)]
                count, of = sum(getattr(t, kind).get(mode, 0) for t in rows), sum(t.runs for t in rows)
                cells.append(percent(count, of))
                document["false_alarms"][f"{kind}, {mode}, {phi:g}"] = [count, of]
            print(f"  {mode:22}" + "".join(f"{cell:>22}" for cell in cells))
        if kind == "flagged":
            whole = [[tallies[n, phi] for n in nulls] for phi in phis]
            cells = [percent(sum(t.any for t in rows), sum(t.runs for t in rows)) for rows in whole]
            print(f"  {'any (family-wise)':22}" + "".join(f"{cell:>22}" for cell in cells))
    return document


def speed() -> dict[str, Any]:
    """Seconds of `diagnose` on tables of 40 columns, and of copying the table once beside it, in turn."""
    times: dict[int, list[float]] = {}
    for rows in (1_000, 10_000, 100_000) * 3:
        table, held = columns("healthy", 0, 0.6, rows)
        rng = np.random.default_rng(0)
        for k in range(40 - len(table)):
            table[f"extra/{k}"] = noise(rng, rows, 0.6)
        run = as_run(table, held)
        began = time.perf_counter()
        diagnose(run)
        times.setdefault(rows, []).append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    medians = {rows: statistics.median(values) for rows, values in times.items()}
    for rows, seconds in medians.items():
        print(f"  {rows:>7,} rows × 40 metrics: {seconds:.2f} s (median of 3; first {times[rows][0]:.2f} s)")
    print(f"  peak memory of the process {peak:.0f} MiB")
    return {"seconds": medians, "peak_mib": peak}


def peers(seeds: int, phis: tuple[float, ...]) -> dict[str, Any]:
    """rldoctor on the same files in the shapes of TRL and verl: detectors at WARN or above, by scenario."""
    import rl_doctor

    document: dict[str, Any] = {"version": getattr(rl_doctor, "__version__", "?")}
    with tempfile.TemporaryDirectory() as scratch:
        for form in ("trl", "verl"):
            for name in SCENARIOS:
                for phi in phis:
                    counts: dict[str, int] = {}
                    for seed in range(seeds):
                        path = write(Path(scratch), form, *columns(name, seed, phi))
                        for detector in _peer(path):
                            counts[detector] = counts.get(detector, 0) + 1
                    document[f"{form}, {name}, {phi:g}"] = counts
                    print(f"  {form:5} {name:22} φ = {phi:g}: {counts} of {seeds}", flush=True)
    return document


def _peer(path: Path) -> set[str]:
    from rl_doctor import cli  # its own command line, as a user would run it

    target = path.parent / "peer.json"
    with contextlib.suppress(SystemExit):
        cli.main(["diagnose", str(path), "--format", "json", "--output", str(target)])
    found = json.loads(target.read_text())
    entries = found.get("findings", found.get("diagnoses", []))
    return {
        str(e.get("detector") or e.get("id")) for e in entries
        if str(e.get("severity", "")).upper() in ("WARN", "WARNING", "CRITICAL", "CRIT")
    }  # fmt: skip


def main() -> None:
    """Measure what was asked for and print it."""
    parser = argparse.ArgumentParser(description="The labelled suite: detection and false alarms of `diagnose`.")
    parser.add_argument("--seeds", type=int, default=60, help="runs per scenario and φ (default: 60)")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"steps of a run (default: {ROWS})")
    parser.add_argument("--phi", type=float, nargs="+", default=PHI, help="AR(1) coefficients (default: 0 0.3 0.6 0.9)")
    parser.add_argument(
        "--format", choices=("memory", "trl", "verl", "openrlhf"), default="memory", help="how runs travel"
    )
    parser.add_argument("--speed", action="store_true", help="measure time and memory instead")
    parser.add_argument("--peers", action="store_true", help="run rldoctor on the same files instead")
    given = parser.parse_args()
    phis = tuple(given.phi)
    if given.speed:
        document = speed()
    elif given.peers:
        document = peers(given.seeds, phis)
    else:
        document = report(measured(given.format, given.seeds, phis, given.rows), phis)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
