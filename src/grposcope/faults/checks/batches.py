"""The check of batch sizes, of whichever trainer: what the trainers look at only after the models are loaded, or not
at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grposcope.core.fault import SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks import batches_of_trl, batches_of_verl
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import group_size, key_of
from grposcope.signs.settings.trl import generation_steps

_SOURCES = {
    "prime-rl": "prime-rl, configs/orchestrator.py and configs/trainer.py, August 2026: "
    "https://github.com/PrimeIntellect-ai/prime-rl",
    "nemo-rl": "NeMo-RL, algorithms/grpo.py, August 2026: https://docs.nvidia.com/nemo/rl/latest/guides/grpo.html",
    "skyrl": "SkyRL, validate_cfg, August 2026: https://github.com/NovaSky-AI/SkyRL",
    "slime": "slime, slime/utils/arguments.py and dp_schedule.py, August 2026: https://github.com/THUDM/slime",
    "openrlhf": "OpenRLHF 0.11, replay_buffer.py: https://github.com/OpenRLHF/OpenRLHF",
    "ms-swift": "ms-swift 4.6, GRPO: https://swift.readthedocs.io/en/latest/Instruction/GRPO/GetStarted/GRPO.html",
}
"""Trainer -> where it says what it wants."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The sizes of batches, passes, processes and replicas, as the trainer of the settings wants them."""
    if config.dialect.name == "trl":
        yield from batches_of_trl.settings(config, facts)
    elif config.dialect.name == "verl":
        yield from batches_of_verl.settings(config)
    else:
        check = _OTHERS.get(config.dialect.name)
        findings = check(config) if check is not None else _ms_swift(config, facts.world)
        source = _SOURCES.get(config.dialect.name, "")
        yield from (replace(finding, source=source) for finding in findings)


def _nemo_rl(config: Settings) -> Iterator[Finding]:
    """NeMo-RL: the rollouts of a step are a whole number of training batches."""
    prompts, batch = "grpo.num_prompts_per_step", "policy.train_global_batch_size"
    count, size, group = config.whole(prompts), config.whole(batch), group_size(config)
    if not (count and size and group):
        yield cannot_tell(f"{prompts}, {batch} or the group size is not known", prompts, batch)
    elif count * group % size:
        yield fact(
            True,
            f"{count} × {group} = {count * group} rollouts are not a multiple of the training batch of {size}",
            config.signs(prompts, batch),
            grade="failing",
            brief="batches do not divide",
            remedy=f"choose {batch} so that it divides {count * group}",
        )
    multiplier, filters = "grpo.batch_multiplier", "grpo.use_dynamic_sampling"
    if (config.number(multiplier) or 1) != 1 and config.off(filters):
        yield _refused(config, "a multiple of the batch is drawn for dynamic sampling alone", (multiplier, filters),
                       f"set {multiplier} to 1, or {filters} to true")  # fmt: skip


def _prime_rl(config: Settings) -> Iterator[Finding]:
    """prime-rl: a step's rollouts are whole groups, warm-up and decay fit the run, and one of two sizes is given."""
    batch, sized = key_of(config, "batch"), next(filter(config.says, _BY_TOKENS), "")
    assumed = config.says(batch) or any(key.startswith("orchestrator.") for key in config.given)
    size, group = config.whole(batch) if assumed else None, group_size(config)
    if sized and config.says(batch):
        yield _refused(config, "a step has a number of rollouts or of tokens", (batch, sized), f"leave {sized} out")
    elif size and group and not sized and size % group:
        yield fact(
            True,
            f"{size} rollouts of a step are no multiple of the group size {group}, and prime-rl refuses to start",
            config.signs(batch, key_of(config, "group")),
            grade="failing",
            brief="groups do not fit the batch",
            remedy=f"set {batch} to a multiple of {group}, such as {max(round(size / group), 1) * group}",
        )
    elif not (size and group) and not sized:
        yield cannot_tell(f"{batch} or the group size is not known", batch)
    kind, names = key_of(config, "schedule"), [key_of(config, name) for name in ("warmup", "decay", "steps")]
    steps, schedule = config.whole(names[2]), config.get(kind)
    phases = sum(
        _PHASE if not config.says(name) else config.whole(name) or 0
        for name in (names[:2] if schedule == "linear" else names[:1])
    )
    if schedule in ("linear", "cosine") and steps is not None and phases >= steps + (schedule == "linear"):
        yield _refused(
            config, f"warm-up{' and decay' * (schedule == 'linear')} take {phases} steps, and the run has {steps}",
            (kind, *names), f"set {names[0]} so that they fit into the steps",
        )  # fmt: skip


def _skyrl(config: Settings) -> Iterator[Finding]:
    """SkyRL: a batch of prompts is a whole number of mini-batches; one KL penalty at most."""
    keys = ("trainer.train_batch_size", "trainer.policy_mini_batch_size")
    whole, mini = (config.whole(key) for key in keys)
    if not whole or not mini:
        yield cannot_tell(f"{keys[0]} or {keys[1]} is not known", *keys)
    elif whole % mini:
        yield fact(
            True,
            f"{whole} prompts of a step are no multiple of the mini-batch of {mini}, and SkyRL refuses to start",
            config.signs(*keys),
            grade="failing",
            brief="batches do not divide",
            remedy=f"choose {keys[1]} so that it divides {whole}",
        )
    both = ("trainer.algorithm.use_kl_loss", "trainer.algorithm.use_kl_in_reward")
    if all(map(config.on, both)):
        yield _refused(config, "the KL is a term of the loss or of the reward", both, f"set {both[0]} to false")


def _slime(config: Settings) -> Iterator[Finding]:
    """slime: the rollouts of a step are a whole number of training batches; the rest is dropped."""
    keys = ("rollout_batch_size", "n_samples_per_prompt", "global_batch_size")
    prompts, group, size = (config.whole(key) for key in keys)
    if config.number("kl_coef") and config.number("kl_loss_coef"):
        yield _refused(config, "the KL has one coefficient, of the loss or of the reward",
                       ("kl_coef", "kl_loss_coef"), "leave kl_coef out")  # fmt: skip
    if not (prompts and group and size):
        if not config.says("num_steps_per_rollout"):
            yield cannot_tell("rollout_batch_size, n_samples_per_prompt or global_batch_size is not known", *keys)
        return
    steps = config.whole("num_steps_per_rollout")
    if steps and prompts * group // steps != size:
        yield _refused(config, f"{prompts} × {group} rollouts in {steps} steps are not {size} each",
                       (*keys, "num_steps_per_rollout"), "leave global_batch_size out")  # fmt: skip
    elif prompts * group < size or prompts * group % size:
        rest = prompts * group % size
        few = prompts * group < size
        yield fact(
            True,
            f"{prompts} × {group} = {prompts * group} rollouts are "
            + (f"fewer than a training batch of {size}" if few else
               f"no multiple of the training batch of {size}: the last {rest} of each step are drawn and dropped"),
            config.signs(*keys),
            grade="failing" if few else "warning",
            brief="batches do not divide",
            remedy=f"choose global_batch_size so that it divides {prompts * group}",
        )  # fmt: skip


def _openrlhf(config: Settings) -> Iterator[Finding]:
    """OpenRLHF: a step's rollouts fill a training batch; it cuts what is beyond whole ones."""
    dotted = config.says("rollout.batch_size") or config.says("rollout.n_samples_per_prompt")
    keys = ("rollout.batch_size", "train.batch_size") if dotted else ("rollout_batch_size", "train_batch_size")
    prompts, size, group = config.whole(keys[0]), config.whole(keys[1]), group_size(config)
    if not (prompts and size and group):
        yield cannot_tell(f"{keys[0]}, {keys[1]} or the group size is not known", *keys)
    elif prompts * group < size:
        yield fact(
            True,
            f"{prompts} × {group} = {prompts * group} rollouts of a step do not fill one training batch of {size}",
            config.signs(*keys, key_of(config, "group")),
            grade="warning",
            brief="a step has fewer rollouts than a training batch",
            remedy=f"set {keys[1]} to {prompts * group} or a divisor of it",
        )


def _ms_swift(config: Settings, world: int | None) -> Iterator[Finding]:
    """ms-swift: a batch of rollouts holds whole groups, as with TRL; what the processes are has to be known."""
    each, group, steps = config.whole("per_device_train_batch_size"), group_size(config), generation_steps(config)
    if not (each and group and steps and world):
        yield cannot_tell("the batch of a process, its passes or the processes are not known", "world")
    elif each * steps * world % group:
        yield fact(
            True,
            f"a batch of {each} × {steps} × {world} processes = {each * steps * world} rollouts is not a multiple of "
            f"the group size {group}, and ms-swift refuses to start",
            config.signs("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations"),
            grade="failing",
            brief="groups do not fit the batch",
            remedy=f"choose the batch of a process × passes × processes as a multiple of {group}",
        )


def _refused(config: Settings, because: str, keys: tuple[str, ...], remedy: str) -> Finding:
    """Settings that the trainer refuses together."""
    title = config.dialect.title
    return fact(True, f"{because}: {title} refuses to start", config.signs(*keys), grade="failing",
                fault="refused settings", brief=f"{title} refuses these together", remedy=remedy)  # fmt: skip


_BY_TOKENS = ("orchestrator.token_batch_size", "token_batch_size")
"""Where prime-rl has the tokens of a step, in place of rollouts."""

_PHASE = 10
"""Steps of warm-up and of decay of prime-rl where they are not given."""

_OTHERS = {"nemo-rl": _nemo_rl, "prime-rl": _prime_rl, "skyrl": _skyrl, "slime": _slime, "openrlhf": _openrlhf}

CHECK = SettingsCheck(
    "indivisible batches",
    _settings,
    ("trl", "verl", "ms-swift", *_OTHERS),
    "batches that do not divide into groups, mini-batches, passes, processes and GPUs; sizes refused together",
    ("failing", "warning", "note"),
)
"""Tells indivisible batches, indivisible gpus and refused settings apart."""
