"""The sections of a page, in order. Each is a function of the runs; None where it has nothing to show."""

from collections.abc import Callable, Sequence

from grposcope.report.blocks import Section
from grposcope.report.sections import (
    clock,
    curves,
    dead_groups,
    diagnosis,
    dynamics,
    geometry,
    group_size,
    learning,
    rollouts,
    settings,
)
from grposcope.runs.table import Run

SECTIONS: tuple[Callable[[Sequence[Run]], Section | None], ...] = (
    diagnosis.section,
    learning.section,
    dynamics.section,
    dead_groups.section,
    curves.spread,
    curves.policy,
    curves.completions,
    curves.update,
    geometry.section,
    curves.geometry,
    group_size.section,
    clock.section,
    rollouts.section,
    curves.other,
    settings.section,
)
