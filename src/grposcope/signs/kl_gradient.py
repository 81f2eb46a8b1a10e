"""What an estimate of KL(π ‖ π_ref) per token pulls a policy towards, in the loss or in the reward, in words.

With q = log π_ref − log π of a token that π drew, the expected gradients over fresh rollouts are, added up over the
tokens t of a completion (states are prompts with the tokens so far; the tests enumerate):

    in the loss    k1 = −q            0
                   k2 = q²/2          Σ_t ∇KL(π ‖ π_ref) of the next token, at states that π visits, states held fixed
                   k3 = e^q − 1 − q   Σ_t ∇KL(π_ref ‖ π) of the next token, likewise
                   ratio × k1 or k3   as k2
    in the reward  k1                 ∇KL(π ‖ π_ref) of completions
                   k3                 the same less what k3 has in the loss

A sum over tokens leaves out that a token decides which states come, so it is the gradient of neither KL of completions;
for completions of one token it is. Of k2 in the reward nothing as short is true. arXiv:2603.01162, appendix A, has k3
as the gradient of KL(π ‖ π_ref); the rest is a method of this project.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NAMES = {
    "k1": "k1", "kl": "k1", "k2": "k2", "mse": "k2", "k3": "k3", "low_var_kl": "k3",
}  # fmt: skip
"""Estimators by the names that trainers give them."""

_TOKENS = (
    "of the next token, at the states that the policy visits; added up over the tokens that is the gradient of neither "
    "KL of completions"
)


@dataclass(frozen=True)
class KlTerm:
    """An estimate of the KL that a run penalises.

    estimator: "k1", "k2" or "k3". inside: where it stands. weighted: whether the ratio of the policies multiplies it,
    with its gradient. keys: the settings that say so.
    """

    estimator: str
    inside: Literal["loss", "reward"] = "loss"
    weighted: bool = False
    keys: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether its expected gradient is 0."""
        return self.estimator == "k1" and self.inside == "loss" and not self.weighted

    def climbs(self) -> str:
        """What its expected gradient is that of, a clause; empty where nothing short is true."""
        if self.idle:
            return "k1 in the loss has the expected gradient 0: it adds noise and holds the policy to nothing"
        if self.inside == "reward":
            return {
                "k1": "k1 in the reward, added up over a completion, has the gradient of KL(π‖π_ref) of completions",
                "k3": "k3 in the reward has the gradient of KL(π‖π_ref) of completions less that of k3 in the loss, "
                "which is the gradient of neither KL",
            }.get(self.estimator, "")
        if self.estimator == "k3" and not self.weighted:
            return f"k3 in the loss has the gradient of KL(π_ref‖π) {_TOKENS}"
        return f"{'the ratio × ' * self.weighted}{self.estimator} in the loss has the gradient of KL(π‖π_ref) {_TOKENS}"


def named(name: object) -> str:
    """The estimator whose gradient is taken, by a trainer's name for it; empty for others.

    verl's "+" behind a name keeps the value and takes the gradient of k2.
    """
    text = str(name).strip().lower()
    return "k2" if text.endswith("+") and text.rstrip("+") in NAMES else NAMES.get(text, "")
