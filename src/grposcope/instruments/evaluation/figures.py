"""The chart of an evaluation: pass@k with its interval, by task and model."""

from __future__ import annotations

from typing import Any

import altair as alt

from grposcope.core.answer import Figure
from grposcope.core.text import visible
from grposcope.instruments.evaluation.scores import EvaluationScores
from grposcope.render import charts as base


def of_pass_at_k(evaluated: EvaluationScores, k: int) -> Figure | None:
    """A point with its interval per arm and task; None where there is nothing to draw."""
    same = [score for score in evaluated.scores if score.passes[k].low == score.passes[k].low]
    if not same:
        return None
    data: dict[str, list[Any]] = {
        "task": [visible(score.task, 60) for score in same],
        "model": [score.arm for score in same],
        "value": [score.passes[k].value for score in same],
        "low": [score.passes[k].low for score in same],
        "high": [score.passes[k].high for score in same],
    }
    arms, tasks = list(evaluated.arms), dict.fromkeys(score.task for score in evaluated.scores)
    across = alt.X("value:Q", title=None, axis=alt.Axis(format="~%")).scale(domain=[0, 1])
    along = alt.Y("task:N", sort=[visible(task, 60) for task in tasks], title=None)
    offset = alt.YOffset("model:N", sort=arms)
    shades = alt.Color("model:N", scale=alt.Scale(domain=arms, range=[base.colour(i) for i in range(len(arms))]),
                       legend=None if len(arms) == 1 else alt.Legend())  # fmt: skip
    marks = base.dataset("scores").encode(y=along, yOffset=offset, color=shades)
    layers = [
        marks.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q").scale(domain=[0, 1]), x2="high:Q"),
        marks.mark_point(filled=True, size=60).encode(
            x=across,
            tooltip=["task:N", "model:N", *(alt.Tooltip(f"{n}:Q", format=".1%") for n in ("value", "low", "high"))],
        ),
    ]
    height = max(80, 22 * len(same) + 20)
    return base.figure(f"pass_at_{k}", f"pass@{k}", layers, {"scores": data}, height=height,
                       caption="A point per model with its 95% interval.")  # fmt: skip
