"""Agent Lightning: verl's keys, and its own of rollouts that are several rows of training.

`training/reward` is the mean over rollouts, `critic/score/mean` over rows, in which a rollout of many turns counts as
often as it has rows; the first is taken for the reward. Groups are counted by it, with those whose rewards are equal.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grposcope.core.run import Floats
from grposcope.logs.trainers.trainer import Columns, Made
from grposcope.logs.trainers.verl import VERL, turns


def _share(columns: Columns, part: str, whole: str) -> Made | None:
    """A count over another, NaN where that is 0; None where one is not logged."""
    counted, of = columns.get(part), columns.get(whole)
    if counted is None or of is None:
        return None
    shares: Floats = counted / np.where(of > 0, of, np.nan)
    return Made(shares, f"{part} ÷ {whole}")


def _without_reward(columns: Columns) -> Made | None:
    """Share of the rollouts that came back without a reward, which are trained on as 0; None where not counted."""
    share = _share(columns, "training/n_rollouts_w_reward", "training/n_rollouts")
    return None if share is None else Made(1 - share.values, f"1 − {share.formula}")


def _made(columns: Columns) -> dict[str, Made]:
    """Dead groups, turns and rows of a rollout, and rollouts without a reward, from the counts that it logs."""
    found = {
        "agent/errors": _without_reward(columns),
        "dead_fraction": _share(columns, "training/n_zero_adv_groups", "training/n_groups"),
        "agent/turns": _share(columns, "training/n_turns", "training/n_rollouts_w_trace"),
        "agent/rows": _share(columns, "training/n_sample", "training/n_rollouts_w_trace"),
    }
    return turns(columns) | {name: share for name, share in found.items() if share is not None}


AGENT_LIGHTNING = replace(
    VERL,
    name="agent-lightning",
    title="Agent Lightning",
    leaves_files_of="verl",
    recognises=lambda keys: (
        bool(keys & {"training/n_rollouts", "training/n_rollouts_w_trace"})
        or ("training/reward" in keys and any(key.startswith("actor/") for key in keys))
    ),
    keys={**VERL.keys, "reward": ("training/reward", *VERL.keys["reward"])},
    made=_made,
    defects=(),
    logs=(),
    how_to_log={
        **VERL.how_to_log,
        "dead_fraction": "training/n_zero_adv_groups, always logged",
        "agent/turns": "training/n_turns, always logged",
    },
)
"""Everything that is known of Agent Lightning."""
