"""The gallery: a simulated run for every fault that a log shows, named by `diagnose`; pictures small; page in step."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from grposcope.faults.catalogue import faults
from grposcope.instruments.diagnosis import diagnose
from grposcope.logs import read

ROOT = Path(__file__).parents[1]
GALLERY: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "failures.py"))
SHOWN = [name for name, fault in faults().items() if fault.log is not None]


def test_every_fault_of_a_log_has_a_run_and_a_small_picture() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    assert set(GALLERY["FAILURES"]) == set(SHOWN)
    for name in SHOWN:
        picture = ROOT / "docs" / "pictures" / "failures" / f"{name.replace(' ', '-')}.svg"
        assert picture.exists(), f"run docs/failures.py for {picture.name}, then docs/build.py"
        assert picture.stat().st_size < 30_000
        assert f"pictures/failures/{picture.name})" in page


@pytest.mark.parametrize("name", SHOWN)
def test_every_fault_is_named_on_the_run_that_has_it(tmp_path: Path, name: str) -> None:
    GALLERY["named"](tmp_path / "faulty", name)


def test_none_is_named_on_the_healthy_run(tmp_path: Path) -> None:
    """The same columns without any change: only then is a finding due to its change."""
    run = read(GALLERY["record"](tmp_path, "healthy"))
    present = [finding for finding in diagnose(run) if finding.status == "present"]
    assert not [finding.fault for finding in present if finding.grade != "note" or finding.fault in SHOWN]
    with pytest.raises(SystemExit, match="is not named"):
        GALLERY["named"](tmp_path / "healthy", SHOWN[0], "healthy")
