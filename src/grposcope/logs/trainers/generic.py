"""Logs whose trainer is not known: keys that have a usual meaning, also in other words ("Avg Response Len").

The log does not say how they are defined, and a note of the run says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from grposcope.logs.keys import words_of
from grposcope.logs.trainers.trainer import Trainer

USUAL: Mapping[str, tuple[str, ...]] = {
    "reward": ("reward/mean", "rewards/mean", "mean_reward", "reward_mean", "train/reward"),
    "entropy": ("policy/entropy", "optim/entropy", "mean_entropy", "train/entropy"),
    "lr": ("optim/lr", "learning_rate", "train/learning_rate"),
    "loss": ("train/loss", "training_loss"),
    "grad_norm": ("train/grad_norm", "gradient_norm", "optim/grad_norm"),
    "kl": ("train/kl", "kl_div", "kl_divergence"),
    "length": ("response_length", "completion_length", "mean_length", "response_length/mean"),
    "seconds_step": ("time/total", "step_time"),
    "time": ("timestamp", "_timestamp"),
}
"""Metric -> keys that usually mean it."""

IN_WORDS: Mapping[str, tuple[str, ...]] = {
    "reward": ("reward", "rewards", "rew"),
    "entropy": ("entropy", "ent", "policy entropy"),
    "lr": ("lr", "learning rate"),
    "loss": ("loss", "total loss"),
    "grad_norm": ("grad norm", "gradient norm", "gnorm", "gn"),
    "kl": ("kl", "kl div", "kl divergence", "kl ref", "ref kl", "kl to ref", "kl reference"),
    "length": ("response len", "response length", "completion len", "completion length", "resp len", "gen len",
               "generation length", "response lengths", "completion lengths", "completion tokens", "response tokens",
               "sequence length", "sequence lengths", "seq len", "seq length", "output len", "output length", "len"),
    "dead_fraction": ("frac zero std", "frac reward zero std", "zero std frac", "zero std ratio", "dead fraction",
                      "frac zero std groups", "zero advantage group ratio", "dead group ratio", "dead group frac"),
    "clip_fraction": ("clipfrac", "clip frac", "clip fraction"),
    "seconds_step": ("step time", "time per step"),
}  # fmt: skip
"""Metric -> the words of keys that usually mean it, without FILLING."""

_BY_WORDS = {phrase: metric for metric, phrases in reversed(list(IN_WORDS.items())) for phrase in phrases}

OF_EACH_STEP = "_step"
"""What Lightning appends to the name of a metric that it logs at every step, beside its mean over an epoch."""


PARTS = re.compile(
    r"(?:(?:train/)?(?:rewards?_)?(?:breakdown|components?|parts)/|(?=\w+_reward_func(?:tion)?[ _/](?:mean|std)$))"
    r"(?P<name>(?!(?:mean|avg|average|std|min|max|median|total|sum|all|raw|score|reward)$)[^/]+?)"
    r"(?:(?<=func|tion)[ _/](?P<what>mean|std))?",
    re.IGNORECASE,
)
"""Keys of single reward components: those of an object of parts, and means and spreads of functions so named."""


def usual_metric(key: str) -> str | None:
    """The metric that the words of a key usually mean; None if there is none."""
    words = words_of(key)
    if key.endswith(OF_EACH_STEP):
        words = words.removesuffix(" step")
    return _BY_WORDS.get(words)


GENERIC = Trainer(
    name="generic",
    title="any other log",
    recognises=lambda keys: True,
    usual_keys=USUAL,
    usual_words=usual_metric,
    component=PARTS,
    how_to_log={
        "dead_fraction": "for rewards of 0 and 1 it follows from the mean reward: give the settings group=N and "
        "rewards=binary",
        "rollouts": "give the settings prompts=P and group=G: they determine the noise of a step's mean",
        "longer run": "log more steps: a change this fast either stops soon or becomes too large for slow random drift",
    },
)
"""What is assumed of a log whose trainer is not known."""
