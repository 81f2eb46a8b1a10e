"""Clip ranges that clamp every token, that nothing reads, or that never act."""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.instruments.lint.checks.derived import ACTOR, interval
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold


def cispo_clamp(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """TRL's cispo clamps the ratio itself at epsilon_high, whose default is a distance from 1."""
    if config.get("loss_type") != "cispo":
        return
    key = "epsilon_high" if config.says("epsilon_high") else "epsilon"
    limit = config.number(key)
    if limit is None:
        yield Untold(f"{key} is not known")
    elif limit < 1:
        given = "" if config.says("epsilon_high") else "epsilon_high is not set, so it equals epsilon: "
        yield Fault(
            "warning",
            "cispo clamps every ratio",
            f"{given}the ratio itself is clamped at {limit:g}, so an unchanged token (ratio 1) keeps only "
            f"{limit:g} of its weight: this acts as a smaller learning rate without importance weights",
            "set epsilon_high to 5, as ScaleRL does",
            ("loss_type", key),
        )


def unread_clip(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """verl: clip_ratio is only read where clip_ratio_low and clip_ratio_high are null, and they have defaults."""
    key = ACTOR + "clip_ratio"
    sides = [side for side in (ACTOR + "clip_ratio_low", ACTOR + "clip_ratio_high") if config.get(side) is not None]
    if not config.says(key) or len(sides) < 2 or any(config.number(side) == config.number(key) for side in sides):
        return
    low, high = (config.number(side) for side in sides)
    yield Fault("warning", "clip_ratio is not read", f"clip_ratio_low and clip_ratio_high are {low} and {high}, and "
                  f"clip_ratio = {config.get(key)} is used only where they are null",
                  "set clip_ratio_low and clip_ratio_high", (key, *sides))  # fmt: skip


def idle_clip(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """A clip range that was set although every batch is used for one step, at which the ratio is 1."""
    keys = {
        "trl": ("epsilon", "epsilon_high", "delta"),
        "verl": (ACTOR + "clip_ratio_low", ACTOR + "clip_ratio_high"),
        "nemo-rl": ("loss_fn.ratio_clip_min", "loss_fn.ratio_clip_max"),
    }[config.dialect.name]
    set_here = tuple(
        key for key in keys if config.says(key) and config.number(key) not in (None, config.dialect.defaults.get(key))
    )
    if config.dialect.name == "trl" and (config.on("use_vllm") or config.get("loss_type") == "cispo"):
        return
    if set_here and config.dialect.name != "nemo-rl" and interval(config, known.world) == 1:
        yield Fault("note", "the clip range has no effect", "each batch of rollouts is used for one optimiser step, at "
                      "which every ratio is 1", "leave it out, or take several steps on a batch", set_here)  # fmt: skip
