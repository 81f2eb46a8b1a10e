"""Import paths of earlier versions, which go on working: each is the module that took its place.

`from grposcope.geometry import spectrum` gives the very module `grposcope.instruments.gradient.spectrum`. Type checkers
and editors, which run no code, follow the paths of today only; docs/api.md names both.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, cast

ALIASES = {
    "grposcope.allocation": "grposcope.lab.allocation",
    "grposcope.credit": "grposcope.lab.credit",
    "grposcope.diagnosis": "grposcope.instruments.diagnosis",
    "grposcope.dynamics.bandit": "grposcope.instruments.dynamics.bandit",
    "grposcope.dynamics.fit": "grposcope.instruments.dynamics.fit",
    "grposcope.dynamics.noise": "grposcope.instruments.dynamics.noise",
    "grposcope.dynamics.oscillator": "grposcope.instruments.dynamics.oscillator",
    "grposcope.dynamics.refresh": "grposcope.instruments.dynamics.refresh",
    "grposcope.dynamics.sampled_refresh": "grposcope.instruments.dynamics.sampled_refresh",
    "grposcope.errors": "grposcope.core.errors",
    "grposcope.geometry": "grposcope.instruments.gradient",
    "grposcope.instruments.page": "grposcope.runs_page",
    "grposcope.lint": "grposcope.instruments.lint",
    "grposcope.objectives": "grposcope.lab.objectives",
    "grposcope.policies": "grposcope.lab.policies",
    "grposcope.runs": "grposcope.logs",
    "grposcope.runs.run": "grposcope.core.run",
    "grposcope.tasks": "grposcope.lab.tasks",
    "grposcope.training": "grposcope.lab.train",
    "grposcope.ustat.limit": "grposcope.instruments.group_size.limit",
    "grposcope.ustat.moments": "grposcope.maths.moments",
    "grposcope.ustat.mse": "grposcope.instruments.group_size.mse",
    "grposcope.ustat.pass_at_k": "grposcope.maths.pass_at_k",
    "grposcope.ustat.planning": "grposcope.instruments.group_size.planning",
}
"""Earlier name of a module or package -> its name now; what lies below a package is found below its new name."""

SCATTERED = {
    "grposcope.records": {
        "Estimate": "grposcope.core.estimate.Estimate",
        "Rollouts": "grposcope.lab.rollout_batch.RolloutBatch",
        "rows_of_groups": "grposcope.lab.rollout_batch.rows_of_groups",
    },
}
"""Earlier modules whose names went to several: name -> what it is called now, imported when it is asked for."""

PACKAGES = frozenset(
    package
    for package in {name.rpartition(".")[0] for name in ALIASES if name.count(".") > 1} - ALIASES.keys()
    if not any(now.startswith(f"{package}.") for now in ALIASES.values())
)
"""Earlier packages, not there any more, whose modules went to several places."""


def _renamed(name: str) -> str | None:
    """The name now of a module by its earlier name; None for one that was not renamed."""
    head, rest = name, ""
    while head:
        if head in ALIASES:
            return ALIASES[head] + rest
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    return None


def _scattered(module: str) -> Callable[[str], Any]:
    """`__getattr__` of an earlier module whose names went to several."""

    def ask(name: str) -> Any:
        if name not in SCATTERED[module]:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, called = SCATTERED[module][name].rpartition(".")
        return getattr(importlib.import_module(home), called)

    return ask


def _part(parts: Mapping[str, str]) -> Callable[[str], Any]:
    """`__getattr__` of an earlier package whose modules went to several places."""

    def ask(name: str) -> Any:
        if name not in parts:
            raise AttributeError(f"this package has no module {name!r}; it has {', '.join(sorted(parts))}")
        return importlib.import_module(parts[name])

    return ask


class _Aliases:
    """Finds modules by their earlier names and hands out the modules of today: a finder of modules and their loader.

    Those two are protocols; their base classes in `importlib.abc` would cost every command 40 ms.
    """

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The place of a module of ours by its earlier name; None for any other."""
        if name in PACKAGES:
            return importlib.util.spec_from_loader(name, cast(Any, self), is_package=True)
        if name in SCATTERED:
            return importlib.util.spec_from_loader(name, cast(Any, self))
        now = _renamed(name) if name.startswith("grposcope.") else None
        there = importlib.util.find_spec(now) if now is not None else None
        return None if there is None else importlib.util.spec_from_loader(name, cast(Any, self), origin=there.origin)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module of today; None, which makes an empty one, for a package that went to several places."""
        now = _renamed(spec.name)
        if now is None:
            return None
        module = importlib.import_module(now)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing runs: the module is there, and keeps the name it has; a package of several places lists them."""
        named = module.__spec__.name if module.__spec__ is not None else ""
        if (own := self._specs.pop(named, None)) is not None:
            module.__spec__ = own
        if named in PACKAGES:
            parts = {name.rpartition(".")[2]: now for name, now in ALIASES.items() if name.startswith(f"{named}.")}
            listed = "\n".join(f"{module:16} {now}" for module, now in parts.items())
            module.__doc__ = f"Modules of earlier versions and their places now.\n\n{listed}"
            module.__dict__.update(__all__=sorted(parts), __getattr__=_part(parts), __dir__=lambda: sorted(parts))
        if named in SCATTERED:
            places = SCATTERED[named]
            module.__doc__ = f"Names of earlier versions and their places now: {places}"
            module.__dict__.update(__all__=sorted(places), __getattr__=_scattered(named))

    def get_code(self, name: str) -> CodeType | None:
        """The code of the module of today, for `python -m` with an earlier name."""
        spec = importlib.util.find_spec(_renamed(name) or "")
        get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
        return get_code(spec.name) if spec is not None and get_code is not None else None


def install() -> None:
    """Let imports by earlier names find the modules of today."""
    if not any(isinstance(finder, _Aliases) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Aliases())
