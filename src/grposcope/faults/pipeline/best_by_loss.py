"""The best checkpoint is chosen by the loss, which says nothing of a policy.

Asked as
    Which metric_for_best_model for GRPO?
What it is
    load_best_model_at_end with metric_for_best_model = loss, which is also what it is where nothing is given. ms-swift
    notes a best checkpoint in any case, and deletes others at save_total_limit.
How it shows
    In the settings. The loss of GRPO is near 0 by construction: advantages of a group sum to 0, and on policy every
    ratio is 1. What is left is noise, and the KL term, which is least at the start.
What it does to the gradient
    Nothing. The model that is kept is drawn at random among the checkpoints, or is the first.
What to do
    metric_for_best_model: eval_reward with greater_is_better: true, or a held-out score.
What decides
    The held-out score of the last checkpoint against the one that was kept: grposcope evaluate ONE OTHER.
Sources
    ms-swift #9733, #9336, no metric given: https://github.com/modelscope/ms-swift/issues/9733
    ms-swift #9730: https://github.com/modelscope/ms-swift/issues/9730
    ms-swift #8030: https://github.com/modelscope/ms-swift/issues/8030
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

KEEPS, METRIC = "load_best_model_at_end", "metric_for_best_model"
REMEDY = f"set {METRIC} to eval_reward and greater_is_better to true, or keep the last checkpoint"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The best model is loaded at the end, by the loss."""
    metric = config.get(METRIC)
    if config.dialect.name == "ms-swift" and METRIC not in config.opaque and metric is None:
        yield from _by_version(config)
        return
    swift = config.dialect.name == "ms-swift"
    if METRIC in config.opaque or metric not in ("loss", "eval_loss", *(() if swift else (None,))):
        return
    if not (config.on(KEEPS) or swift):
        return
    by = f"{METRIC} is {metric}" if metric else f"{METRIC} is not given, which means the loss"
    yield fact(
        True,
        f"{by}: the loss of GRPO is 0 by construction, so that {KEEPS} picks a checkpoint by noise"
        if config.on(KEEPS)
        else f"{by}: the loss of GRPO is 0 by construction, so that the best checkpoint is one by noise",
        config.signs(KEEPS, METRIC),
        grade="warning",
        brief="the best checkpoint is chosen by the loss",
        remedy=REMEDY,
    )


def _by_version(config: Settings) -> Iterator[Finding]:
    """ms-swift without a metric, where something asks for the best checkpoint."""
    asked = [key for key in ("early_stop_interval", KEEPS) if config.says(key) and config.get(key)]
    if asked:
        yield fact(
            True,
            f"{METRIC} is not given: versions of ms-swift before #9336 (May 2026) take the loss for it, later ones "
            f"the reward, and {asked[0]} goes by it",
            config.signs(*asked),
            grade="note",
            brief="which metric chooses the best checkpoint depends on the version",
            remedy=REMEDY,
        )


FAULT = Fault(
    name="best by loss",
    rank=5.65,
    remedy=REMEDY,
    settings=SettingsCheck(
        "best by loss",
        _settings,
        ("trl", "ms-swift"),
        "a best checkpoint that is chosen by the loss",
        ("warning", "note"),
    ),
)
