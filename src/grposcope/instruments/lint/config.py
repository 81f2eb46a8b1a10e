"""The settings of a run that has not begun, as a trainer would take them, and what is known beside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.core.run import Run
from grposcope.instruments.stability.stability import UpdateRule
from grposcope.logs.trainers import TRAINERS

if TYPE_CHECKING:
    from grposcope.instruments.gradient.probe_record import ProbeRecord


@dataclass(frozen=True)
class Dialect:
    """How one trainer writes its settings.

    name: as in `logs.trainers.TRAINERS` where that trainer's logs are read, too. version: whose defaults these are.
    defaults: key, with "." between levels, -> the value where it is not given. recognises: whether keys are this
    trainer's. names: our name -> its keys, where `TRAINERS` does not say them.
    """

    name: str
    title: str
    version: str
    defaults: Mapping[str, Any]
    recognises: Callable[[Collection[str]], bool]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainerConfig:
    """What a file says of the settings of a run.

    source: the file. form: what it was read as, in words. given: key as the trainer writes it, "." between levels, ->
    value. lines: key -> its line. opaque: keys whose value is an expression that only running the code would tell; no
    default is assumed for them. partial: whether more settings may be given than can be read, so that no default is
    assumed at all. reward_functions: how many, None if it is not said. adapters: whether adapters (LoRA)
    are trained rather than all weights, None if it is not said. notes: what the reader assumed, a sentence each.
    resolved: whether these are the arguments of a trainer that had started, which had filled in those that follow.
    """

    source: Path
    form: str
    dialect: Dialect
    given: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    opaque: Collection[str] = ()
    partial: bool = False
    reward_functions: int | None = None
    adapters: bool | None = None
    notes: tuple[str, ...] = ()
    resolved: bool = False

    def get(self, key: str) -> Any:
        """The value of one of the trainer's keys, its default where it is not given; None if it is not known."""
        if key in self.opaque:
            return None
        value = self.given.get(key)
        return value if value is not None or self.partial else self.dialect.defaults.get(key)

    def says(self, key: str) -> bool:
        """Whether the file gives this key, be it by an expression."""
        return self.given.get(key) is not None or key in self.opaque

    def whole(self, key: str) -> int | None:
        """The value of a key that has to be a whole number; None if it is not known or no whole number."""
        value = self.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, key: str) -> float | None:
        """The value of a key that has to be a number; None if it is not known or none."""
        value = self.get(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def on(self, key: str) -> bool:
        """Whether a switch is known to be on."""
        return self.get(key) is True

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The settings that mean the same in every trainer, by our names (group, lr, kl, …); absent if not known."""
        assumed = {} if self.partial else self.dialect.defaults
        values = {**assumed, **{key: value for key, value in self.given.items() if value is not None}}
        known = {key.replace(".", "/"): value for key, value in values.items() if key not in self.opaque}
        ours = {
            name: value
            for name, keys in self.dialect.names.items()
            for value in [next((known[key] for key in keys if known.get(key) is not None), None)]
            if value is not None
        }
        trainer = TRAINERS.get(self.dialect.name)
        return ours if trainer is None else {**trainer.settings(known, {}, {}), **ours}

    @property
    def group(self) -> int | None:
        """Rollouts per prompt, G; None if it is not known."""
        value = self.settings.get("group")
        return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Known:
    """What is known of the task and the machine beside the settings; None for what is not.

    success: probability that a rollout of a typical prompt is rewarded. run: an earlier run on the same task. probe: a
    probe of the model on the task. world: processes that train. rule: update rule of the earlier run with its
    curvature κ, `rule_source`: where κ comes from, or why there is none.
    """

    success: float | None = None
    run: Run | None = None
    probe: ProbeRecord | None = None
    world: int | None = None
    rule: UpdateRule | None = None
    rule_source: str = ""
