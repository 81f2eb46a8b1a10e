"""Packages that take seconds to import, imported only once something of them is used.

The modules behind `grposcope train` import torch at their top, and a wrong flag should not wait for that, nor should
the help where torch is not installed. Inside `deferred("torch")` an import of torch gives a `_DeferredModule`, and a
name that is imported from it a `_DeferredName`. Either imports the real package as soon as it is asked for anything;
all modules that hold such substitutes are then given what they stand for. A package that is not installed raises its
ModuleNotFoundError at that moment. A package that is imported already is not deferred.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_OF_IMPORTS = frozenset(
    f"__{name}__" for name in ("cached", "file", "loader", "package", "path", "spec", "warningregistry")
)
"""What the import system and `inspect` ask of every module; no use of it."""


@contextmanager
def deferred(*packages: str) -> Iterator[None]:
    """Within the block, imports of these packages cost nothing until something of them is used."""
    finder = _Finder([name for name in packages if name not in sys.modules])
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        _end()


class _DeferredModule(ModuleType):
    """A module that is imported when one of its attributes is asked for."""

    def __getattr__(self, name: str) -> Any:
        """An attribute of the real module; for an import statement that takes names from it, a `_DeferredName`."""
        own = object.__getattribute__(self, "__dict__")
        if name in own["_promised"]:  # the second question of the import statement
            own["_promised"].discard(name)
            return _DeferredName(self, name)
        if name in _OF_IMPORTS:
            raise AttributeError(name)
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":  # its first: is there such a name?
            own["_promised"].add(name)
            return None
        return _attribute(_real(self.__name__), name)


class _DeferredName:
    """A name that was taken from a module which is not imported yet; whatever is done with it is done with the real."""

    def __init__(self, module: _DeferredModule, name: str):
        self._module, self._name = module.__name__, name

    def _object(self) -> Any:
        return _attribute(_real(self._module), self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._object(), name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._object()(*arguments, **named)

    def __getitem__(self, key: Any) -> Any:
        return self._object()[key]

    def __or__(self, other: Any) -> Any:
        return self._object() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._object()

    def __eq__(self, other: object) -> bool:
        return bool(self._object() == (other._object() if isinstance(other, _DeferredName) else other))

    def __hash__(self) -> int:
        return hash(self._object())

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._object())

    def __subclasscheck__(self, kind: type) -> bool:
        return issubclass(kind, self._object())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._object(),)


class _Finder:
    """Finds the packages that wait, and what lies below them; it is their loader too."""

    def __init__(self, packages: Sequence[str]):
        self.packages = frozenset(packages)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """A substitute for a module of the packages; None for other modules."""
        if name.partition(".")[0] not in self.packages:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]  # a loader by its two methods

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The substitute."""
        module = _DeferredModule(spec.name)
        module.__dict__["_promised"] = set()
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: that is the point."""


def _end() -> None:
    """From now on imports are real; modules that hold substitutes keep them until one is used."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    for name in [name for name, module in sys.modules.items() if type(module) is _DeferredModule]:
        del sys.modules[name]


def _real(name: str) -> ModuleType:
    """The module itself; everybody who holds a substitute of its package is given the real one."""
    _end()
    module = importlib.import_module(name)
    package = name.partition(".")[0]
    for holder in list(sys.modules.values()):
        if holder is None or type(holder) is _DeferredModule:
            continue
        for key, value in list(getattr(holder, "__dict__", {}).items()):
            if type(value) is _DeferredModule and value.__name__.partition(".")[0] == package:
                holder.__dict__[key] = importlib.import_module(value.__name__)
            elif type(value) is _DeferredName and value._module.partition(".")[0] == package:
                holder.__dict__[key] = _attribute(importlib.import_module(value._module), value._name)
    return module


def _attribute(module: ModuleType, name: str) -> Any:
    """An attribute of a module, or a module below it."""
    try:
        return getattr(module, name)
    except AttributeError:
        try:
            return importlib.import_module(f"{module.__name__}.{name}")
        except ModuleNotFoundError:
            raise ImportError(f"cannot import name {name!r} from {module.__name__!r}", name=module.__name__) from None
