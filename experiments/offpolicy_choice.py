"""Are the errors of off-policy corrections estimated rightly, and from how many rollouts is the right one chosen?

Claim    `grposcope offpolicy` estimates bias² and variance of the gradient under a correction without bias, its
         intervals cover, and the correction that it names needs the fewest rollouts or nearly so.
Command  python experiments/offpolicy_choice.py errors --seed 100      about three minutes on one core
         python experiments/offpolicy_choice.py prompts --seed 500     about ten
         python experiments/offpolicy_choice.py fixed --seed 300       about two
         Without --seed it draws the worlds that were looked at while the script was written.
Method   Tabular policies of three letters over sixteen prompts, completions of 1 to L tokens, L = 1, 2, 3, 4; the
         sampler's logits differ by normal noise, scaled so that the exact ESS/n = 1/E w² is 0.95, 0.67, 0.3 or 0.07.
         True bias², variance and need by listing every completion. Four worlds a cell; leave-one-out; eleven
         corrections, all that do not look at the advantage. `errors`: 150 batches of 64 prompts × 8 rollouts a world.
         `prompts`: 25 batches a world of 16, 32, …, 512 prompts × 8. `fixed`, added after the others: twenty worlds a
         cell, true needs alone, of a correction that is taken without any estimate; a world with equal rewards, one of
         320, is left out. A correction is right if its true need at that number of prompts is at most 1.1 × that of the
         best; it is harmful if its true need is more than 1.1 × that of none.
Controls `full` in place of the choice; `sequence_cap:2`, the best fixed one in earlier looks; the best by truth.
         Beside them the progress of a best step that the choice loses to the best one: 1 − (1 + need of the best)
         ÷ (1 + that of the choice), and what none loses.
Verdict  Each holds or fails by itself; a cell is a pair of ESS/n and L.
         coverage    in every cell with 200 intervals of bias² (corrections with a bias, k̂ ≤ 0.5), 0.80 of nominal 0.90
         given       the same of the intervals that the instrument gives. Until the first look they were those at
                     k̂ ≤ 0.5; coverage failed there, and since then they are given where the mean weight is near 1.
                     This criterion was written after the look at seeds 0 to 3, before any other seed was drawn.
         bias        mean of estimated bias² ÷ true, and of variance ÷ true, over a cell's worlds, within 5 % of 1 or
                     within 3 of its standard errors: estimates of all batches, whatever k̂ is
         errors      in every cell with 200 of them at k̂ ≤ 0.5, ± 1.645 standard errors of the variance hold 0.80
         answers     70 % of the batches of 64 × 8 name a correction in every cell with ESS/n of 0.6 or more
         harm        in every cell a harmful correction is named in at most 5 % of the batches of 64 × 8
         default     a fixed correction is a sound one if at 64 × 8 it is harmful in at most 5 % of the worlds of every
                     ESS/n; holds if there is one besides none
         `prompts` has no goal: it finds the least number of prompts with a right choice in 0.9 of the batches.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from grposcope.core.files import dumps
from grposcope.instruments.offpolicy import error
from grposcope.instruments.offpolicy.answer import _tail
from grposcope.instruments.offpolicy.error import CorrectionChoice, GradientError
from grposcope.instruments.offpolicy.khat import NO_CHOICE
from grposcope.maths.corrections import ALL, FULL, NONE
from grposcope.maths.importance import Ratios
from reference.offpolicy_policies import Truth, World, truth

ESS, LENGTHS, WORLDS, GROUP = (0.95, 0.67, 0.3, 0.07), (1, 2, 3, 4), 4, 8
USED = {one.name: one for one in ALL if not one.of_advantage}
BATCHES, PROMPTS = 150, 64
FIXED_WORLDS = 20
GRID, GRID_BATCHES = (16, 32, 64, 128, 256, 512), 25
CAP = "sequence_cap:2"


def effective(world: World) -> float:
    """Exact ESS/n = 1/E w²."""
    logs = np.array([[one.sum() for one in row] for row in world.log_ratios])
    return 1 / float((world.sampled * np.exp(2 * logs)).sum(1).mean())


def at_ess(seed: int, longest: int, wanted: float) -> World:
    """The world of a seed whose sampler is as far away as makes ESS/n the wanted one, by bisection."""
    world = World(seed, prompts=16, letters=3, longest=longest)
    low, high = 0.0, 8.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(replace(world, apart=middle)) > wanted else (low, middle)
    return replace(world, apart=low)


@dataclass(frozen=True)
class Enumerated:
    """A world with everything that does not change from batch to batch."""

    world: World

    @cached_property
    def vectors(self) -> dict[str, NDArray]:
        """Corrected scores (X, Y, D) by correction."""
        return {name: self.world.corrected(one) for name, one in USED.items()}

    @cached_property
    def norms(self) -> NDArray:
        """‖Σ_t s_t‖ of every completion, (X, Y)."""
        return np.array([[np.linalg.norm(one.sum(0)) for one in row] for row in self.world.token_scores])

    @cached_property
    def limits(self) -> dict[str, tuple[Truth, Truth]]:
        """Exact errors of a batch of one prompt, and of infinitely many."""
        return {
            name: (truth(self.world, one, GROUP, 1), truth(self.world, one, GROUP, 10**12))
            for name, one in USED.items()
        }

    def needs(self, prompts: int) -> dict[str, float]:
        """True need by correction; it is affine in 1/P."""
        return {
            name: last.need + (first.need - last.need) / prompts if math.isfinite(first.need) else math.inf
            for name, (first, last) in self.limits.items()
        }

    def batch(self, rng: np.random.Generator, prompts: int) -> Batch:
        """A drawn batch: what the instrument finds, by correction, and what its estimates are whatever k̂ is."""
        at, drawn = self.world.draw(rng, prompts, GROUP)
        advantages = error.leave_one_out(self.world.rewards[at[:, None], drawn])
        ratios = Ratios.of([self.world.log_ratios[x][y] for x, row in zip(at, drawn, strict=True) for y in row])
        k = _tail(np.exp(ratios.sequence), advantages, self.norms[at[:, None], drawn].reshape(-1))
        estimates = {
            name: np.einsum("pg,pgd->pd", advantages / GROUP, vectors[at[:, None], drawn])
            for name, vectors in self.vectors.items()
        }
        full = estimates[FULL.name]
        products = {
            name: error.GradientProducts(own @ own.T, own @ full.T, full @ full.T) for name, own in estimates.items()
        }
        seen = {name: USED[name].beyond(ratios) or name == FULL.name for name in products}
        mean_weight = float(np.exp(ratios.sequence).mean())
        found = {name: error.measure(one, k, seen[name], mean_weight) for name, one in products.items()}
        anyway = {name: error.measure(one, 0.0) for name, one in products.items()} if prompts == PROMPTS else {}
        return Batch(k, seen, found, anyway, error.choose(found, k))


@dataclass(frozen=True)
class Batch:
    """k: k̂ of w ‖A s‖. seen: whether a ratio beyond the bound was drawn. found: errors as the instrument gives them.
    anyway: the same for any k̂, bound and weights."""

    k: float
    seen: dict[str, bool]
    found: dict[str, GradientError]
    anyway: dict[str, GradientError]
    choice: CorrectionChoice


def cells(seed: int) -> Iterator[tuple[float, int, list[Enumerated]]]:
    """ESS/n, longest completion, and worlds."""
    for wanted in ESS:
        for longest in LENGTHS:
            yield wanted, longest, [Enumerated(at_ess(seed + i, longest, wanted)) for i in range(WORLDS)]


def errors_of(worlds: Sequence[Enumerated], seed: int) -> dict:
    """What 64 × 8 rollouts tell in one cell."""
    covered, given, within, tails, names, harmful, right = [], [], [], [], [], [], []
    bias, variance, light, gains, lost, lost_by_none = [], [], [], [], [], []
    for number, one in enumerate(worlds):
        rng = np.random.default_rng([seed, number])
        batches = [one.batch(rng, PROMPTS) for _ in range(BATCHES)]
        needs = one.needs(PROMPTS)
        biased = [name for name, (first, _) in one.limits.items() if first.bias2 > 1e-12]
        for batch in batches:
            sure = batch.k <= NO_CHOICE
            for name, found in batch.found.items():
                true = one.limits[name][0]
                for interval, several in ((found.interval, given), (batch.anyway[name].interval, covered)):
                    usable = not math.isnan(interval[0]) and (several is given or (sure and batch.seen[name]))
                    if name in biased and usable:
                        several.append((name, bool(interval[0] <= true.bias2 <= interval[1])))
                if sure and true.variance > 0:
                    off = abs(found.variance.value - true.variance / PROMPTS)
                    within.append((name, bool(off <= error.Z * found.variance.se)))
            tails.append(sure)
            names.append(batch.choice.name)
            taken = batch.choice.name or NONE.name
            harmful.append(bool(batch.choice.name) and needs[taken] > error.WORTH * needs[NONE.name])
            right.append(bool(batch.choice.name) and needs[taken] <= error.WORTH * min(needs.values()))
            gains.append(needs[taken] / needs[NONE.name])
            lost.append(1 - (1 + min(needs.values())) / (1 + needs[taken]))
            lost_by_none.append(1 - (1 + min(needs.values())) / (1 + needs[NONE.name]))
        for name in USED:
            first = one.limits[name][0]
            seen = np.array([[b.anyway[name].bias2.value, b.anyway[name].variance.value] for b in batches])
            if name in biased:
                bias.append((name, seen[:, 0] / first.bias2))
            if first.variance > 0:
                ratios = seen[:, 1] * PROMPTS / first.variance
                variance.append((name, ratios))
                light.append((name, ratios[[b.k <= NO_CHOICE for b in batches]]))
    fixed = {name: geometric([o.needs(PROMPTS)[name] / o.needs(PROMPTS)[NONE.name] for o in worlds]) for name in USED}
    best = geometric([min(o.needs(PROMPTS).values()) / o.needs(PROMPTS)[NONE.name] for o in worlds])
    return {
        "coverage": share(covered), "intervals": len(covered), "given": share(given), "given_intervals": len(given),
        "by_correction": by_name(given),
        "bias": relative(bias), "variance": relative(variance), "within": share(within), "errors": len(within),
        "within_by_correction": by_name(within),
        "light": {name: mean(np.concatenate([r for other, r in light if other == name])) for name, _ in light},
        "tails": mean(tails), "answers": mean([bool(name) for name in names]), "harm": mean(harmful),
        "harmful_names": sorted({n for n, h in zip(names, harmful, strict=True) if h}), "right": mean(right),
        "chosen": {name: names.count(name) for name in sorted(set(names))},
        "lost": mean(lost), "lost_by_none": mean(lost_by_none), "need": geometric(gains), "fixed": fixed, "best": best,
    }  # fmt: skip


def mean(values: Sequence[bool] | Sequence[float]) -> float:
    """Mean, NaN of nothing."""
    return float(np.mean(values)) if len(values) else math.nan


def share(pairs: Sequence[tuple[str, bool]]) -> float:
    """Share of true ones."""
    return mean([value for _, value in pairs])


def by_name(pairs: Sequence[tuple[str, bool]]) -> dict[str, tuple[float, int]]:
    """Share of true ones and their number, by correction."""
    return {
        name: (mean([v for n, v in pairs if n == name]), sum(n == name for n, _ in pairs))
        for name in USED if any(n == name for n, _ in pairs)
    }  # fmt: skip


def geometric(values: Sequence[float]) -> float:
    """Geometric mean, infinite where one is."""
    return float(np.exp(np.mean(np.log(values))))


def relative(found: Sequence[tuple[str, NDArray]]) -> dict[str, tuple[float, float]]:
    """Estimate ÷ truth − 1 and its standard error over batches, by correction, each world alike; `worst` of them.

    found: by correction and world the ratios of its batches.
    """
    result = {}
    for name in dict.fromkeys(name for name, _ in found):
        own = [ratios for other, ratios in found if other == name]
        spread = math.sqrt(sum(r.var(ddof=1) / len(r) for r in own)) / len(own)
        result[name] = (float(np.mean([r.mean() for r in own])) - 1, spread)
    return result


def sound(found: dict[str, tuple[float, float]]) -> bool:
    """Whether every ratio is within 5 % of 1, or within 3 standard errors."""
    return all(abs(off) <= max(0.05, 3 * spread) for off, spread in found.values())


def errors(seed: int) -> None:
    """Tables and verdicts of the first stage."""
    rows = []
    print("| ESS/n | L | intervals at k̂ ≤ 0.5 | cover | given | cover | bias² ÷ true − 1 (none) | "
          "V ÷ true − 1 (none) | V's errors hold | k̂ ≤ 0.5 | answers | harm | right | lost | by none | "
          "need ÷ none: chosen | cap 2 | full | best |")  # fmt: skip
    print("|---" * 19 + "|")
    for wanted, longest, worlds in cells(seed):
        row = {"ess": wanted, "longest": longest, **errors_of(worlds, seed + 1000)}
        rows.append(row)
        (b, b_se), (v, v_se) = row["bias"][NONE.name], row["variance"][NONE.name]
        print(f"| {wanted} | {longest} | {row['intervals']} | {row['coverage']:.2f} | {row['given_intervals']} | "
              f"{row['given']:.2f} | "
              f"{b:+.3f} ± {b_se:.3f} | {v:+.3f} ± {v_se:.3f} | {row['within']:.2f} | {row['tails']:.2f} | "
              f"{row['answers']:.2f} | {row['harm']:.3f} | {row['right']:.2f} | {row['lost']:.3f} | "
              f"{row['lost_by_none']:.3f} | {row['need']:.2f} | "
              f"{row['fixed'][CAP]:.2f} | {row['fixed'][FULL.name]:.2f} | {row['best']:.2f} |", flush=True)  # fmt: skip
    print("\nV ÷ true at k̂ ≤ 0.5, and share of V's errors that hold, means over L")
    for name in (NONE.name, "token_cap:2", CAP, "token_ratio", "prefix_ratio", FULL.name):
        shown = (
            f"{mean([row['light'][name] for row in rows if row['ess'] == ess]):.2f}, "
            f"{mean([row['within_by_correction'][name][0] for row in rows if row['ess'] == ess]):.2f}"
            for ess in ESS
        )
        print(f"| {name} | " + " | ".join(shown) + " |")
    verdicts = {
        "coverage": all(row["coverage"] >= 0.80 for row in rows if row["intervals"] >= 200),
        "given": all(row["given"] >= 0.80 for row in rows if row["given_intervals"] >= 200),
        "bias": all(sound(row["bias"]) and sound(row["variance"]) for row in rows),
        "errors": all(row["within"] >= 0.80 for row in rows if row["errors"] >= 200),
        "answers": all(row["answers"] >= 0.70 for row in rows if row["ess"] >= 0.6),
        "harm": all(row["harm"] <= 0.05 for row in rows),
    }
    print("\n" + "; ".join(f"{name} {'holds' if holds else 'fails'}" for name, holds in verdicts.items()))
    print(dumps({"seed": seed, "verdicts": verdicts, "rows": rows}))


def prompts(seed: int) -> None:
    """Share of right choices by number of prompts."""
    rows = []
    print("| ESS/n | L | " + " | ".join(f"{p} × {GROUP}" for p in GRID) + " | k̂ ≤ 0.5 at the last | 0.9 from |")
    print("|---" * (len(GRID) + 4) + "|")
    for wanted, longest, worlds in cells(seed):
        right: dict[int, list[bool]] = {p: [] for p in GRID}
        named: dict[int, list[bool]] = {p: [] for p in GRID}
        tails: dict[int, list[bool]] = {p: [] for p in GRID}
        for number, one in enumerate(worlds):
            for p in GRID:
                needs, rng = one.needs(p), np.random.default_rng([seed + 1000, number, p])
                for _ in range(GRID_BATCHES):
                    batch = one.batch(rng, p)
                    name = batch.choice.name
                    named[p].append(bool(name))
                    right[p].append(bool(name) and needs[name] <= error.WORTH * min(needs.values()))
                    tails[p].append(batch.k <= NO_CHOICE)
        shares = {p: mean(right[p]) for p in GRID}
        enough = next((p for p in GRID if shares[p] >= 0.9), None)
        rows.append({
            "ess": wanted, "longest": longest, "right": shares, "enough": enough,
            "answers": {p: mean(named[p]) for p in GRID}, "tails": {p: mean(tails[p]) for p in GRID},
        })  # fmt: skip
        print(f"| {wanted} | {longest} | " + " | ".join(f"{shares[p]:.2f}" for p in GRID)
              + f" | {mean(tails[GRID[-1]]):.2f} | {enough or 'above ' + str(GRID[-1])} |", flush=True)  # fmt: skip
    print(dumps({"seed": seed, "rows": rows}))


def fixed(seed: int) -> None:
    """Need ÷ none of every correction that is taken without an estimate, and how often it is harmful."""
    names = [name for name in USED if name != NONE.name]
    ratios: dict[tuple[float, str], list[float]] = {(ess, name): [] for ess in ESS for name in names}
    for ess in ESS:
        for longest in LENGTHS:
            for i in range(FIXED_WORLDS):
                needs = Enumerated(at_ess(seed + i, longest, ess)).needs(PROMPTS)
                for name in names if math.isfinite(needs[NONE.name]) else ():
                    ratios[ess, name].append(needs[name] / needs[NONE.name])
    print("| correction | " + " | ".join(f"ESS/n {ess}" for ess in ESS) + " |\n" + "|---" * (len(ESS) + 1) + "|")
    for name in names:
        shown = (
            f"{geometric(ratios[ess, name]):.2f}, worst {max(ratios[ess, name]):.2f}, "
            f"harmful {mean([one > error.WORTH for one in ratios[ess, name]]):.2f}"
            for ess in ESS
        )
        print(f"| {name} | " + " | ".join(shown) + " |")
    safe = [name for name in names if all(mean([r > error.WORTH for r in ratios[ess, name]]) <= 0.05 for ess in ESS)]
    print(f"\ndefault {'holds' if safe else 'fails'}: {', '.join(safe) or 'none of them'}")
    rows = [{"ess": ess, "correction": name, "ratios": found} for (ess, name), found in ratios.items()]
    print(dumps({"seed": seed, "safe": safe, "rows": rows}))


def main() -> None:
    """Run a stage."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("stage", choices=("errors", "prompts", "fixed"))
    parser.add_argument("--seed", type=int, default=0, help="first seed of the worlds")
    given = parser.parse_args()
    {"errors": errors, "prompts": prompts, "fixed": fixed}[given.stage](given.seed)


if __name__ == "__main__":
    main()
