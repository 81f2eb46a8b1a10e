"""What is said of what each reward and constraint moves of the weights."""

from __future__ import annotations

from typing import Any

from grposcope.core.answer import Table
from grposcope.core.text import visible
from grposcope.instruments.rewards.found import GradientParts
from grposcope.instruments.rewards.wording import shown_share, shown_value
from grposcope.maths.intervals import Z


def notes(moved: GradientParts | None) -> list[str]:
    """Who moves the weights against the update, and which two pull against each other; sure ones alone."""
    if moved is None:
        return []
    said = [
        f"{visible(name, 40)} opposes the update: its share of the gradient is {shown_share(share, 1)}."
        for name, share in zip(moved.names, moved.shares, strict=True)
        if share.value + Z * share.se < 0
    ]
    for first, second, cosine in moved.against():
        said.append(
            f"The gradients of {visible(first, 40)} and {visible(second, 40)} oppose each other: their cosine is "
            f"{shown_value(cosine)}."
        )
    return said


def tables(moved: GradientParts | None) -> list[Table]:
    """Shares of the gradient and cosines; none where nothing is known of the gradient."""
    if moved is None:
        return []
    names = [visible(name, 60) for name in moved.names]
    rows = [
        (name, shown_share(share, 1),
         *("–" if j == k else shown_value(moved.cosine(j, k)) for k in range(len(names))))
        for j, (name, share) in enumerate(zip(names, moved.shares, strict=True))
    ]  # fmt: skip
    count, steps = len(moved.steps), f"{moved.steps[0]} to {moved.steps[-1]}" if moved.steps else ""
    pooled = f" Of {count} probes at steps {steps}, added up," if count > 1 else " Of"
    return [Table(
        "What each reward moves", ("reward", "of the gradient", *(f"cosine with {name}" for name in names)), rows,
        "Of the gradient: ⟨g_j, g⟩/‖g‖², shares that sum to 1; below 0, a reward opposes the update. Products "
        "are those of different prompts, without the noise of a prompt's own rollouts; ± is half a 95% interval."
        f"{pooled} {moved.prompts:,} prompts.",
    )]  # fmt: skip


def document(moved: GradientParts | None) -> dict[str, Any] | None:
    """The same as JSON."""
    if moved is None:
        return None
    names = moved.names
    return {
        "shares": dict(zip(names, moved.shares, strict=True)),
        "cosines": [
            {"first": names[j], "second": names[k], "value": cosine} for (j, k), cosine in moved.cosines.items()
        ],
        "prompts": moved.prompts,
        "steps": list(moved.steps),
    }
