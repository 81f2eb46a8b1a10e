"""Whether a pipeline does what it says: each claim tested from what is at hand, one joint error over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.core.instrument import Command, Instrument

if TYPE_CHECKING:
    from grposcope.core.answer import Answer
    from grposcope.signs.rollouts.evidence import Stated

INSTRUMENT = Instrument(
    "verify",
    "Does my pipeline do what it says?",
    answers="grposcope.instruments.verify.in_record",
    commands=(
        Command(
            "verify",
            "check a pipeline",
            "test that a pipeline does what it says: weights, tokens, advantages, groups, rewards",
            "grposcope.instruments.verify.command",
        ),
    ),
)


def verify(
    source: str | Path | Sequence[Mapping[str, Any]],
    stated: Stated | Mapping[str, Any] | None = None,
    rollouts: str | Path | None = None,
    reward: Callable[..., Any] | None = None,
) -> Answer:
    """Which claims hold of a run, of a file of rollouts, or of rollouts as mappings; the document has all tests.

    stated: settings, under the names of the trainer or as Stated, which count before those of the log. rollouts: where
    they lie, if not with the run. reward: the reward function, called as TRL calls it. UserError where nothing can be
    read.
    """
    from dataclasses import replace

    from grposcope.instruments.verify import answer, graders, live, read
    from grposcope.instruments.verify.caller_settings import StatedByCaller
    from grposcope.signs.rollouts import evidence, reward_function

    if isinstance(source, str | Path):
        asked = StatedByCaller(stated if isinstance(stated, Mapping) else {})
        source_evidence = read.evidence(Path(source), None if rollouts is None else Path(rollouts), asked)
        if isinstance(stated, evidence.Stated):
            source_evidence = replace(source_evidence, stated=stated)
    else:
        source_evidence = read.of_rows(source, stated)
    if reward is not None:
        source_evidence = replace(
            source_evidence, grader=graders.bounded(reward_function.of_function(reward, source_evidence.rows))
        )
    return answer.of(source_evidence, live.claims(source_evidence))
