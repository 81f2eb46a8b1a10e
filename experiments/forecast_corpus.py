"""Corpus: reward curves of public GRPO, RLOO and PPO runs of language models, to learn and score forecasts on.

`forecast_corpus/runs.jsonl.gz` holds a run a line: where its numbers come from, what is known of its settings, and its
columns, rounded to five digits. `forecast_corpus/SOURCES.md` lists every public repository that was looked at. Curves
of one owner resemble each other, so a forecast is to be scored with all runs of an owner left out (`by_owner`).

    python experiments/forecast_corpus.py       what is in it, by owner and by kind of curve
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FILE = Path(__file__).with_suffix("") / "runs.jsonl.gz"
KINDS = ("flat", "rises", "saturates", "rises and declines", "declines")
"""Kinds of curve that `describe` tells apart."""

_CLEAR = 3.0  # standard errors between two fifths of a run, so that a kind is seldom noise
_WORTH = 0.1  # of the range between the 5th and the 95th percentile


@dataclass(frozen=True)
class Descriptor:
    """A reward curve in a few numbers. first, last, best: mean of the first, the last and the best fifth of its rows.

    low, high: least and greatest reward. noise: standard deviation of a row about the curve, from the differences of
    successive rows. kind: one of KINDS.
    """

    rows: int
    low: float
    high: float
    first: float
    best: float
    last: float
    noise: float
    kind: str


@dataclass(frozen=True)
class PublicRun:
    """One training run. columns: name -> (N,), NaN where nothing was logged; "step" and "reward" are always there.

    repository: OWNER/NAME, with the commit and the path of the log. trainer: as `grposcope.logs` named it. seen:
    whether the forecast was tuned to this source before. window: optimiser steps that a row of the log is the mean
    over. block: rows of the log that a row here is the mean of. names: column -> its key in the log, or the name of its
    exact definition (reward_std_batch, kl_k1), where it is not the column's own. settings: what the log or a config
    says of group size, learning rate and the like. evaluations: metric -> (steps, values), held out.
    """

    repository: str
    commit: str
    path: str
    licence: str
    trainer: str
    seen: bool
    window: int
    block: int
    names: Mapping[str, str]
    settings: Mapping[str, Any]
    columns: Mapping[str, Floats]
    evaluations: Mapping[str, tuple[Floats, Floats]]
    descriptor: Descriptor

    @property
    def owner(self) -> str:
        """Owner of the repository, the unit that is left out when a forecast is scored."""
        return self.repository.split("/")[0].lower()


def load(file: Path = FILE) -> list[PublicRun]:
    """All runs of the corpus, sorted by repository and path."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [_run(json.loads(line)) for line in lines]


def by_owner(runs: Sequence[PublicRun]) -> dict[str, list[PublicRun]]:
    """Runs by the owner of their repository."""
    owners: dict[str, list[PublicRun]] = {}
    for run in runs:
        owners.setdefault(run.owner, []).append(run)
    return owners


def describe(reward: Floats) -> Descriptor:
    """The curve of the finite rewards (N,) in a few numbers; the kind by comparing the means of fifths of the run.

    Two fifths differ if their means lie three standard errors of independent rows and a tenth of the range apart. A run
    rises and declines, or declines, if its last fifth lies below its best; it saturates if four fifths of its rise are
    behind it at half time.
    """
    fifths = np.array([part.mean() for part in np.array_split(reward, 5)])
    spread = np.median(np.abs(np.diff(reward))) / 0.954  # of a normal variable: the median of |x − y| is 0.954 σ
    noise = max(float(spread), float(np.std(np.diff(reward))) / math.sqrt(2) / 2)
    low, high = np.quantile(reward, (0.05, 0.95))
    clear = max(_CLEAR * noise * math.sqrt(2 / (len(reward) / 5)), _WORTH * (high - low))
    rose, fell = fifths.max() - fifths[0], fifths.max() - fifths[-1]
    if fell > clear:
        kind = "rises and declines" if rose > clear else "declines"
    elif rose > clear:
        kind = "saturates" if fifths[2] - fifths[0] >= 0.8 * (fifths[-1] - fifths[0]) else "rises"
    else:
        kind = "flat"
    numbers = (reward.min(), reward.max(), fifths[0], fifths.max(), fifths[-1], noise)
    return Descriptor(len(reward), *(float(f"{x:.5g}") for x in numbers), kind)


def _run(line: dict[str, Any]) -> PublicRun:
    columns = {name: np.array(values, np.float64) for name, values in line.pop("columns").items()}
    evaluations = {
        name: (np.array(steps, np.float64), np.array(values, np.float64))
        for name, (steps, values) in line.pop("evaluations").items()
    }
    descriptor = Descriptor(**line.pop("descriptor"))
    return PublicRun(**line, columns=columns, evaluations=evaluations, descriptor=descriptor)


def main() -> None:
    """Print owners, runs, rows and kinds of curve."""
    runs = load()
    print(f"{len(runs)} runs of {len(by_owner(runs))} owners; {sum(run.descriptor.rows for run in runs)} rows")
    for owner, theirs in by_owner(runs).items():
        kinds = Counter(run.descriptor.kind for run in theirs)
        text = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        rows = sorted(run.descriptor.rows for run in theirs)
        print(f"{owner:32s} {len(theirs):3d} runs of {rows[0]}–{rows[-1]} rows: {text}")
    print(dict(Counter(run.descriptor.kind for run in runs)))


if __name__ == "__main__":
    main()
