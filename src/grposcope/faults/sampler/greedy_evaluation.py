"""An evaluation at temperature 0 of a policy that is trained on draws.

What it is
    The settings draw rollouts at a temperature and evaluate the likeliest text alone.
How it shows
    The held-out score is above the reward of training from the first row on, or rises while the other does not.
What it does to the gradient
    Nothing: two policies are measured. One token that becomes the likeliest moves the score of a prompt from 0 to 1.
What to do
    Evaluate at the temperature of training as well, with several draws of each prompt, and compare like with like.
What decides
    Both temperatures in the settings.
Sources
    verl 0.9.1, trainer/config/rollout: https://github.com/verl-project/verl
    AReaL 1.0.4, GenerationHyperparameters: https://github.com/inclusionAI/AReaL"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import key_of

_EVALUATED = {
    "verl": "actor_rollout_ref.rollout.val_kwargs.temperature",
    "skyrl": "generator.eval_sampling_params.temperature",
    "prime-rl": "orchestrator.eval.sampling.temperature",
    "openrlhf": "eval.temperature",
    "slime": "eval_temperature",
    "areal": "eval_gconfig.temperature",
}
"""Trainer -> the temperature of its evaluation."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """An evaluation that the file sets to temperature 0, beside rollouts that are drawn."""
    evaluated, drawn = _EVALUATED[config.dialect.name], key_of(config, "temperature")
    greedy = config.dialect.name == "areal" and config.on("eval_gconfig.greedy")
    temperature = config.number(drawn)
    if temperature is None or temperature <= 0 or not (greedy or config.number(evaluated) == 0):
        return
    yield fact(
        True,
        f"the evaluation takes the likeliest text alone, and rollouts are drawn at temperature {temperature:g}: its "
        "score and the reward of training are of two policies, which differ in level and may move apart",
        config.signs("eval_gconfig.greedy" if greedy else evaluated, drawn),
        grade="note",
        brief="a greedy evaluation",
        remedy=f"compare it with earlier evaluations alone, or evaluate at temperature {temperature:g} with several "
        "draws of each prompt",
    )


FAULT = Fault(
    name="greedy evaluation",
    rank=5.95,
    remedy="compare it with earlier evaluations alone",
    settings=SettingsCheck(
        "greedy evaluation", _settings, tuple(_EVALUATED), "an evaluation at temperature 0", ("note",)
    ),
)
