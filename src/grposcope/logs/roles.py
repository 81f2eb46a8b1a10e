"""Which keys of a log were evaluated apart from training: told by how they were written, never by an adjective.

A path (`eval/`, `val-core/`) or the prefix `eval_` says so. Of other names that begin with such a word, `test_accuracy`
may be of a test set and `test_parse_ok` of the rollouts trained on: they are evaluations where they have a value in at
most half as many rows as the reward. A score without such a word is one where it stands in just the rows of others that
were evaluated apart, and in one at least that has no reward, such as the row before the first step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from grposcope.core.run import Bools, Floats

WORDS = frozenset(
    ("eval", "evals", "evaluation", "evaluate", "evaluating", "val", "valid", "validation", "validate", "test",
     "testing", "dev", "heldout")
)  # fmt: skip
"""Words for what is no training."""

_BY_PATH = re.compile(
    r"(?:(?:evals?|evaluation|val|validation|test|dev|held[-_]?out)/|(?:eval|val|test)(?:-[a-z]+)+/"
    r"|(?:eval|val|held_?out)_)(?P<name>.+)",
    re.I,
)
_VERSION = re.compile(r"(?:.*/)?(?:policy|weights?|model|param)_version", re.I)
"""Names of what was evaluated, which is no score of it."""

_BY_ROWS = re.compile(r"(?:valid|validation|test|dev)[_/](?P<name>.+)", re.I)
_SCORE = re.compile(r"(?:.*[_/ ])?(?:acc|accuracy|success|success_rate|solve_rate|pass_rate|exact_match|pass@1)", re.I)


def evaluated_keys(columns: Mapping[str, Floats], rewarded: Bools) -> dict[str, str]:
    """Key -> name without its prefix, of every key that was evaluated apart. rewarded (N,): rows with a reward."""
    found = {key: match["name"] for key in columns if (match := _BY_PATH.fullmatch(key))}
    most = int(rewarded.sum()) / 2
    for key, column in columns.items():
        if key not in found and (match := _BY_ROWS.fullmatch(key)) and (~np.isnan(column)).sum() <= most:
            found[key] = match["name"]
    apart = {_rows(columns[key]) for key in found}
    for key, column in columns.items():
        if key not in found and _SCORE.fullmatch(key) and _rows(column) in apart and (_there(column) & ~rewarded).any():
            found[key] = key
    return {key: found[key] for key in columns if key in found}


def _there(column: Floats) -> Bools:
    """Where a column has a value, (N,)."""
    return ~np.isnan(column)


def _rows(column: Floats) -> bytes:
    """The rows in which a column has a value, for comparing."""
    return _there(column).tobytes()


def is_version(name: str) -> bool:
    """Whether the name of what was evaluated is the version of the weights."""
    return bool(_VERSION.fullmatch(name))


def may_be_evaluated(key: str) -> bool:
    """Whether a key begins as one that was evaluated apart, by rows or not."""
    return bool(_BY_PATH.fullmatch(key) or _BY_ROWS.fullmatch(key))
