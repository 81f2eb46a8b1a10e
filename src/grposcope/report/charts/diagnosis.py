"""Charts of what the diagnosis flagged: a metric, with the onset of each failure mode marked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from grposcope.report.charts import base
from grposcope.report.elements import Figure
from grposcope.runs.run import Run


def marked(run: Run, name: str, modes: Mapping[str, int | None]) -> Figure | None:
    """The curve of a metric with a dashed line at the onset of each failure mode; None without finite values."""
    figure = base.curve(name, [run])
    if figure is None:
        return None
    marks = [(mode, step) for mode, step in modes.items() if step is not None]
    spec = dict(figure.spec)
    data = dict(figure.data)
    caption = figure.caption
    if marks:
        spec["layer"] = [
            *spec["layer"],
            {
                "data": {"name": "onset"},
                "mark": {"type": "rule", "color": "var(--alarm)", "strokeDash": [4, 3], "strokeWidth": 1.5},
                "encoding": {
                    "x": base.step_axis(),
                    "tooltip": [{"field": "mode", "title": "since"}, {"field": "step", "title": "step"}],
                },
            },
        ]
        data["onset"] = {"step": [float(step) for _, step in marks], "mode": [mode for mode, _ in marks]}
        caption = f"Dashed: {', '.join(f'{mode} from step {step:,}' for mode, step in marks)}. {caption}"
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return replace(figure, name=f"diagnosis-{plain}", spec=spec, data=data, caption=caption)
