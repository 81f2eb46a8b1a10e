"""Long trajectories weigh more, or less, in the loss than it says.

What it is
    Each turn or branch is a row of training, and the loss is a mean over rows; or tokens are divided by a count that
    the stated loss does not have.
How it shows
    The summed weights of a trajectory's tokens, over its advantage, are proportional to its rows or turns.
What it does to the gradient
    With a mean over rows, long rollouts count as often as they have turns; with a mean over a rollout's own turns the
    gradient is that of reward ÷ turns, so that short successes and long failures are learned.
What to do
    Divide by the number of rollouts, or by all tokens of the batch, after rows were put together by rollout.
What decides
    Σ |∂L/∂log π| of rollouts with many and with few turns: grposcope verify FOLDER with loss_weights.
Sources
    miles #2378; agent-lightning #489: https://github.com/microsoft/agent-lightning/issues/489
    TRL #7206: https://github.com/huggingface/trl/issues/7206
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.turns import key_of_turns
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import trajectory_weights

MEANS = {
    "trl": ("loss_type", "grpo", "dapo, or dr_grpo, which divides by a constant"),
    "verl": ("actor_rollout_ref.actor.loss_agg_mode", "seq-mean-token-mean",
             "token-mean, or seq-mean-token-sum-norm, which divides by a constant"),
    "skyrl": ("trainer.algorithm.loss_reduction", "sequence_mean",
              "token_mean, or seq_mean_token_sum_norm, which divides by a constant"),
}  # fmt: skip
"""Trainer -> the key of the loss's mean, its value for one over the tokens of each rollout, and what to set."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The loss is a mean over each rollout's own tokens, and rollouts have several turns."""
    key = key_of_turns(config)
    mean, value, remedy = MEANS.get(config.dialect.name, ("", "", ""))
    if key and config.get(mean) == value:
        yield fact(
            True,
            f"{mean} {value} divides by the tokens of each rollout: a success pays more in few turns, and a failure "
            "costs less in many, so that turns go up where most rollouts fail",
            config.signs(mean, key),
            grade="note",
            brief="long rollouts weigh less for each of their turns",
            remedy=f"set {mean} to {remedy}",
        )


FAULT = Fault(
    name="weight by turns",
    rank=5.3,
    remedy="divide by the number of rollouts, or by all tokens of the batch, after rows were put together by rollout",
    effect="the policy is drawn to other numbers of turns than the reward says",
    beside="warning",
    rollouts=(trajectory_weights.PROOF,),
    settings=SettingsCheck(
        "weight by turns", _settings, ("trl", "verl", "skyrl"), "a loss that divides by each rollout's turns", ("note",)
    ),
)
