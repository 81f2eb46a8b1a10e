"""A setting that was asked for and that the run does not have.

Asked as
    Why does my setting change nothing? Which configuration did this run take?
What it is
    The file says one value, and the trainer recorded another, or its rows can only come from another: a name that
    nothing reads, an override on the command line, a default that is filled in later, a wrapper that drops it.
How it shows
    The trainer's record of its settings differs from the file of `--config`; the learning rate of the rows is another
    than the file's, beyond what a schedule explains; a completion is longer than the limit; a term of the loss is
    exactly 0 in every row although its weight is not.
What it does to the gradient
    It is that of the settings in force. A KL coefficient of 0.04 that arrives as 0 leaves the reference out.
What to do
    Find where the value is lost: print the trainer's arguments when it starts, and compare them with the file.
What decides
    The arguments that the trainer holds when it starts, printed or logged: `print(trainer.args)` of TRL, the
    configuration at the head of verl's console, config.yaml of a W&B run.
Sources
    Unsloth #4189, completions beyond their limit: https://github.com/unslothai/unsloth/issues/4189
    Unsloth #3573, rollout_func without effect: https://github.com/unslothai/unsloth/issues/3573
    NeMo-RL #3792, a term without effect: https://github.com/NVIDIA-NeMo/RL/pull/3792
    mlx-lm-lora 3.1.2, train.py: https://github.com/Goekdeniz-Guelmez/mlx-lm-lora
    TRL, passing GRPOConfig: https://huggingface.co/docs/trl/grpo_trainer
    method of this project"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.run import Run
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.in_force import compared, written

ANOTHER_RUN = 0.5
"""Share of the settings that both have, of at least FEW, beyond which a file is more likely that of another run."""

FEW = 4

LIMIT = "max_completion_length"
"""TRL's limit of completions."""


def _of_reading(run: Run) -> Iterator[Finding]:
    """Settings of the file beside the run that are not those in force; nothing where no file is given."""
    if run.asked is None:
        return
    asked, both = run.asked.settings, compared(run.asked, run)
    wrong = [each for each in both if each.differs]
    if run.asked.recorded and not (wrong and run.meta.engine == "trl"):
        return  # what is in force by the trainer's own record; elsewhere completions have the answers of tools in them
    if asked.dialect.name != run.meta.engine or not both:
        why = f"{asked.source.name} has settings of {asked.dialect.title}, and the log is of {run.meta.engine}"
        yield cannot_tell(why if asked.dialect.name != run.meta.engine else
                          f"the log states none of the settings of {asked.source.name}", "settings")  # fmt: skip
        return
    if not wrong:
        yield fact(False, f"{_counted(len(both))} of {asked.source.name} can be compared with the run, and all agree")
        return
    where = "as recorded" if run.asked.recorded else "in the file"
    signs = [Sign(f"{each.key} {where}", float(each.asked), where=each.where)
             for each in wrong if isinstance(each.asked, int | float)]  # fmt: skip
    first = wrong[0]
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    said = "; ".join(str(each) for each in wrong[:3])
    said = said.replace(" in the file ", f" {where} ")
    remedy = "find where the value is lost: print the trainer's arguments at its start and compare them with the file"
    remedy = _of_the_limit(asked) if asked.dialect.name == "trl" and first.key == LIMIT else remedy
    if len(wrong) > ANOTHER_RUN * len(both) and len(both) >= FEW:
        said = f"{len(wrong)} of {len(both)} settings differ, so the file may be that of another run: {said}"
        remedy = f"make sure that {asked.source.name} is the file of this run; if it is, {remedy}"
    yield fact(True, said, signs, grade="warning", remedy=remedy,
               brief=f"{first.key} is {written(first.asked)} in {asked.source.name}, {first.seen}{more}")  # fmt: skip


def _of_the_limit(asked: Settings) -> str:
    """What to do where TRL's completions are longer than their limit."""
    batch, group = asked.whole("per_device_train_batch_size"), asked.whole("num_generations")
    above = batch is not None and group is not None and batch > group
    at_unsloth = f"with Unsloth try per_device_train_batch_size {group}: above num_generations this was reported"
    return (
        "print the sampling parameters that generation gets, where max_tokens or max_new_tokens must be the limit, and "
        "run ten steps on another version of what generates" + (f" ({at_unsloth})" if above else "")
    )


def _counted(number: int) -> str:
    return f"{number} setting{'s' * (number != 1)}"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """What a file says and the command that reads it does not take; a function that a replaced trainer ignores."""
    if config.dialect.name == "mlx-lm-lora":
        yield from _of_mlx_lm_lora(config)
        return
    script = config.script or {}
    line = script.get("rollout_func")
    if line is None or "unsloth" not in script or "env_mask" in script:
        return
    because = (
        "the trainer of TRL is replaced by Unsloth's, which in versions of 2025 takes rollout_func without a word and "
        "draws its own rollouts all the same (Unsloth #3573)"
    )
    remedy = "print a line in the function and run one step: if it is not printed, take a newer Unsloth, or TRL alone"
    yield fact(True, because, (Sign("rollout_func", where=f"line {line}"),), grade="warning",
               brief="rollout_func may not be called", remedy=remedy)  # fmt: skip


BY_COMMAND = {
    "group_size": 4, "epsilon": 1e-4, "beta": 0.1, "temperature": 1.0, "max_completion_length": 512,
    "gradient_accumulation_steps": 1, "grpo_loss_type": "grpo",
}  # fmt: skip
"""Settings of mlx-lm-lora for which its command line has a value of its own, 0.6.8 to 3.1.2: a file sets only what the
command line leaves at None."""


def _of_mlx_lm_lora(config: Settings) -> Iterator[Finding]:
    """Values of a YAML file that the defaults of its command line hide."""
    if config.form != "a YAML file":
        return
    hidden = {key: usual for key, usual in BY_COMMAND.items() if config.given.get(key) not in (None, usual)}
    if not hidden:
        return
    told = ", ".join(f"{key} {written(usual)}" for key, usual in hidden.items())
    flags = " ".join(f"--{key.replace('_', '-')} {config.given[key]}" for key in hidden)
    yield fact(
        True,
        "mlx_lm_lora.train takes of its file only what its command line leaves unset, and its command line has a "
        f"default for {'these' if len(hidden) > 1 else 'this'} (0.6.8 to 3.1.2): without the flag the run has {told}",
        config.signs(*hidden),
        grade="warning",
        brief=f"{next(iter(hidden))} of the file may not be taken",
        remedy=f"give it on the command line as well: {flags}",
        source="source of mlx-lm-lora 3.1.2: https://github.com/Goekdeniz-Guelmez/mlx-lm-lora",
    )


FAULT = Fault(
    name="setting not in force",
    rank=1.2,
    remedy="find where the value is lost",
    beside="warning",
    instead="warning",
    reading=_of_reading,
    settings=SettingsCheck(
        "setting not in force",
        _settings,
        ("mlx-lm-lora",),
        "values of a file that a command line hides; a function of rollouts that a replaced trainer may ignore",
        ("warning",),
        scripts=("trl",),
    ),
)
