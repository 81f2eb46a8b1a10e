"""A metric that an engine logs wrongly in some of its versions, as data: the key, what is wrong, and what is done.

Each stands in the file of its engine. A defect counts where the version of the run lies in its range, or where the
numbers of the log prove it. Where they disprove it, it does not, whatever the version. A key whose number is wrong is
left out of its metric and keeps its own name; one that is right but is another quantity than its name says is named in
a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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


def width_of_batch(share: str, longest: str) -> Seen:
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
