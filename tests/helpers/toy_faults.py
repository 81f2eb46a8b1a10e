"""A fault of a test's own in the catalogue: one file in a family, as CONTRIBUTING says, and nothing else."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from grposcope.faults import catalogue


def add(folder: Path, patch: pytest.MonkeyPatch, family: str, name: str, source: str) -> None:
    """Let `family` have a further file NAME.py with this source, until the test ends."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(source)
    package = importlib.import_module(f"grposcope.faults.{family}")
    patch.setattr(package, "__path__", [*package.__path__, str(folder)])
    patch.delitem(sys.modules, f"grposcope.faults.{family}.{name}", raising=False)
    patch.setattr(catalogue, "faults", _fresh(catalogue.faults))
    patch.setattr(catalogue, "log_tests", _fresh(catalogue.log_tests))
    patch.setattr(catalogue, "settings_checks", _fresh(catalogue.settings_checks))
    patch.setattr(catalogue, "_modules", _fresh(catalogue._modules))


def _fresh(cached):  # type: ignore[no-untyped-def]
    """The same function without what it remembers."""
    from functools import cache

    return cache(cached.__wrapped__)
