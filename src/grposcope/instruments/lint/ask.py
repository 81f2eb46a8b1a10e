"""The catalogue asked of settings, or of the file that they are in."""

from __future__ import annotations

from pathlib import Path

from grposcope.core.finding import Finding
from grposcope.core.settings import Settings
from grposcope.faults import judge_settings
from grposcope.faults.known_task import Known
from grposcope.instruments.lint.read import read


def lint(config: str | Path | Settings, known: Known | None = None) -> tuple[Finding, ...]:
    """All findings on settings or the file with them: the faults that are present, the worst first, those that cannot
    be told, and those that are excluded; `known`: what is known beside them.

    UserError where a file has no settings.
    """
    return judge_settings.lint(config if isinstance(config, Settings) else read(Path(config)), known)
