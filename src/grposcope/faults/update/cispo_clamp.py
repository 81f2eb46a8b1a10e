"""A clamp of the ratio below 1, with which CISPO shrinks every token alike.

What it is
    TRL's loss_type cispo clamps the ratio itself at `epsilon_high`, whose default, 0.2, is meant as a distance from 1.
How it shows
    The gradient norm is a fifth of what it should be, and the clip fraction is 1.
What it does to the gradient
    An unchanged token, of ratio 1, keeps epsilon_high of its weight: a smaller learning rate without importance
    weights.
What to do
    Set epsilon_high to 5, as ScaleRL does.
What decides
    The gradient norm of the first step beside that of loss_type dapo.
Sources
    ms-swift 4.6, grpo_trainer: https://github.com/modelscope/ms-swift
    arXiv:2506.13585: https://arxiv.org/abs/2506.13585
    arXiv:2510.13786 (upper bound 5): https://arxiv.org/abs/2510.13786
    TRL #4495: https://github.com/huggingface/trl/pull/4495"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A limit below 1 on the ratio itself."""
    if config.get("loss_type") != "cispo":
        return
    key = "epsilon_high" if config.says("epsilon_high") else "epsilon"
    limit = config.number(key)
    if limit is None:
        yield cannot_tell(f"{key} is not known", key)
    elif limit < 1:
        remark = "" if config.says("epsilon_high") else "epsilon_high is not set, so it equals epsilon: "
        yield fact(
            True,
            f"{remark}the ratio itself is clamped at {limit:g}, so an unchanged token (ratio 1) keeps only "
            f"{limit:g} of its weight: this acts as a smaller learning rate without importance weights",
            config.signs("loss_type", key),
            grade="warning",
            brief="cispo clamps every ratio",
            remedy="set epsilon_high to 5, as ScaleRL does",
        )


FAULT = Fault(
    name="cispo clamp",
    rank=3.3,
    remedy="set epsilon_high to 5, as ScaleRL does",
    settings=SettingsCheck("cispo clamp", _settings, ("trl", "ms-swift"), "a clamp of the ratio below 1", ("warning",)),
)
