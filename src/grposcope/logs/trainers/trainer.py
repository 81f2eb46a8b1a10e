"""Description of a trainer whose logs are read: its keys, its settings, its files, and how to have it log more."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from grposcope.core import metrics
from grposcope.core.run import Bools, Floats
from grposcope.logs.columns import leaves
from grposcope.logs.formats.kind import LogKind

Columns = Mapping[str, Floats]
Settings = Mapping[str, Any]
Seen = Callable[[Columns, Settings], bool | None]
"""Whether the numbers and settings of a log prove a defect (True) or disprove it (False); None where they say
nothing.
"""


Definitions = tuple[dict[str, str], list[str]]
"""Metric of each key that has one, and what had to be assumed or was proved, a sentence each."""

Scoped = dict[str, dict[str, str]]
"""Environment, domain or agent -> its keys, each with the key that the whole run would have in its place."""


@dataclass(frozen=True)
class Made:
    """A metric that is worked out of what was logged: its values (N,), and of what, as a formula of keys."""

    values: Floats
    formula: str


@dataclass(frozen=True)
class Defect:
    """A metric that an engine logs wrongly in some of its versions.

    It counts where the version of the run lies in its range, or where the numbers of the log prove it; where they
    disprove it, it does not, whatever the version. A key whose number is wrong is left out of its metric and keeps its
    own name; one that is right but is another quantity than its name says is named in a note.

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

    @property
    def remedy(self) -> str:
        """What to do about it, a clause."""
        if self.fixed is None:
            return "do not rely on it; no version logs it correctly yet"
        return f"do not rely on it; use {'.'.join(map(str, self.fixed))} or later"

    def in_version(self, text: object) -> bool:
        """Whether this version of the engine has it; False for a version that cannot be read."""
        match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", str(text))
        if match is None:
            return False
        version = tuple(int(group) for group in match.groups() if group is not None)
        return self.since <= version and (self.fixed is None or version < self.fixed)

    def __str__(self) -> str:
        done = "left out" if self.left_out else "keep that in mind"
        return f"{self.keys[0]} {self.what} ({self.thread}, {self.engine} {self.versions}): {done}"


@dataclass(frozen=True)
class Setting:
    """A setting as a trainer writes it.

    key: with "." between levels. name: ours, empty for one that only checks of the settings know, by its key. default:
    the value where it is not given, in the version that the trainer names; None where that is not known.
    """

    key: str
    name: str = ""
    default: Any = None


def _by_key(names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Key -> the first metric that has it among its keys."""
    first: dict[str, str] = {}
    for name, keys in names.items():
        for key in keys:
            first.setdefault(key, name)
    return first


@dataclass(frozen=True)
class Trainer:
    """All that is known of the logs of one trainer.

    name: as in Meta.engine. title: as people write it. recognises: whether the keys of a log are those of this
    trainer. keys: metric -> the keys under which it is logged, the preferred one first. component: pattern of the
    keys of single reward components, with groups `name` and `what` ("std" or else the mean). define: (columns,
    settings, window) -> metrics of the keys whose meaning depends on settings, version or values. no_term: (table,
    settings) -> rows (N,) of metrics that have no term there, so that a NaN in them means nothing. made: metrics
    that follow from several keys, where the log has none of their own. scoped: keys of single environments or
    agents. usual_keys: metric -> keys of which only the usual meaning is known; where given, our own names count as
    keys too. usual_words: the metric that a key usually means by its words, asked last. conventions:
    standardisation of advantages, (r − mean) / (std + eps), where the settings do not say otherwise. settings: what
    it can be configured with, of several keys for one setting the preferred one first. version: whose defaults
    these are. configured: whether the keys of a configuration, "." between levels, are this trainer's. derive:
    further settings from the flat configuration and the settings read so far. defects: metrics that it logs
    wrongly, by version. windowed: whether a row is the mean over all steps since the row before. counters: keys
    that count the steps of rows of different kinds, that of the update first. trained_on: keys of the rollouts
    trained on that begin like those of an evaluation. leaves_files_of: another trainer
    whose files this one leaves, told apart by their keys. without_reward: what to say of a log without a reward,
    empty where it is refused. logs: kinds of logs that this trainer writes and prints. how_to_log: quantity -> how
    to have this trainer log it.
    """

    name: str
    title: str
    recognises: Callable[[Set[str]], bool]
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    patterns: Mapping[str, tuple[re.Pattern[str], ...]] = field(default_factory=dict)
    component: re.Pattern[str] | None = None
    define: Callable[[Columns, Settings, int], Definitions] | None = None
    no_term: Callable[[Columns, Settings], Mapping[str, Bools]] | None = None
    made: Callable[[Columns], Mapping[str, Made]] | None = None
    scoped: Callable[[Collection[str]], Scoped] | None = None
    usual_keys: Mapping[str, tuple[str, ...]] | None = None
    usual_words: Callable[[str], str | None] | None = None
    conventions: Settings = field(default_factory=dict)
    settings: tuple[Setting, ...] = ()
    version: str = ""
    configured: Callable[[Collection[str]], bool] | None = None
    derive: Callable[[Settings, Settings], Settings] | None = None
    defects: tuple[Defect, ...] = ()
    windowed: bool = False
    counters: tuple[str, ...] = ()
    trained_on: re.Pattern[str] | None = None
    leaves_files_of: str = ""
    without_reward: str = ""
    logs: tuple[LogKind, ...] = ()
    how_to_log: Mapping[str, str] = field(default_factory=dict)

    def metric(self, key: str, usual: bool = False) -> str | None:
        """The metric that this trainer logs as `key`; None if the key has no known definition.

        usual: whether the usual meaning of the key counts too, where it has no definition.
        """
        name = self._names.get(key)
        if name is None:
            name = next((name for name, forms in self.patterns.items() if any(f.fullmatch(key) for f in forms)), None)
        if name is None and self.component is not None and (match := self.component.fullmatch(key)):
            return ("component_std/" if match["what"] == "std" else "component/") + match["name"]
        if name is not None or not usual or self.usual_keys is None:
            return name
        if key in metrics.METRICS or key in metrics.LOGGED:
            return key
        name = self._usual_names.get(key)
        return self.usual_words(key) if name is None and self.usual_words is not None else name

    @cached_property
    def _names(self) -> dict[str, str]:
        return _by_key(self.keys)

    @cached_property
    def _usual_names(self) -> dict[str, str]:
        return _by_key(self.usual_keys or {})

    @property
    def defaults(self) -> dict[str, Any]:
        """The values of settings that are not given, by their keys."""
        return {setting.key: setting.default for setting in self.settings if setting.default is not None}

    def settings_of(self, logged: Settings, measured: Settings, known: Settings) -> dict[str, Any]:
        """Settings under our names: convention, then `measured`, then the configuration `logged`, then what is `known`.

        A setting that stands nowhere is absent, never a default.
        """
        configuration = dict(leaves(logged))
        settings: dict[str, Any] = {}
        for setting in self.settings:
            if setting.name and setting.name not in settings:
                value = configuration.get(setting.key.replace(".", "/"))
                settings |= {} if value is None else {setting.name: value}
        if self.derive is not None:
            settings.update(self.derive(configuration, settings))
        return {**self.conventions, **measured, **settings, **known}

    def definitions(self, columns: Columns, settings: Settings, window: int) -> Definitions:
        """The metric of each key of a log, with notes on what is assumed or proved.

        If two keys of a log are one metric, the preferred key is that metric, and the other keeps its own name. If only
        their words say so, none is preferred, and both keep their names.
        """
        defined = {key: name for key in columns if (name := self.metric(key, usual=True)) is not None}
        for name in set(defined.values()):
            same = [key for key, other in defined.items() if other == name]
            if len(same) > 1:
                ranked = sorted((self._rank(name, key), index) for index, key in enumerate(same))
                tied = ranked[0][0] == ranked[1][0]
                for _, index in ranked[0 if tied else 1 :]:
                    del defined[same[index]]
        notes: list[str] = []
        if self.define is not None:
            changed, notes = self.define(columns, settings, window)
            defined.update(changed)
        of_words = {name for key, name in defined.items() if self.metric(key) is None}
        assumed = ", ".join(sorted(of_words - {"step", "time", "epoch", "lr"}))
        if self.usual_keys and assumed:
            notes.append(f"the file does not define these; their usual meaning is assumed: {assumed}")
        return defined, notes

    def defects_in(self, columns: Columns, settings: Settings) -> list[Defect]:
        """What a log has of `defects`. columns: under the trainer's keys. settings: with NAME_version where known."""
        version, defects = settings.get(f"{self.name.replace('-', '_')}_version"), []
        for defect in self.defects:
            if any(key in columns or key.removeprefix("train/") in columns for key in defect.keys):
                seen = defect.seen(columns, settings)
                if seen or (seen is None and defect.in_version(version)):
                    defects.append(defect)
        return defects

    def with_terms(self, table: Columns, settings: Settings) -> dict[str, Floats]:
        """The table with a NaN that was written for want of a term as an absent value (`no_term`)."""
        absent = {} if self.no_term is None else self.no_term(table, settings)
        return {
            name: _made_absent(column, absent[name]) if name in absent else column for name, column in table.items()
        }

    def worked_out(self, columns: Columns, defined: Mapping[str, str]) -> dict[str, Made]:
        """Metrics that follow from several columns and are not among those `defined` (key -> metric)."""
        made = {} if self.made is None else self.made(columns)
        return {name: column for name, column in made.items() if name not in defined.values()}

    def _rank(self, name: str, key: str) -> int:
        keys = (name, *self.keys.get(name, ()), *(self.usual_keys or {}).get(name, ()))
        exact = next((keys.index(form) for form in (key, key.lower()) if form in keys), None)
        if exact is not None:
            return exact
        forms = self.patterns.get(name, ())
        return len(keys) + next((k for k, form in enumerate(forms) if form.fullmatch(key)), len(forms))


def _made_absent(column: Floats, rows: Bools) -> Floats:
    """The column with each NaN that was written in these rows (N,) as absent; infinities stay."""
    return np.where(rows & np.isnan(column), np.nan, column)


def with_prefix(key: str) -> tuple[str, str]:
    """The keys of a metric that is logged below train/: as it stands there, and without that common prefix."""
    return f"train/{key}", key


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
