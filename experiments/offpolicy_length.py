"""How much weight do corrections for another sampler keep of long completions?

Claim    With log ρ of tokens independent and N(−s²/2, s²), so that the mean of ρ is 1, what a correction keeps of a
         completion's weight depends on its length T alone, and the share of completions that it keeps does not show it.
Command  python experiments/offpolicy_length.py --out FOLDER      ten seconds on one core; rows.json for pictures.py
Method   Closed forms, with σ = s √T and Φ the normal distribution function. Weight is the mean coefficient, 1 without a
         cut; completions are those with any coefficient above 0.
             sequence mask at C     weight Φ((ln C − σ²/2)/σ)                       completions Φ((ln C + σ²/2)/σ)
             sequence cap at C      that weight + C (1 − Φ((ln C + σ²/2)/σ))        completions 1
             token cap at C         the same with σ = s                             completions 1
             geometric band lo hi   weight and completions Φ((ln hi + s²/2) √T/s) − Φ((ln lo + s²/2) √T/s)
         Beside them 2,000 simulated completions a cell, through `corrections.named`; s = 0.01, 0.02, 0.045, 0.1 and
         T = 100, 500, 2,000, 8,000, 32,000. TRL's default is the sequence mask above 3, verl's band 0.999 to 1.001.
Verdict  holds if every simulated weight and share of completions lies within 4.5 standard errors, exact ones of one
         coefficient over √2,000, plus C/2,000 of the closed form (for coefficients that are drawn less than once).
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from grposcope.core.files import dumps, write_json
from grposcope.maths.corrections import named
from grposcope.maths.importance import Ratios

SPREADS, LENGTHS = (0.01, 0.02, 0.045, 0.1), (100, 500, 2000, 8000, 32000)
ROLLOUTS, AT_ONCE, LIMIT = 2000, 100, 4.5
NAMES = ("sequence_mask:3", "geometric_band:0.999,1.001", "sequence_cap:2", "token_cap:2")


@dataclass(frozen=True)
class Row:
    """What one correction keeps at a spread and a length: by the closed form, its standard error, and simulated."""

    correction: str
    spread: float
    tokens: int
    weight: float
    completions: float
    error: float
    simulated: float
    simulated_completions: float

    @property
    def agrees(self) -> bool:
        """By the rule of the verdict."""
        of_share = math.sqrt(self.completions * (1 - self.completions) / ROLLOUTS)
        slack = bound(self.correction) / ROLLOUTS
        return (
            abs(self.simulated - self.weight) <= LIMIT * self.error + slack
            and abs(self.simulated_completions - self.completions) <= LIMIT * of_share + slack
        )


def bound(name: str) -> float:
    """The largest coefficient: the upper bound, 1 for a band."""
    return 1.0 if name.startswith("geometric") else float(name.split(":")[1])


def moment(power: int, sigma: float, cap: float) -> float:
    """E[w^k; w ≤ C] of log w ~ N(−σ²/2, σ²)."""
    return math.exp(power * (power - 1) * sigma**2 / 2) * ndtr((math.log(cap) + (0.5 - power) * sigma**2) / sigma)


def closed(name: str, spread: float, tokens: int) -> tuple[float, float, float]:
    """Kept weight, kept completions, and variance of the coefficient of a completion."""
    if name.startswith("geometric"):
        low, high = (math.log(float(part)) for part in name.split(":")[1].split(","))
        ends = [float(ndtr((end + spread**2 / 2) * math.sqrt(tokens) / spread)) for end in (low, high)]
        kept = ends[1] - ends[0]
        return kept, kept, kept * (1 - kept)
    cap, sigma = bound(name), spread if name.startswith("token") else spread * math.sqrt(tokens)
    inside, mean, square = (moment(power, sigma, cap) for power in (0, 1, 2))
    if name.startswith("sequence_mask"):
        return mean, inside, square - mean**2
    mean, square = mean + cap * (1 - inside), square + cap**2 * (1 - inside)
    return mean, 1.0, (square - mean**2) / (tokens if name.startswith("token") else 1)


def simulated(spread: float, tokens: int, rng: np.random.Generator) -> dict[str, NDArray]:
    """Mean coefficient of every completion by correction, (ROLLOUTS,)."""
    found: dict[str, list[NDArray]] = {name: [] for name in NAMES}
    lengths = np.full(AT_ONCE, tokens)
    for _ in range(ROLLOUTS // AT_ONCE):
        ratios = Ratios(rng.normal(-(spread**2) / 2, spread, AT_ONCE * tokens), lengths)
        for name in NAMES:
            found[name].append(ratios.means(named(name).coefficients(ratios)))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def rows(seed: int) -> list[Row]:
    """Every cell."""
    found = []
    for i, spread in enumerate(SPREADS):
        for tokens in LENGTHS:
            drawn = simulated(spread, tokens, np.random.default_rng([seed, i, tokens]))
            for name in NAMES:
                weight, completions, variance = closed(name, spread, tokens)
                error = math.sqrt(max(variance, 0.0) / ROLLOUTS)
                found.append(
                    Row(name, spread, tokens, weight, completions, error, float(drawn[name].mean()),
                        float((drawn[name] > 0).mean()))
                )  # fmt: skip
    return found


def main() -> None:
    """Print the table of each correction and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of rows.json")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = rows(given.seed)
    for name in NAMES:
        print(
            f"\n{name}\n\n| s | "
            + " | ".join(f"T = {t:,}" for t in LENGTHS)
            + " |\n"
            + "|---" * (len(LENGTHS) + 1)
            + "|"
        )
        for spread in SPREADS:
            own = [row for row in found if (row.correction, row.spread) == (name, spread)]
            cells = (f"{row.weight:.3f} ({row.simulated:.3f}); {row.completions:.3f}" for row in own)
            print(f"| {spread} | " + " | ".join(cells) + " |")
    off = [row for row in found if not row.agrees]
    print(f"\nverdict: {'does not hold' if off else 'holds'}; {len(found)} cells")
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "rows.json", [asdict(row) for row in found])
    print(dumps({"holds": not off, "off": [asdict(row) for row in off]}))


if __name__ == "__main__":
    main()
