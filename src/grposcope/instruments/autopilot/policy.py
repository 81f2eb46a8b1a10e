"""What an autopilot may do: a policy as data, from a line of text or a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from grposcope.core import yaml_files
from grposcope.core.errors import UserError
from grposcope.core.text import visible
from grposcope.maths import corrections

MODES = ("off", "advise", "act")
"""Nothing; only say what would be done; do it."""

MONITORS = ("reward", "heldout", "cut", "dead", "not_finite")
"""What is watched; `monitors` says what each means."""


@dataclass(frozen=True)
class AutopilotPolicy:
    """Limits of an autopilot.

    mode: a name of MODES. alpha: largest chance of a needless alarm over the whole run, all monitors together. fall:
    share of the range of rewards by which the mean may lie below its best level. monitors: names of MONITORS, with
    commas. rollbacks, changes: most of each in a run. lr_cut: factor on the learning rate at a change. lr_least:
    smallest factor it may come to. raise_after: batches for which the reward must hold before a rate that was cut is
    raised again, 0 for never. interval: whether the refresh interval may be cut before the learning rate is.
    correction: importance correction that rollouts of earlier weights get, empty for none. tokens: largest factor on
    the token limit where most completions are cut. stop: whether a run may be ended.
    """

    mode: str = "act"
    alpha: float = 0.05
    fall: float = 0.1
    monitors: str = ",".join(MONITORS)
    rollbacks: int = 3
    changes: int = 3
    lr_cut: float = 0.25
    lr_least: float = 0.01
    raise_after: int = 0
    interval: bool = True
    correction: str = "sequence_cap:2"
    tokens: float = 2.0
    stop: bool = True

    @property
    def acts(self) -> bool:
        """Whether it does more than say."""
        return self.mode == "act"

    @property
    def watched(self) -> tuple[str, ...]:
        """Names of the monitors."""
        return tuple(name.strip() for name in self.monitors.split(",") if name.strip())


def parse(text: str) -> AutopilotPolicy:
    """The policy of "advise", "act", "act:fall=0.2,rollbacks=1", or of a YAML file; UserError for anything else."""
    name, _, rest = text.partition(":")
    if name in MODES:
        return _checked({"mode": name, **_pairs(text, rest)}, f"autopilot {visible(text)!r}")
    if not text.endswith((".yaml", ".yml")):
        raise UserError(
            f"autopilot is {visible(text)!r}; give one of {', '.join(MODES)}, with limits such as act:rollbacks=1, or "
            "a YAML file with them"
        )
    file = yaml_files.read(Path(text))
    if not isinstance(file.content, Mapping):
        raise UserError(f"{file.path} holds no settings of a policy; give a file with lines such as rollbacks: 1")
    content = dict(file.content)
    for key in ("monitors",):
        if isinstance(content.get(key), list):
            content[key] = ",".join(map(str, content[key]))
    if content.get("mode") is False:  # YAML 1.1 reads off as that
        content["mode"] = "off"
    unknown = [key for key in content if key not in _KNOWN]
    if unknown:
        raise UserError(f"{file.where(str(unknown[0]))}: {_unknown(str(unknown[0]))}")
    return _checked(content, str(file.path))


_ALLOWED = {**dict.fromkeys(("rollbacks", "changes", "raise_after"), "0 or more"), "tokens": "between 1 and 64"}

_KNOWN = {field.name: type(field.default) for field in fields(AutopilotPolicy)}


def _unknown(key: str) -> str:
    return f"a policy has no setting {visible(key)!r}; its settings are {', '.join(_KNOWN)}"


def _pairs(text: str, rest: str) -> dict[str, Any]:
    """key=value pairs with commas between; monitors are joined by +."""
    settings: dict[str, Any] = {}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(
                f"autopilot {visible(text)!r}: {visible(pair)!r} is not a limit; write key=value, such as rollbacks=1"
            )
        settings[key.strip()] = value.strip().replace("+", ",")
    return settings


def _checked(content: Mapping[str, Any], where: str) -> AutopilotPolicy:
    """The policy of these values; UserError for one that is unknown, of another type, or out of bounds."""
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key not in _KNOWN:
            raise UserError(f"{where}: {_unknown(key)}")
        try:
            values[key] = _typed(_KNOWN[key], value)
        except (ValueError, TypeError, OverflowError):
            raise UserError(f"{where}: {key} is {visible(str(value))!r}; it must be a {_KNOWN[key].__name__}") from None
    policy = AutopilotPolicy(**values)
    bounds = {
        "alpha": 0 < policy.alpha < 1,
        "fall": 0 < policy.fall < 1,
        "lr_cut": 0 < policy.lr_cut < 1,
        "lr_least": 0 < policy.lr_least <= 1,
        "rollbacks": policy.rollbacks >= 0,
        "changes": policy.changes >= 0,
        "raise_after": policy.raise_after >= 0,
        "tokens": 1 <= policy.tokens <= 64,
    }
    for key, bound in bounds.items():
        if not bound:
            allowed = _ALLOWED.get(key, "between 0 and 1")
            raise UserError(f"{where}: {key} is {getattr(policy, key)}; it must be {allowed}")
    if policy.mode not in MODES:
        raise UserError(f"{where}: mode is {visible(policy.mode)!r}; it must be one of {', '.join(MODES)}")
    if policy.correction:
        corrections.named(policy.correction)
    for name in policy.watched:
        if name not in MONITORS:
            raise UserError(f"{where}: there is no monitor {visible(name)!r}; there are {', '.join(MONITORS)}")
    if not policy.watched:
        raise UserError(f"{where}: a policy needs a monitor; there are {', '.join(MONITORS)}")
    if policy.acts and not (policy.rollbacks or policy.changes or policy.stop):
        raise UserError(
            f"{where}: the policy allows no rollback, no change and no stop; use mode advise, which only tells"
        )
    return policy


def _typed(kind: type, value: Any) -> Any:
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return value if isinstance(value, bool) else words.get(str(value).lower()) if str(value).lower() in words else (
            _refuse()
        )  # fmt: skip
    if kind is str:
        return str(value)
    if isinstance(value, bool):
        return _refuse()
    number = float(value)
    if kind is int:
        return int(number) if number == int(number) else _refuse()
    return number


def _refuse() -> Any:
    raise ValueError
