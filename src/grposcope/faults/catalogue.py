"""All faults there are: every file of a family below this folder with a FAULT. To add one, write a file."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType, ModuleType
from typing import TypeVar

from grposcope.core.errors import UserError
from grposcope.core.fault import Fault, LogTest, Proof, SettingsCheck
from grposcope.core.named_settings import nearest
from grposcope.signs.rollouts.claims import texts

FAMILIES = ("reward", "groups", "length", "agents", "policy", "update", "sampler", "pipeline", "record")
"""Folders of faults, in the order in which lists show them."""

T = TypeVar("T")


@cache
def faults() -> Mapping[str, Fault]:
    """Name -> fault, causes before what follows from them: the first that is present is the headline, unless another
    explains it."""
    faults_found = sorted((module.FAULT for module in _modules()), key=lambda fault: (fault.rank, fault.name))
    names = [_key(fault.name) for fault in faults_found]
    if twice := [name for name in names if names.count(name) > 1]:
        files = [module.__name__ for module in _modules() if _key(module.FAULT.name) == twice[0]]
        raise ValueError(f"two files of faults are called {twice[0]!r}: {' and '.join(files)}; rename one")
    return MappingProxyType({fault.name: fault for fault in faults_found})


@cache
def log_tests() -> tuple[LogTest, ...]:
    """The tests of logs, each once: some tell several faults apart."""
    return _distinct(fault.log for fault in faults().values())


@cache
def settings_checks() -> tuple[SettingsCheck, ...]:
    """The checks of settings, each once: some tell several faults apart."""
    return _distinct(fault.settings for fault in faults().values())


def seen_in_runs() -> tuple[str, ...]:
    """Names of the faults that a log, or the texts that are recorded beside it, may show: what `diagnose` names."""
    return tuple(name for name, fault in faults().items() if fault.log is not None or texts.PROOF in fault.rollouts)


def seen_in_settings() -> tuple[str, ...]:
    """Names of the faults that settings may show."""
    return tuple(name for name, fault in faults().items() if fault.settings is not None)


@cache
def proofs() -> tuple[Proof, ...]:
    """The claims that faults break, each once, in the order of the first fault that breaks it."""
    return _distinct(proof for fault in faults().values() for proof in fault.rollouts)


def fault(name: str) -> Fault:
    """The fault of this name, in lower case with spaces or hyphens; UserError with the nearest name for any other."""
    by_key = {_key(each): fault for each, fault in faults().items()}
    if _key(name) not in by_key:
        raise UserError(f"no fault is called {name!r}{nearest(name, list(faults()))}; grposcope explain lists them all")
    return by_key[_key(name)]


def family(fault: Fault) -> str:
    """The folder of a fault."""
    return _module(fault).__name__.split(".")[-2]


def by_family() -> dict[str, list[Fault]]:
    """Family -> its faults, in the order of their ranks; families without any are left out."""
    every = {name: [each for each in faults().values() if family(each) == name] for name in FAMILIES}
    return {name: members for name, members in every.items() if members}


def text(fault: Fault) -> str:
    """The docstring of the file of a fault, which `faults.pages` reads."""
    return (_module(fault).__doc__ or "").strip()


def minor() -> frozenset[str]:
    """Faults that say that nothing happens rather than that something goes wrong."""
    return frozenset(name for name, fault in faults().items() if fault.minor)


@cache
def _modules() -> tuple[ModuleType, ...]:
    """The modules of all families that have a FAULT; the path of a family may have further folders."""
    folders = [importlib.import_module(f"{__package__}.{family}") for family in FAMILIES]
    names = [
        f"{folder.__name__}.{module.name}" for folder in folders for module in pkgutil.iter_modules(folder.__path__)
    ]
    modules = [importlib.import_module(name) for name in names]
    return tuple(module for module in modules if hasattr(module, "FAULT"))


def _module(fault: Fault) -> ModuleType:
    name = next(module.__name__ for module in _modules() if module.FAULT is fault)
    return sys.modules[name]


def _distinct(tests: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(test for test in tests if test is not None))


def _key(name: str) -> str:
    return name.lower().replace("-", " ").replace("_", " ").strip()
