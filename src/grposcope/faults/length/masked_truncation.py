"""Truncated completions that are left out of the loss but still count in the baseline of their group.

What it is
    TRL's mask_truncated_completions masks their tokens, as do the filters of overlong ones of ms-swift and SkyRL; their
    rewards, mostly 0, stay in the mean and the deviation.
How it shows
    The mean advantage of the tokens that are trained on is above 0, the more so the more completions are cut.
What it does to the gradient
    Complete right answers gain from those that are cut; a batch in which every completion is truncated has none.
What to do
    Watch completions/clipped_ratio, and raise max_completion_length if it is above 0.1.
What decides
    completions/clipped_ratio of the first steps.
Sources
    ms-swift 4.6, grpo_trainer: https://github.com/modelscope/ms-swift
    arXiv:2503.14476 §3.4: https://arxiv.org/abs/2503.14476
    TRL 1.16, GRPOTrainer: https://huggingface.co/docs/trl/grpo_trainer"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

MASK = "mask_truncated_completions"
REMEDY = "watch completions/clipped_ratio, and raise max_completion_length if it is above 0.1"


_MASKS = {
    "trl": (MASK, "max_completion_length"),
    "ms-swift": ("overlong_filter", "max_completion_length"),
    "skyrl": ("generator.apply_overlong_filtering", "generator.sampling_params.max_generate_length"),
}
"""Trainer -> the switch of its mask, and its limit of a completion."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The mask is on."""
    mask, limit = _MASKS[config.dialect.name]
    if config.on(mask):
        yield fact(
            True,
            "they are left out of the loss, but their rewards, mostly 0, stay in the mean of the group, so correct "
            "complete answers gain from them; a batch in which every completion is truncated has no gradient",
            config.signs(mask),
            grade="note",
            brief="truncated completions still count in the baseline",
            remedy=REMEDY
            if mask == MASK
            else f"watch the share of truncated completions, and raise {limit} if it is above 0.1",
        )


FAULT = Fault(
    name="masked truncation",
    rank=5.6,
    remedy=REMEDY,
    settings=SettingsCheck(
        "masked truncation",
        _settings,
        tuple(_MASKS),
        "truncated completions that still count in the baseline",
        ("note",),
    ),
)
