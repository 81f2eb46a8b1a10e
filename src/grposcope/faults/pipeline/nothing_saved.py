"""No checkpoint of the run is written, not even at its end.

Asked as
    Training finished. Where is the model?
What it is
    Saving is off: verl's trainer.save_freq is -1 by default, slime needs a folder to save to, NeMo-RL and SkyRL have a
    switch or a period.
How it shows
    In the settings. The folder of checkpoints is empty when the run ends.
What it does to the gradient
    Nothing; what was learned is lost with the process, and a run that falls late has nothing to go back to.
What to do
    Save every so many steps, unless the run is a trial of speed.
What decides
    The folder of checkpoints after the first period.
Sources
    verl 0.9.1, trainer/config/ppo_trainer.yaml: https://verl.readthedocs.io/en/latest/examples/config.html
    configs of NeMo-RL, SkyRL and slime, August 2026"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

_KEYS = {
    "verl": ("trainer.save_freq",),
    "nemo-rl": ("checkpointing.enabled",),
    "skyrl": ("trainer.ckpt_interval", "trainer.hf_save_interval"),
    "slime": ("save",),
}
"""Trainer -> what has it save, all of which are off where nothing is saved."""


_LENGTHS = ("trainer.total_epochs", "trainer.total_training_steps", "num_rollout", "num_epoch")
"""How long verl and slime train, as files say that hold a whole run; both save nothing where nothing says so."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Nothing saves."""
    keys = _KEYS[config.dialect.name]
    if config.partial or config.resolved or any(key in config.opaque for key in keys):
        return
    values = [config.get(key) for key in keys]
    said = all(config.says(key) for key in keys) or any(config.says(key) for key in _LENGTHS)
    if not said or any(_saves(value) for value in values):
        return
    yield fact(
        True,
        "no checkpoint is written, not even at the end: what is learned is lost with the run, and a late fall leaves "
        "nothing to go back to",
        config.signs(*keys) or config.signs(*filter(config.says, _LENGTHS)),
        grade="note",
        brief="nothing of the run is saved",
        remedy="set " + ("save to a folder and save_interval" if keys == ("save",) else f"{keys[0]} to "
               + ("true" if keys[0].endswith("enabled") else "a number of steps")),
    )  # fmt: skip


def _saves(value: object) -> bool:
    """Whether a switch is on, a period is above 0 or a folder is given."""
    if isinstance(value, int | float):
        return value > 0
    return value is not None


FAULT = Fault(
    name="nothing saved",
    rank=5.67,
    remedy="save every so many steps",
    settings=SettingsCheck(
        "nothing saved", _settings, tuple(_KEYS), "a run of which no checkpoint is written", ("note",)
    ),
)
