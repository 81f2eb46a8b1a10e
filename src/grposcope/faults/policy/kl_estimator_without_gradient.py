"""A KL penalty whose estimator is right as a value and has no gradient on average.

What it is
    k1, log π − log π_ref of the token that was drawn, in the loss: verl's and slime's kl_loss_type kl or k1, SkyRL's
    kl_estimator_type k1, NeMo-RL's reference_policy_kl_type k1 (before #2506), OpenRLHF's default where use_loss puts
    it there. Its value estimates the KL; its gradient is the score of the token, whose mean is 0.
How it shows
    The KL is logged, a coefficient is set, and the KL grows as it would without.
What it does to the gradient
    It adds noise, coefficient × score, and holds the policy to nothing. As a part of the reward the same estimator is
    the right one. k3 in the loss pulls as KL(π_ref‖π) of the next token does, k2 and ratio × k3 as KL(π‖π_ref); added
    up over tokens each is the gradient of neither KL of completions.
What to do
    Take k3 or k2 in the loss (verl: low_var_kl, or k3+), or put k1 into the reward.
What decides
    The estimator in the settings. grposcope claims k3-tokens derives what each pulls towards.
Sources
    KL estimators: http://joschu.net/blog/kl-approx.html
    NeMo-RL #2506: https://github.com/NVIDIA-NeMo/RL/pull/2506
    arXiv:2603.01162, appendix A: https://arxiv.org/abs/2603.01162
    method of this project: grposcope.signs.kl_gradient"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings import kl

BEFORE = "before NeMo-RL #2506 (May 2026), which adds the score of the tokens, "
"""Of which versions of NeMo-RL it is true, whose settings do not have the version."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """k1 in the loss; of other estimators what they pull towards."""
    for term in kl.terms(config):
        because = (BEFORE if config.dialect.name == "nemo-rl" else "") + term.climbs()
        if not term.idle:
            yield fact(False, because)
            continue
        yield fact(
            True,
            because,
            config.signs(*term.keys),
            grade="warning",
            explains=("kl blow-up", "entropy explosion"),
            brief="the KL penalty has no gradient on average",
            remedy="take k3 (low_var_kl) or k2 in the loss, or put the penalty into the reward",
        )


FAULT = Fault(
    name="kl estimator without gradient",
    rank=3.4,
    remedy="take k3 or k2 in the loss, or put the penalty into the reward",
    settings=SettingsCheck(
        "kl estimator without gradient", _settings,
        ("trl", "ms-swift", "verl", "slime", "skyrl", "openrlhf", "open-instruct", "nemo-rl", "grposcope"),
        "a KL penalty whose estimator has no gradient on average, and what others pull towards", ("warning",),
    ),
)  # fmt: skip
