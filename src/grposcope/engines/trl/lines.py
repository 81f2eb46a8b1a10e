"""The lines of a TRL run's record: what TRL logs, under our names; what the disk has no room for waits."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import json_number
from grposcope.engines.trl.processes import say
from grposcope.logs import RunWriter
from grposcope.logs.trainers import trl_completions
from grposcope.logs.trainers.trl import COMPONENT, TRL


class RecordLines:
    """Writes lines into `record`. settings: of the trainer under our names; functions: reward functions seen so far.

    sizes: step from which on a group has this size, where it is not that of the settings at all of them.
    waiting: lines that found no room on the disk yet; they are written before any other.
    """

    def __init__(self, record: RunWriter, settings: Mapping[str, Any]) -> None:
        self.record, self.settings = record, settings
        self.functions: tuple[str, ...] = ()
        self.sizes: dict[int, int] = {}
        self.waiting: list[Callable[[], None]] = []
        self._names: dict[tuple[str, ...], list[str]] = {}
        self._told: set[str] = set()

    def put(self, line: Callable[[], None]) -> None:
        """Write a line of the record after those before it; what does not fit on the disk waits until there is room."""
        self.waiting.append(line)
        try:
            while self.waiting:
                self.waiting[0]()
                del self.waiting[0]
        except UserError as error:
            if "disk" not in self._told:
                self._told.add("disk")
                say(f"grposcope: {error}; until then the record is kept in memory", logging.WARNING)
        else:
            self._told.discard("disk")

    def step(self, step: int, logged: Mapping[str, Any]) -> None:
        """Write the row of a step from what TRL logged; what is no number is left out."""
        values = {key: number for key, value in logged.items() if (number := json_number(value)) is not None}
        names = self._names.get(tuple(values)) or self._name(values)
        self.put(partial(self.record.step, {"step": step, **dict(zip(names, values.values(), strict=True))}))

    def _name(self, values: Mapping[str, float]) -> list[str]:
        """Our names of TRL's keys, by version and settings where a key has had several meanings; cached."""
        columns = {key: np.array([value]) for key, value in values.items()}
        defined, _ = TRL.definitions(columns, self.settings, self.settings["window"])
        names = self._names[tuple(values)] = [defined.get(key, key) for key in values]
        functions = [match["name"] for key in values if (match := COMPONENT.fullmatch(key)) and match["what"] == "mean"]
        self.functions = tuple(functions) or self.functions
        return names

    def groups(self, args: Any, step: int) -> None:
        """Write the groups of the batch whose completions TRL wrote down at this step."""
        path = trl_completions.file_of(Path(args.output_dir), step)
        if not path.exists():
            return
        moved = [first for first in self.sizes if first <= step]
        size = self.sizes[max(moved)] if moved else int(self.settings.get("group") or 0)
        try:
            rows = trl_completions.group_rows(path, step, self.functions, args.reward_weights, size)
        except UserError as error:
            if "groups" not in self._told:
                self._told.add("groups")
                say(f"grposcope: {error}; its groups are not recorded")
            return
        self.put(partial(self.record.group, rows))

    def evaluation(self, step: int, logs: Mapping[str, Any]) -> None:
        """Write a held-out evaluation as TRL logs it: means, without standard errors."""
        row: dict[str, Any] = {}
        for key, value in logs.items():
            name = key.removeprefix("eval_")
            if isinstance(value, int | float):
                flag = "no standard error in the log"
                row[TRL.metric(name) or name] = {"value": float(value), "se": math.nan, "n": 0, "flag": flag}
        if row:
            self.put(partial(self.record.evaluation, {"step": step, **row}))
