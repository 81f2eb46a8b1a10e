"""The sections of a page: to add one, write a file with a function of the runs and name the function in SECTIONS."""

from collections.abc import Callable, Sequence

from grposcope.report.elements import Section
from grposcope.report.sections import (
    allocation,
    credit,
    curves,
    dead_groups,
    diagnosis,
    dynamics,
    geometry,
    group_size,
    learning,
    rollouts,
    run_settings,
    timing,
)
from grposcope.runs.run import Run

SECTIONS: tuple[Callable[[Sequence[Run]], Section | None], ...] = (
    diagnosis.section,
    learning.section,
    curves.components,
    dynamics.section,
    dead_groups.section,
    allocation.section,
    curves.spread,
    curves.policy,
    curves.completions,
    curves.update,
    curves.critic,
    geometry.section,
    curves.geometry,
    group_size.section,
    credit.section,
    timing.section,
    rollouts.section,
    curves.other,
    run_settings.section,
)
"""Sections in the order of the page. Each returns None where it has nothing to show about these runs."""
