"""Dynamic sampling looks at the shaped reward, so that groups without a right answer pass it.

Asked as
    Why does the policy collapse with filter_groups and an overlong penalty?
What it is
    Groups are kept where their rewards differ, and the rewards that are compared hold a penalty for length or a KL
    term beside the verdict. DAPO filters by accuracy.
How it shows
    In the settings. Hardly a group is dropped, and answers get shorter without being right.
What it does to the gradient
    In a group that is all wrong the penalty is the only difference, and division by the deviation makes it as large as
    that of a right answer: short or empty wrong answers are taught.
What to do
    Filter by the verdict: algorithm.filter_groups.metric=acc (verl). In NeMo-RL a version that compares the rewards
    before shaping, or no shaping beside dynamic sampling.
What decides
    The share of groups that are kept without one right answer in them: 0 where the filter sees the verdict.
Sources
    NeMo-RL #2431: https://github.com/NVIDIA-NeMo/RL/issues/2431
    verl-recipe #125: https://github.com/verl-project/verl-recipe/pull/125
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

FILTER = "algorithm.filter_groups."

METRIC = FILTER + "metric"

SHAPED = ("seq_reward", "seq_final_reward")
"""Metrics of verl that are sums of the rewards of the tokens, with the penalty for overlong answers."""

PENALTIES = ("reward_model.overlong_buffer.enable", "reward.reward_kwargs.overlong_buffer_cfg.enable",
             "reward_model.reward_kwargs.overlong_buffer_cfg.enable")  # fmt: skip
"""What turns verl's penalty for overlong answers on, in its versions."""

KL = "algorithm.use_kl_in_reward"

DYNAMIC, SHAPING = "grpo.use_dynamic_sampling", "grpo.reward_shaping.enabled"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A filter whose metric has a penalty in it."""
    if config.dialect.name == "nemo-rl":
        if config.on(DYNAMIC) and config.on(SHAPING):
            yield _found(
                config,
                "dynamic sampling keeps groups by the reward that has been shaped, up to the version that mends "
                "NeMo-RL #2431: a group without a right answer is kept where the lengths of its answers differ",
                (DYNAMIC, SHAPING),
                f"set {SHAPING} to false, or see that your version compares the rewards before shaping",
            )
        return
    metric = config.get(METRIC)
    if not config.on(FILTER + "enable") or metric not in SHAPED:
        return
    penalty = next((key for key in PENALTIES if config.on(key)), None)
    term = KL if metric == "seq_final_reward" and config.on(KL) else penalty
    if term is not None:
        what = "the KL" if term == KL else "the penalty for overlong answers"
        yield _found(
            config,
            f"groups are kept where {metric} differs, and {what} is in it: a group without a right answer is kept as "
            "well, and teaches that difference alone",
            (METRIC, term),
            f"set {METRIC} to acc",
        )


def _found(config: Settings, because: str, keys: tuple[str, ...], remedy: str) -> Finding:
    """The filter that sees more than the verdict."""
    return fact(True, because, config.signs(*keys), grade="warning",
                brief="dynamic sampling filters by the shaped reward", remedy=remedy)  # fmt: skip


FAULT = Fault(
    name="filter of shaped rewards",
    rank=3.02,
    remedy="filter groups by the verdict: algorithm.filter_groups.metric=acc",
    settings=SettingsCheck(
        "filter of shaped rewards",
        _settings,
        ("verl", "nemo-rl"),
        "dynamic sampling by a reward with a penalty in it",
        ("warning",),
        "NeMo-RL #2431; verl-recipe #125",
    ),
)
