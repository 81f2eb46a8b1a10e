"""Batch sizes of TRL: whole groups in a batch of rollouts, a whole number of passes, whole groups in evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator

from grposcope.core.finding import Finding, Grade, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import group_size
from grposcope.signs.settings.trl import generation_steps

PROCESS, BATCH, STEPS = "per_device_train_batch_size", "generation_batch_size", "steps_per_generation"
MANY = 8
"""Processes up to which a run can do with a multiple of them."""


def settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """What TRL refuses, and sizes that do not divide."""
    each, group, world = config.whole(PROCESS), group_size(config), facts.world
    yield from _refused(config)
    if _twice(config):
        return
    if each is None or not group:
        yield cannot_tell("the batch size of a process or the group size is not known", PROCESS, "num_generations")
        return
    whole = config.whole(BATCH)
    if whole is None:
        yield from _of_processes(config, each, group, world)
    else:
        yield from _of_batch(config, whole, each, group, world)
    if config.get("eval_strategy") not in ("no", None) and config.get("do_eval") is not False:
        yield from _evaluation(config, group, world)


def _refused(config: Settings) -> Iterator[Finding]:
    """Settings that TRL refuses whatever their sizes."""
    if config.on("auto_find_batch_size"):
        yield fact(True, "a smaller batch would split groups", config.signs("auto_find_batch_size"), grade="failing",
                   fault="refused settings", brief="TRL refuses auto_find_batch_size",
                   remedy="set it to False and choose per_device_train_batch_size")  # fmt: skip
    if _twice(config):
        yield fact(True, f"{BATCH} and {STEPS} say the same thing", config.signs(BATCH, STEPS), grade="failing",
                   fault="refused settings", brief="TRL refuses both", remedy="leave one of them out")  # fmt: skip


def _twice(config: Settings) -> bool:
    """Whether the size of a batch of rollouts is given twice; a trainer that has started has filled in the other."""
    return config.says(BATCH) and config.says(STEPS) and not config.resolved


def _of_batch(config: Settings, whole: int, each: int, group: int, world: int | None) -> Iterator[Finding]:
    """The batch of rollouts is given: it holds whole groups and a whole number of passes."""
    if whole % group:
        yield _no_groups(config, f"a batch of {whole} rollouts", group, f"set {BATCH} to a multiple of {group}",
                         BATCH, "num_generations")  # fmt: skip
    if world and whole % (each * world):
        yield fact(
            True,
            f"{whole} rollouts cannot be split into passes of {each} on {world} processes",
            config.signs(BATCH, PROCESS),
            grade="failing",
            brief="batches do not divide",
            remedy=f"set {BATCH} to a multiple of {each * world}",
        )


def _of_processes(config: Settings, each: int, group: int, world: int | None) -> Iterator[Finding]:
    """The batch of rollouts is a process's batch × processes × passes."""
    steps = generation_steps(config)
    if steps is None:
        yield cannot_tell("the passes on a batch of rollouts are not known", STEPS)
        return
    passes = STEPS if config.says(STEPS) else "gradient_accumulation_steps"
    least = group // math.gcd(group, each * steps)
    if world:
        size = each * steps * world
        if size % group:
            yield _no_groups(config, f"a batch of {each} × {steps} × {world} processes = {size} rollouts", group,
                             f"choose {PROCESS} × {passes} × processes as a multiple of {group}",
                             PROCESS, passes, "num_generations")  # fmt: skip
    elif least > 1:
        yield fact(
            True,
            f"{each} × {steps} rollouts per process are not a multiple of {group}: TRL starts only with a "
            f"multiple of {least} processes",
            config.signs(PROCESS, passes, "num_generations"),
            grade=_grade(least),
            brief="only some numbers of processes work",
            remedy=f"start such a number, or choose {PROCESS} × {passes} as a multiple of {group}",
        )


def _evaluation(config: Settings, group: int, world: int | None) -> Iterator[Finding]:
    """Whole groups in a batch of the evaluation."""
    key = "per_device_eval_batch_size"
    each, of = config.whole(key), config.whole("num_generations_eval") or group
    keys = ("eval_strategy", key, "num_generations")
    if each is None:
        return
    if world and each * world % of:
        yield _no_groups(config, f"an evaluation batch of {each * world} rollouts", of,
                         f"set {key} × processes to a multiple of {of}", *keys)  # fmt: skip
    elif not world and each % of:
        least = of // math.gcd(of, each)
        yield fact(
            True,
            f"{each} rollouts per process are not a multiple of {of}: evaluation needs a multiple of {least} processes",
            config.signs(*keys),
            grade=_grade(least),
            brief="evaluation works only on some numbers of processes",
            remedy=f"start such a number, or set {key} to a multiple of {of}",
        )


def _grade(least: int) -> Grade:
    """Of a run that starts with a multiple of `least` processes only."""
    return "note" if least <= MANY else "warning"


def _no_groups(config: Settings, what: str, group: int, remedy: str, *keys: str) -> Finding:
    because = f"{what} is not a multiple of the group size {group}, and TRL refuses to start"
    return fact(True, because, config.signs(*keys), grade="failing", brief="groups do not fit the batch", remedy=remedy)
