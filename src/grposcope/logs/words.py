"""The words of a key, whichever way it joins them."""

from __future__ import annotations

import re

FILLING = frozenset(
    ("avg", "average", "mean", "train", "training", "batch", "current", "cur", "the", "policy", "metric", "metrics",
     "rollout", "rollouts", "episode", "log", "logs", "data", "scalars", "stats")
)  # fmt: skip
"""Words of a key that do not change which metric it is. (max, best, running, total and the like do.)"""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def words_of(key: str) -> str:
    """The words of a key in lower case and without FILLING: "Avg_ResponseLen" is "response len"."""
    words = [word.lower() for word in _WORD.findall(key[:200])]
    return " ".join(word for word in words if word not in FILLING)
