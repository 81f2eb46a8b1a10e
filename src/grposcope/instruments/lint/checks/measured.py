"""Metrics that the trainer of an earlier run logs wrongly in its version, so that nothing is concluded from them."""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold
from grposcope.logs.trainers import DEFECTS


def wrong_metrics(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """What the earlier run logged wrongly, and so will this one unless the trainer is of another version."""
    run = known.run
    if run is None or run.reading is None or run.meta.engine != config.dialect.name:
        yield Untold(f"this needs the log of an earlier run of {config.dialect.title}")
        return
    for name in run.reading.defects:
        found = next(one for one in DEFECTS if (one.name, one.engine) == (name, run.meta.engine))
        fixed = "no version logs it correctly yet" if found.fixed is None else f"use {_version(found.fixed)} or later"
        yield Fault("note", f"{found.keys[0]} is logged wrongly", f"it {found.what} ({found.thread})",
                    f"do not rely on it; {fixed}")  # fmt: skip


def _version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
