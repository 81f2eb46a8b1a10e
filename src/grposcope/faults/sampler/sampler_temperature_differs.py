"""The sampler draws at another temperature than the trainer takes gradients at.

What it is
    The temperature of the sampler is not the one by which the trainer divides its logits, or its log-probabilities
    are recorded before the temperature.
How it shows
    log π + H of drawn tokens drifts from 0: above where the sampler is colder, below where it is hotter; recorded
    log-probabilities fit those of the weights raised to a power. In a log: a mismatch at one level from the first step
    on, at a temperature other than 1.
What it does to the gradient
    Ratios are off at every token in proportion to log π: likely tokens are over- or underweighted, and clipping
    removes the rest.
What to do
    Give sampler and trainer one temperature; record log-probabilities after it (vLLM: logprobs_mode
    processed_logprobs).
What decides
    Tokens of one batch under the checkpoint that drew them: grposcope verify FOLDER --model CHECKPOINT.
Sources
    vime #64: https://github.com/vllm-project/vime/issues/64
    NeMo-RL #902: https://github.com/NVIDIA-NeMo/RL/issues/902
    AReaL 1.0.4, TrainEngineConfig: https://github.com/inclusionAI/AReaL
    vLLM, logprobs_mode
    method of this project: the mixture of powers as an e-value"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import sampling, weights
from grposcope.signs.sampler_mismatch import TEST

_TRAINER, _SAMPLER = "actor.temperature", "gconfig.temperature"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """AReaL, which has a temperature of the sampler and one of the trainer, by default 1."""
    drawn, trained = config.number(_SAMPLER), config.number(_TRAINER)
    if drawn is None or trained is None or drawn == trained or drawn <= 0:
        return
    yield fact(
        True,
        f"rollouts are drawn at {drawn:g}, and the trainer divides its logits by {trained:g}: its log-probabilities "
        "are not those of who drew, by more the less likely the token",
        config.signs(_SAMPLER, _TRAINER),
        grade="warning",
        explains=("sampler mismatch",),
        brief="sampler and trainer have two temperatures",
        remedy=f"set {_TRAINER} to ${{{_SAMPLER}}}",
        source="source of AReaL 1.0.4: https://github.com/inclusionAI/AReaL",
    )


FAULT = Fault(
    name="sampler temperature differs",
    rank=1.0,
    remedy="set the same temperature in the sampler and the trainer",
    beside="warning",
    log=TEST,
    settings=SettingsCheck(
        "sampler temperature differs", _settings, ("areal",), "two temperatures", ("warning",), "AReaL 1.0.4"
    ),
    rollouts=(weights.PROOF, sampling.PROOF),
)
