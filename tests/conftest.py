"""Fixtures that all tests may use, and --hide, which takes a folder of instruments away."""

from __future__ import annotations

import gc
import importlib.util
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import hiding

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait leave the cores to other tests; torch reads it
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy reads it; processes of xdist have it from here

import hypothesis
import pytest
import torch
from places import ROOT, TESTS


def pytest_addoption(parser: pytest.Parser) -> None:
    """--hide NAME."""
    parser.addoption(
        "--hide",
        action="append",
        default=[],
        metavar="NAME",
        help="work as if this folder of instruments/ were not there; tests that need it are skipped and counted",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hide what --hide names, before anything of it is imported; examples may be drawn slowly, as on a busy machine."""
    patient = hypothesis.settings.default
    assert patient is not None
    hypothesis.settings.register_profile(
        "patient", patient, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("patient")
    if config.getoption("--hide"):
        hiding.hide(config.getoption("--hide"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The tests of a hidden folder are not there either."""
    if any(collection_path == TESTS / "instruments" / name for name in config.getoption("--hide")):
        return True
    return None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file of tests that needs a hidden folder is not imported, and its tests are skipped."""
    hidden = set(parent.config.getoption("--hide"))
    if hidden and (absent := hidden & hiding.needs(module_path)):
        return NeedingFile.from_parent(parent, path=module_path, absent=sorted(absent))
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Single tests that are marked as needing a hidden folder are skipped."""
    for item in items:
        needed = {name for mark in item.iter_markers("needs") for name in mark.args}
        if absent := needed.intersection(config.getoption("--hide")):
            item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(sorted(absent))}"))
    if half := os.environ.get("SLOW_TESTS_HALF"):  # of the files, as `.ci/run` asks for on a slow machine
        of_half = [not item.get_closest_marker("slow") or half_of(item.path) == int(half) for item in items]
        config.hook.pytest_deselected(items=[item for item, taken in zip(items, of_half, strict=True) if not taken])
        items[:] = [item for item, taken in zip(items, of_half, strict=True) if taken]


def half_of(path: Path) -> int:
    """0 or 1, by the name of a file of tests."""
    return zlib.crc32(path.name.encode()) >> 10 & 1


def pytest_collection_finish() -> None:
    """What is imported by now stays: the garbage collector need not look through it after every test."""
    gc.freeze()


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> str:
    """How many tests --hide takes away, besides those of what is hidden."""
    hidden = set(config.getoption("--hide"))
    marked = [name for item in items for mark in item.iter_markers("needs") for name in mark.args if name in hidden]
    absent = sum(isinstance(item, NeedingTest) for item in items) + len(marked)
    return f"{absent} skipped for what is hidden" if hidden else ""


class NeedingFile(pytest.File):
    """A file of tests that cannot be imported, since it needs the folders `absent`."""

    def __init__(self, *, absent: list[str], **more: Any):
        super().__init__(**more)
        self.absent = absent

    def collect(self) -> Iterable[pytest.Item]:
        """Its tests by name."""
        return [NeedingTest.from_parent(self, name=name) for name in hiding.tests_in(self.path)]


class NeedingTest(pytest.Item):
    """A test that is skipped for what it needs."""

    def runtest(self) -> None:
        """Skip it."""
        assert isinstance(self.parent, NeedingFile)
        pytest.skip(f"needs {', '.join(self.parent.absent)}")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Data sets and run logs kept beside the repository, in ../shared/data; not part of it."""
    path = Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("needs the data sets beside the repository, in ../shared/data")
    return path


@pytest.fixture(scope="session")
def build() -> ModuleType:
    """docs/build.py, which makes the generated pages."""
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Small arrays gain nothing from more, and tests that share a machine lose a lot."""
    torch.set_num_threads(1)
