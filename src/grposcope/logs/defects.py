"""Metrics that an engine logs wrongly in some of its versions, as data: the key, what is wrong, and what is done.

A defect counts where the version of the run lies in its range, or where the numbers of the log prove it. Where they
disprove it, it does not, whatever the version. A key whose number is wrong is left out of its metric and keeps its own
name; one that is right but is another quantity than its name says is named in a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from grposcope.core.run import Floats

Columns = Mapping[str, Floats]
Settings = Mapping[str, Any]
Seen = Callable[[Columns, Settings], bool | None]
"""Whether the numbers and settings of a log prove a defect (True) or disprove it (False); None where they say
nothing.
"""


@dataclass(frozen=True)
class Defect:
    """A metric that is logged wrongly.

    engine: as in `TRAINERS`. keys: those that are wrong. since, fixed: the first version that has it and the first that
    has it no more, None for all and for none yet. what: what the number is instead, a clause. thread: where that is
    known from. left_out: whether the keys are left out of their metrics. seen: what the log itself says.
    """

    name: str
    engine: str
    keys: tuple[str, ...]
    since: tuple[int, ...]
    fixed: tuple[int, ...] | None
    what: str
    thread: str
    left_out: bool
    seen: Seen

    @property
    def versions(self) -> str:
        """The versions that have it, in words."""
        first = ".".join(map(str, self.since))
        if self.since == (0, 0) and self.fixed is None:
            return "in every version so far"
        return (
            f"from {first}"
            if self.fixed is None
            else f"{first} up to, but not including, {'.'.join(map(str, self.fixed))}"
        )

    def in_version(self, text: object) -> bool:
        """Whether this version of the engine has it; False for a version that cannot be read."""
        found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", str(text))
        if found is None:
            return False
        version = tuple(int(part) for part in found.groups() if part is not None)
        return self.since <= version and (self.fixed is None or version < self.fixed)

    def __str__(self) -> str:
        done = "left out" if self.left_out else "keep that in mind"
        return f"{self.keys[0]} {self.what} ({self.thread}, {self.engine} {self.versions}): {done}"


def _width_of_batch(share: str, longest: str) -> Seen:
    """A share of completions at the limit that is above 0 where even the longest one is shorter than others were."""

    def seen(columns: Columns, settings: Settings) -> bool | None:
        shares, lengths = columns.get(share), columns.get(longest)
        if shares is None:
            return False
        if bool((shares == 0).any()):  # the longest of a batch is always as long as itself
            return False
        if lengths is None or not np.isfinite(lengths).any():
            return None
        return bool(((shares > 0) & (lengths < np.nanmax(lengths))).any())

    return seen


def _never_high(columns: Columns, settings: Settings) -> bool | None:
    """A share of sequences above the threshold that is 0 throughout, though the share of tokens above it is not."""
    sequences = columns.get("rollout_corr/rollout_is_seq_fraction_high")
    tokens = columns.get("rollout_corr/rollout_is_ratio_fraction_high")
    if sequences is None or bool((sequences > 0).any()):
        return False
    return True if tokens is not None and bool((tokens > 0).any()) else None


def _unweighted(columns: Columns, settings: Settings) -> bool | None:
    """A reward that is the plain sum of its parts though they have weights."""
    weights = settings.get("reward_weights")
    parts = [columns[key] for key in columns if re.fullmatch(r"rewards/.+/mean", key)]
    if not isinstance(weights, list) or set(weights) <= {1} or "reward" not in columns or len(parts) < 2:
        return False
    plain = np.allclose(columns["reward"], np.sum(parts, axis=0), rtol=1e-3, atol=1e-4, equal_nan=True)
    return bool(plain)


def _above_one(key: str) -> Seen:
    """An effective share of the samples that is above 1."""

    def seen(columns: Columns, settings: Settings) -> bool | None:
        column = columns.get(key, columns.get(key.removeprefix("train/")))
        return column is not None and bool((column > 1 + 1e-6).any())

    return seen


DEFECTS: tuple[Defect, ...] = (
    Defect(
        "share at the limit", "verl", ("response_length/clip_ratio",), (0, 9), None,
        "compares lengths with the longest completion of the batch, not with the limit", "verl #7817", True,
        _width_of_batch("response_length/clip_ratio", "response_length/max"),
    ),
    Defect(
        "share of high sequences", "verl", ("rollout_corr/rollout_is_seq_fraction_high",), (0, 6), (0, 9),
        "is 0 by construction, because it is computed from weights that are already capped", "verl #6806", True,
        _never_high,
    ),
    Defect(
        "weights of rewards", "trl", ("reward",), (0, 27), (1, 0),
        "is the sum of its parts without reward_weights, although the advantages use them", "TRL #5352", False,
        _unweighted,
    ),
    Defect(
        "effective samples", "slime", ("train/ess_ratio",), (0, 0), None,
        "exceeds 1, so it cannot be a share of the samples", "miles #3230", True, _above_one("train/ess_ratio"),
    ),
    Defect(
        "share at the limit", "areal", ("ppo_actor/no_eos_ratios/avg",), (0, 0), None,
        "compares lengths with the width of the padded batch, not with the limit", "source of AReaL 1.0", True,
        _width_of_batch("ppo_actor/no_eos_ratios/avg", "ppo_actor/seq_len/max"),
    ),
)  # fmt: skip
"""Every known defect."""


def of_log(engine: str, columns: Columns, settings: Settings) -> Iterator[Defect]:
    """The defects that a log has. columns: under the engine's keys. settings: with NAME_version where it is known."""
    for defect in DEFECTS:
        if defect.engine == engine and any(
            key in columns or key.removeprefix("train/") in columns for key in defect.keys
        ):
            seen = defect.seen(columns, settings)
            if seen or (seen is None and defect.in_version(settings.get(f"{engine.replace('-', '_')}_version"))):
                yield defect


def named(name: str, engine: str) -> Defect:
    """The defect of this name of an engine."""
    return next(defect for defect in DEFECTS if (defect.name, defect.engine) == (name, engine))
