"""Settings that were asked for, beside those in force: what a trainer recorded, and what its rows can only mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from grposcope.core.metrics import VARIANTS
from grposcope.core.run import Run
from grposcope.core.settings import Settings, SettingsAskedFor
from grposcope.core.text import plain
from grposcope.logs.columns import flat
from grposcope.signs.settings.names import by_our_names

NEAR = 0.02
"""Relative difference up to which a logged number is taken for the one that was asked for: logs round."""

TERMS = {"loss_fn.positive_example_nll_weight": "positive_nll_loss"}
"""Key of the weight of a term of the loss -> last part of the key under which the trainer logs the term."""

OF_TURNS = "data.max_obs_length"
"""Setting of forks of verl (Search-R1) whose limit of a response is that of one turn, and not of a rollout."""

ROWS = 10
"""Rows of which a term has to be 0 to have no effect: a batch without the rollouts that it is of has none either."""

FAR = 0.5
"""Share of the learning rate that was asked for, below which the peak of a schedule that has turned is another one."""


@dataclass(frozen=True)
class _InForce:
    """One setting as a file asks for it and as the run has it.

    key: as the file writes it. where: its line in the file, empty if not known. seen: what says so, as a clause.
    """

    key: str
    asked: Any
    where: str
    actual: Any
    seen: str

    @property
    def differs(self) -> bool:
        """Whether the run has another value than was asked for."""
        return not same(self.asked, self.actual)

    def __str__(self) -> str:
        return f"{self.key} is {written(self.asked)} in the file and {self.seen}"


def compared(beside: SettingsAskedFor, run: Run) -> tuple[_InForce, ...]:
    """Every setting that the file gives and that the run recorded or its rows show, in the order of the file; first a
    limit of completions that the rows break."""
    asked = beside.settings
    keys = [key for key in asked.given if key not in asked.opaque and asked.given[key] is not None]
    recorded = {str(key).replace("/", "."): value for key, value in flat(_logged(run)).items()}
    told: list[_InForce] = []
    for key in keys:
        where = f"line {asked.lines[key]}" if key in asked.lines else ""
        name = _our_name(asked, key)
        limits = name == "max_tokens" and OF_TURNS not in asked.given
        if limits and (seen := _limit(run, asked.given[key])) is not None:
            told.insert(0, _InForce(key, asked.given[key], where, *seen))
            continue
        if key in recorded:
            actual = recorded[key]
        elif name and name not in beside.taken and run.setting(name) is not None:
            actual = run.setting(name)
        else:
            shown = _ROWS.get(name)
            seen = shown(run, asked.given[key]) if shown else _term(run, key, asked.given[key])
            told += [] if seen is None else [_InForce(key, asked.given[key], where, *seen)]
            continue
        told.append(_InForce(key, asked.given[key], where, actual, f"{written(actual)} in the run"))
    return tuple(told)


def missing_from(run: Run, asked: Settings) -> dict[str, Any]:
    """Settings under our names that the log does not state and the file does, its trainer's defaults included."""
    if asked.dialect.name != run.meta.engine:
        return {}
    return {name: value for name, value in by_our_names(asked).items() if run.setting(name) is None}


def same(asked: Any, actual: Any) -> bool:
    """Whether two values are one setting: 1e-6 and "1e-06", True and "true", none and null."""
    first, second = _plain(asked), _plain(actual)
    if isinstance(first, float) and isinstance(second, float):
        return bool(np.isclose(first, second, rtol=1e-6, atol=0))
    return bool(first == second)


def written(value: Any) -> str:
    """A value as a sentence has it."""
    bare = _plain(value)
    return plain(f"{bare:.6g}") if isinstance(bare, float) and not isinstance(value, bool) else str(value)


def _plain(value: Any) -> Any:
    """A number as float, a switch as 0 or 1, a text in lower case without quotes, nothing as None."""
    if isinstance(value, bool | int | float):
        return float(value)
    if not isinstance(value, str):
        return value
    text = value.strip().strip("'\"").lower()
    if text in ("none", "null", ""):
        return None
    if text in ("true", "false"):
        return float(text == "true")
    try:
        return float(text)
    except ValueError:
        return text


def _logged(run: Run) -> Mapping[str, Any]:
    logged = run.config.get("logged")
    return logged if isinstance(logged, Mapping) else {}


def _our_name(asked: Settings, key: str) -> str:
    """Our name of one of the trainer's settings; empty where it has none."""
    from grposcope.logs.trainers import TRAINERS

    settings = TRAINERS[asked.dialect.name].settings
    return next((setting.name for setting in settings if setting.key == key), "")


def _rate(run: Run, asked: Any) -> tuple[float, str] | None:
    """The highest learning rate of the rows; None where it may still be warming up to what was asked for."""
    rates, rate = run.table.get("lr"), _plain(asked)
    if rates is None or not isinstance(rate, float) or not np.isfinite(rates).any():
        return None
    peak, step = float(np.nanmax(rates)), int(run.table["step"][int(np.nanargmax(rates))])
    finite = rates[np.isfinite(rates)]
    turned = float(finite[-1]) < peak * (1 - NEAR)
    if abs(peak - rate) <= NEAR * abs(rate):
        return rate, f"{written(rate)} at its highest in the rows"
    if peak > rate or (turned and peak < FAR * rate):
        return peak, f"the rows reach {written(peak)} (step {step:,})"
    return None


def _limit(run: Run, asked: Any) -> tuple[float, str] | None:
    """The longest completion of the rows where it is beyond the limit that was asked for."""
    longest, limit = run.table.get("length_max"), _plain(asked)
    if longest is None or not isinstance(limit, float) or not np.isfinite(longest).any():
        return None
    most, step = float(np.nanmax(longest)), int(run.table["step"][int(np.nanargmax(longest))])
    if most <= limit:
        return None
    return most, f"a completion of step {step:,} has {most:,.0f} tokens"


def _penalty(run: Run, asked: Any) -> tuple[float, str] | None:
    """Whether TRL had a KL penalty: it logs kl exactly where beta is not 0."""
    beta, columns = _plain(asked), [run.table[name] for name in VARIANTS["kl"] if name in run.table]
    logged = [column for column in columns if np.isfinite(column).any()]
    if columns and not logged:
        return None  # a NaN in every row is not measured
    if run.meta.engine != "trl" or not isinstance(beta, float) or bool(logged) == (beta != 0):
        return None
    if logged:
        return float("nan"), "the log has kl, which TRL writes only where beta is not 0"
    return 0.0, "the log has no kl, which TRL writes wherever beta is not 0"


def _term(run: Run, key: str, asked: Any) -> tuple[float, str] | None:
    """That a term of the loss is exactly 0 in every row although its weight is not; None where it is not so."""
    logged, weight = TERMS.get(key, ""), _plain(asked)
    if not logged or not isinstance(weight, float) or weight == 0:
        return None
    name = next((name for name in run.table if name.split("/")[-1] == logged), None)
    values = np.array([]) if name is None else run.table[name][np.isfinite(run.table[name])]
    if name is None or len(values) < ROWS or values.any():
        return None
    return 0.0, f"its term {name} is exactly 0 in all {len(values)} rows, so that it has no effect"


_ROWS: Mapping[str, Callable[[Run, Any], tuple[float, str] | None]] = {
    "lr": _rate, "kl": _penalty,
}  # fmt: skip
"""Our name of a setting -> what the rows of a run say of it; None where they say nothing."""
