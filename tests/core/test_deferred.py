"""Packages that are imported once something of them is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from grposcope.core.deferred_imports import _DeferredModule, _DeferredName, deferred

USER = """
import heavy
import heavy.part.deep as deep
from heavy import Thing, part
from heavy.part import tool


def made():
    return Thing()


def same(value):
    return isinstance(value, Thing), deep.NUMBER, heavy.NUMBER, part.deep.NUMBER, tool()
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `heavy` and a module `user` of it, neither imported, both gone afterwards."""
    (tmp_path / "heavy" / "part").mkdir(parents=True)
    (tmp_path / "heavy" / "__init__.py").write_text("NUMBER = 1\nclass Thing:\n    size = 3\n")
    (tmp_path / "heavy" / "part" / "__init__.py").write_text("from heavy.part import deep\ndef tool():\n    return 7\n")
    (tmp_path / "heavy" / "part" / "deep.py").write_text("NUMBER = 2\n")
    (tmp_path / "user.py").write_text(USER)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    before = list(sys.meta_path)
    yield tmp_path
    assert sys.meta_path == before
    for name in [name for name in sys.modules if name.partition(".")[0] in ("heavy", "user", "nowhere")]:
        del sys.modules[name]


def user() -> ModuleType:
    with deferred("heavy", "nowhere"):
        module = importlib.import_module("user")
    assert "heavy" not in sys.modules
    assert type(vars(module)["heavy"]) is _DeferredModule
    assert type(vars(module)["Thing"]) is _DeferredName
    return module


def test_nothing_is_imported_until_something_is_used_and_then_every_holder_has_the_real_thing(packages: Path) -> None:
    module = user()
    thing = module.made()
    heavy = sys.modules["heavy"]
    assert type(thing) is heavy.Thing
    assert module.same(thing) == (True, 2, 1, 2, 7)
    assert vars(module)["Thing"] is heavy.Thing
    assert vars(module)["deep"] is sys.modules["heavy.part.deep"]
    assert not any(type(value) in (_DeferredModule, _DeferredName) for value in vars(module).values())


def test_what_is_kept_elsewhere_does_as_the_real_thing(packages: Path) -> None:
    kept = user().Thing
    import heavy

    assert kept.size == 3
    assert kept == heavy.Thing
    assert {heavy.Thing: 5}[kept] == 5
    assert isinstance(heavy.Thing(), kept)
    assert issubclass(heavy.Thing, kept)
    assert isinstance(None, kept | None)

    class Special(kept):
        pass

    assert Special.__mro__[1] is heavy.Thing


def test_use_inside_the_block_imports_at_once(packages: Path) -> None:
    with deferred("heavy"):
        import heavy

        assert heavy.NUMBER == 1
        assert type(sys.modules["heavy"]) is ModuleType


def test_a_package_that_is_not_there_is_missed_when_it_is_used(packages: Path) -> None:
    with deferred("nowhere"):
        import nowhere.below
        from nowhere import name
    with pytest.raises(ModuleNotFoundError) as missed:
        name()
    assert missed.value.name == "nowhere"
    with pytest.raises(ModuleNotFoundError):
        _ = nowhere.below.anything


def test_a_name_that_the_package_does_not_have_is_an_import_error(packages: Path) -> None:
    with deferred("heavy"):
        from heavy import wrong
    with pytest.raises(ImportError, match="cannot import name 'wrong' from 'heavy'"):
        wrong()


def test_what_is_imported_already_stays_as_it_is(packages: Path) -> None:
    import heavy

    with deferred("heavy"):
        import heavy as again
    assert again is heavy
