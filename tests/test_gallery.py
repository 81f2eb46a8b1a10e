"""The gallery of failures: a run for every mode, named by `diagnose`; pictures small; pages in step."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MODES = [name for name, fault in faults().items() if fault.log is not None]
GALLERY: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "failures.py"))


def test_every_mode_has_an_entry_and_a_small_picture() -> None:
    page = (ROOT / "docs" / "failures.md").read_text()
    assert list(GALLERY["FAILURES"]) == MODES
    for mode in MODES:
        picture = ROOT / "docs" / "pictures" / "failures" / f"{mode.replace(' ', '-')}.svg"
        assert picture.stat().st_size < 30_000
        assert f"pictures/failures/{picture.name})" in page
        assert f"## {mode[0].upper()}{mode[1:]}\n" in page


@pytest.mark.slow
def test_every_mode_is_named_and_the_page_is_current(tmp_path: Path) -> None:
    found = {mode: GALLERY["named"](tmp_path / mode.replace(" ", "-"), mode)[1] for mode in MODES}
    assert GALLERY["page"](found) == (ROOT / "docs" / "failures.md").read_text(), "run: python docs/failures.py"


@pytest.mark.slow
def test_a_healthy_run_has_no_failure(tmp_path: Path) -> None:
    """The same columns without any change: only then is a flag of a mode due to its change."""
    from grposcope.instruments.diagnosis import diagnose
    from grposcope.logs import read

    GALLERY["FAILURES"]["healthy"] = GALLERY["Failure"](lambda rng: {}, (), "", "")
    run = read(GALLERY["record"](tmp_path, "healthy"))
    assert not [finding.fault for finding in diagnose(run) if finding.status == "present" and finding.grade != "note"]
