"""Prompt and completion together are longer than the engine, or a micro-batch of tokens, can hold.

What it is
    The longest prompt and the longest completion add up to more than the engine's context, or than the tokens of a
    micro-batch where verl packs them.
How it shows
    The engine refuses or cuts such sequences; verl's packing fails an assertion at the first that is too long, which
    may be hours into the run.
What it does to the gradient
    Nothing where the run stops; completions that are cut are graded as wrong.
What to do
    Give the engine and the micro-batch room for prompt and completion.
What decides
    The longest sequence of a batch beside both limits.
Sources
    verl 0.9.1, seqlen_balancing: https://github.com/verl-project/verl
    verl docs, perf/perf_tuning: https://verl.readthedocs.io/en/latest/perf/perf_tuning.html"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.verl import ACTOR, ROLLOUT

BOTH = ("data.max_prompt_length", "data.max_response_length")
ROOM, TOKENS = ROLLOUT + "max_model_len", ACTOR + "ppo_max_token_len_per_gpu"


def settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The sum of both lengths against the engine's, and verl's micro-batch of tokens."""
    if config.dialect.name == "trl":
        yield from _trl(config)
        return
    prompt, answer = (config.whole(key) for key in BOTH)
    if prompt is None or answer is None:
        yield cannot_tell("the longest prompt or completion is not known", *BOTH)
        return
    both, room = prompt + answer, config.whole(ROOM)
    if room and room < both:
        yield fact(True, f"prompt and completion may have {both} tokens, but the engine holds {room}",
                   config.signs(*BOTH, ROOM), grade="warning", brief="sequences do not fit the engine",
                   remedy=f"set {ROOM} to {both} or more")  # fmt: skip
    budget, parallel = config.whole(TOKENS), config.whole(ACTOR + "ulysses_sequence_parallel_size") or 1
    if config.on(ACTOR + "use_dynamic_bsz") and budget and budget * parallel < both:
        yield fact(
            True,
            f"a micro-batch holds {budget * parallel} tokens, but a sequence may have {both}: the first that is too "
            "long fails an assertion",
            config.signs(*BOTH, TOKENS),
            grade="warning",
            brief="a long sequence crashes the run",
            remedy=f"set {TOKENS} to {-(-both // parallel)} or more",
        )


def _trl(config: Settings) -> Iterator[Finding]:
    """The context of TRL's vLLM."""
    key = "vllm_max_model_length"
    limit, room = config.whole("max_completion_length"), config.whole(key) or config.whole("vllm_max_model_len")
    both = (limit or 0) + (config.whole("max_prompt_length") or 0)
    if limit and room and both > room:
        yield fact(True, f"prompt and completion may have {both} tokens, but the engine holds {room}",
                   config.signs("max_completion_length", key), grade="failing",
                   explains=("length", "unseen truncation"),
                   brief="completions do not fit the engine", remedy=f"set {key} to {both} or more")  # fmt: skip


FAULT = Fault(
    name="room for sequences",
    rank=1.6,
    remedy="give the engine and the micro-batch room for prompt and completion",
    settings=SettingsCheck(
        "room for sequences",
        settings,
        ("trl", "verl"),
        "sequences longer than the engine or a micro-batch can hold",
        ("failing", "warning"),
    ),
)
