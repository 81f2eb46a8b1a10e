"""The plan of a sweep, without running anything: cells from a grid, the seeds of each, and the folder of each run.

    seeds: 8                          # the seeds 0 … 7, or a list
    base: {steps: 160, prompts: 16}   # settings of all cells: fields of `TrainConfig`
    grid: {group: [4, 8], recipe: [grpo, rloo]}    # crossed
    cells: [{name: wide, group: 32, prompts: 4}]   # and further cells one by one, or instead
    baseline: {group: 8, recipe: grpo}             # the cell that others are compared with (else the first), or a name
    metric: pass@1                    # pass@1 (last held-out evaluation) or reward (mean of the last fifth)

Every cell is checked before anything starts. The folder of a run follows from its cell's name and its seed alone, so
that a plan with more cells or seeds goes on where an earlier one ended.
"""

from __future__ import annotations

import difflib
import itertools
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from grposcope.core import yaml_files
from grposcope.core.errors import UserError
from grposcope.lab.train.config import TrainConfig, check

KEYS = ("name", "seeds", "base", "grid", "cells", "baseline", "metric")
"""Keys of a plan."""

METRICS = ("pass@1", "reward")
"""What cells can be compared by."""

MEANT = {"G": "group", "N": "interval", "P": "prompts", "learning_rate": "lr", "num_generations": "group",
         "beta": "kl", "temp": "temperature", "max_steps": "steps", "optim": "optimizer"}  # fmt: skip
"""Other names of settings -> ours, for the message about an unknown one."""

ALIKE = 0.7
"""Likeness of two names, from 0 to 1, from which one may be meant for the other."""

LARGEST = 10_000
"""Runs beyond which a plan is a mistake."""

Where = Callable[[str], str]
"""Place of a key, joined by ".", for messages: "sweep.yaml, line 3"."""


@dataclass(frozen=True)
class _SweepCell:
    """One setting of the grid. changes: what differs from `base`, for the table."""

    name: str
    config: TrainConfig
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class PlannedRun:
    """One seed of a cell. folder: of its record, below that of the sweep."""

    cell: str
    seed: int
    config: TrainConfig
    folder: Path

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.cell}, seed {self.seed}"


@dataclass(frozen=True)
class SweepPlan:
    """All runs of a sweep in `out`. baseline: name of the cell that others are compared with. metric: of METRICS."""

    out: Path
    cells: tuple[_SweepCell, ...]
    seeds: tuple[int, ...]
    baseline: str
    metric: str

    @property
    def runs(self) -> list[PlannedRun]:
        """All runs, seed by seed, so that every cell has some early."""
        return [
            PlannedRun(cell.name, seed, replace(cell.config, seed=seed, out=str(folder)), folder)
            for seed in self.seeds
            for cell in self.cells
            for folder in [self.out / _folder_name(cell.name) / f"seed-{seed}"]
        ]

    def document(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            "seeds": self.seeds,
            "baseline": self.baseline,
            "metric": self.metric,
            "cells": {
                cell.name: {"changes": dict(cell.changes), "settings": asdict(cell.config)} for cell in self.cells
            },
        }


def read(path: Path, out: Path | None = None) -> SweepPlan:
    """The plan in a YAML file; UserError, with the line, for what is no plan. out: folder, by default sweeps/NAME."""
    document = yaml_files.read(path)
    if not isinstance(document.content, Mapping):
        raise UserError(f"{path} is not a mapping; write seeds, base and grid as in docs/howto/sweep.md")
    name = document.content.get("name", path.stem)
    return of(document.content, out or Path("sweeps") / _folder_name(str(name)), document.where)


def of(content: Mapping[str, Any], out: Path, where: Where = lambda key: f"sweep, {key}") -> SweepPlan:
    """The plan that a mapping describes; UserError, that begins with `where` of the key, for what is none."""
    for key in content:
        if key not in KEYS:
            raise UserError(f"{where(str(key))}: a sweep has no key {key}; {_nearest(str(key), KEYS)}")
    base = _settings(content.get("base") or {}, "base", where)
    cells = _cells(content, base, where)
    seeds = _seeds(content.get("seeds", 1), where)
    metric = content.get("metric", "pass@1")
    if metric not in METRICS:
        raise UserError(f"{where('metric')}: metric is {metric!r}; use one of {', '.join(METRICS)}")
    if metric == "pass@1" and any(cell.config.eval_problems == 0 for cell in cells):
        raise UserError(f"{where('metric')}: without held-out problems there is no pass@1; compare by metric: reward")
    if len(cells) * len(seeds) > LARGEST:
        raise UserError(f"{where('grid')}: {len(cells):,} settings × {len(seeds)} seeds are more than {LARGEST:,} runs")
    return SweepPlan(out, cells, seeds, _baseline(content.get("baseline"), cells, where), metric)


def _folder_name(cell: str) -> str:
    """The name of a cell's folder: letters, digits and = . _ - only."""
    return re.sub(r"[^\w.=-]+", "_", cell).strip("_.") or "cell"


def _cells(content: Mapping[str, Any], base: Mapping[str, Any], where: Where) -> tuple[_SweepCell, ...]:
    """The grid crossed, then the cells that are listed, each checked."""
    grid = content.get("grid") or {}
    _mapping(grid, "grid", where)
    axes = {str(name): _values(name, values, where) for name, values in grid.items()}
    found: list[tuple[str, dict[str, Any], str]] = []
    if axes or not content.get("cells"):
        for values in itertools.product(*axes.values()):
            changes = dict(zip(axes, values, strict=True))
            found.append((", ".join(f"{name}={value}" for name, value in changes.items()) or "all", changes, "grid"))
    listed = content.get("cells") or []
    if not isinstance(listed, list):
        raise UserError(f"{where('cells')}: cells is not a list; write - {{group: 4}} for each")
    for number, cell in enumerate(listed):
        key = f"cells.{number}"
        _mapping(cell, key, where)
        own = {name: value for name, value in cell.items() if name != "name"}
        changes = _settings(own, key, where)
        name = str(cell.get("name") or ", ".join(f"{name}={value}" for name, value in changes.items()) or "all")
        found.append((name, changes, key))
    cells: list[_SweepCell] = []
    folders: dict[str, str] = {}
    for name, changes, key in found:
        before = folders.setdefault(_folder_name(name).casefold(), name)
        if before != name or sum(other == name for other, _, _ in found) > 1:
            raise UserError(f"{where(key)}: two settings (cells) are called {name}; give each a name of its own")
        config = TrainConfig(**{**base, **changes})
        try:
            check(config)
        except UserError as error:
            raise UserError(f"{where(key)}: cell {name}: {error}") from None
        cells.append(_SweepCell(name, config, changes))
    return tuple(cells)


def _values(name: str, values: Any, where: Where) -> list[Any]:
    """The values of one axis of the grid, of the right type and all different."""
    key = f"grid.{name}"
    values = values if isinstance(values, list) else [values]
    if not values:
        raise UserError(f"{where(key)}: {name} has no values; give at least one")
    typed = [_settings({name: value}, "grid", where)[name] for value in values]
    if len({repr(value) for value in typed}) < len(typed):
        raise UserError(f"{where(key)}: {name} has a value twice")
    return typed


def _settings(given: Any, key: str, where: Where) -> dict[str, Any]:
    """Settings of the right types; UserError for a name that is none, or one that the sweep itself sets."""
    _mapping(given, key, where)
    hints = typing.get_type_hints(TrainConfig)
    names = [field.name for field in fields(TrainConfig)]
    settings = {}
    for name, value in given.items():
        path = where(f"{key}.{name}")
        if name in ("seed", "out"):
            raise UserError(f"{path}: the sweep sets {name} of each run itself; write seeds beside base and grid")
        if name not in names:
            raise UserError(f"{path}: there is no setting {name}; {_nearest(str(name), names)}")
        settings[name] = _typed(name, value, hints[name], path)
    return settings


def _typed(name: str, value: Any, hint: Any, path: str) -> Any:
    """The value as the type of a field; a whole number may stand for any other."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and types.NoneType in kinds:
        return None
    kind = next(kind for kind in kinds if kind is not types.NoneType)
    if kind in (float, str) and isinstance(value, int) and not isinstance(value, bool):
        return kind(value)
    if type(value) is kind:
        return value
    said = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]
    raise UserError(f"{path}: {name} is {value!r}; it must be {said}")


def _seeds(value: Any, where: Where) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return tuple(range(value))
    whole = isinstance(value, list) and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in value)
    if not whole or not value or len(set(value)) < len(value):
        raise UserError(f"{where('seeds')}: seeds is {value!r}; give how many, such as 8, or a list of different seeds")
    return tuple(value)


def _baseline(value: Any, cells: Sequence[_SweepCell], where: Where) -> str:
    """The name of the one cell that is meant, by its name or by some of its settings; the first by default."""
    if value is None:
        return cells[0].name
    if isinstance(value, Mapping):
        wanted = _settings(value, "baseline", where)
        matching = [cell.name for cell in cells if wanted.items() <= asdict(cell.config).items()]
    else:
        matching = [cell.name for cell in cells if cell.name == value]
    if len(matching) != 1:
        names = ", ".join(cell.name for cell in cells[:10])
        raise UserError(f"{where('baseline')}: {len(matching)} settings are {value!r}; name one of them: {names}")
    return matching[0]


def _mapping(value: Any, key: str, where: Where) -> None:
    if not isinstance(value, Mapping):
        raise UserError(f"{where(key)}: {value!r} is not a mapping of settings; write {{group: 8}}")


def _nearest(name: str, names: Sequence[str]) -> str:
    """The name that was probably meant, or all of them where none is like it."""
    near = MEANT.get(name) if MEANT.get(name) in names else None
    near = near or next(iter(difflib.get_close_matches(name.lower(), names, 1, ALIKE)), None)
    return f"the nearest is {near}" if near else f"use one of {', '.join(names)}"
