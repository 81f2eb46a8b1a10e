"""Prompt and completion together are longer than the engine, or a micro-batch of tokens, can hold.

What it is
    The longest prompt and the longest completion add up to more than the engine's context, or than the tokens of a
    micro-batch where verl packs them.
How it shows
    The engine refuses or cuts such sequences; verl's packing fails an assertion at the first that is too long, which
    may be hours into the run. In a log: many prompts are as long as the longest that is allowed, in every row.
What it does to the gradient
    Nothing where the run stops; completions that are cut are graded as wrong.
What to do
    Give the engine and the micro-batch room for prompt and completion.
What decides
    The longest sequence of a batch beside both limits.
Sources
    settings of ms-swift 4.6, OpenRLHF 0.11, slime, SkyRL, NeMo-RL, prime-rl and Open Instruct, 2026
    verl 0.9.1, seqlen_balancing: https://github.com/verl-project/verl
    verl docs, perf/perf_tuning: https://verl.readthedocs.io/en/latest/perf/perf_tuning.html"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number, percent
from grposcope.faults.known_task import Known
from grposcope.signs.quantities import LEAST, Quantities
from grposcope.signs.settings.names import key_of
from grposcope.signs.settings.verl import ACTOR, ROLLOUT

BOTH = ("data.max_prompt_length", "data.max_response_length")
ROOM, TOKENS = ROLLOUT + "max_model_len", ACTOR + "ppo_max_token_len_per_gpu"

_SHARED = ("ulysses_sequence_parallel_size", "fsdp_config.ulysses_sequence_parallel_size",
           "veomni.ulysses_parallel_size", "megatron.context_parallel_size")  # fmt: skip
"""Keys below verl's actor of the GPUs that share a sequence."""

_OTHERS = {
    "ms-swift": "the engine of the sampler", "skyrl": "the engine of the sampler", "slime": "the context of a rollout",
    "nemo-rl": "a sequence of the policy", "prime-rl": "a sequence that is trained on",
    "openrlhf": "a whole sequence", "open-instruct": "a packed row, which the trainer checks at its start",
}  # fmt: skip
"""Trainer -> what its largest length is of."""


_AT_LIMIT, _SHORT = 0.1, 0.5
"""Share of prompts at the limit from which prompts are cut, and length of the shortest over it at most."""

_ROOM_FOR_PROMPTS = (
    "raise the limit of prompts (data.max_prompt_length), or leave longer ones out before training "
    "(data.filter_overlong_prompts): what is cut off is often the question or the template's last words; read one such "
    "prompt as the sampler has it"
)
"""What to do where prompts are cut."""


def _check(quantities: Quantities) -> Finding:
    """That _AT_LIMIT of the prompts or more are as long as the longest, which is one number in every row."""
    share, longest, least = (quantities.column(f"prompt_length/{name}") for name in ("clip_ratio", "max", "min"))
    if share is None or longest is None or least is None or min(len(share), len(longest)) < LEAST:
        return cannot_tell("how many prompts are at their limit is not logged")
    at_limit, top = float(np.median(share.values)), float(longest.values.max())
    walled = not np.ptp(longest.values) and float(np.median(least.values)) <= _SHORT * top
    evidence = (Sign("prompts at the limit, median of the rows", at_limit, limit=f"counts from {_AT_LIMIT:g}"),)
    if not walled or not _AT_LIMIT <= at_limit <= 1:
        return fact(False, "prompts are shorter than their limit, but for few", evidence)
    because = (
        f"{percent(at_limit)} of the prompts have {number(top)} tokens in the median row, and none of any row has "
        "more, as where longer ones are cut there"
    )
    brief = f"{percent(at_limit)} of prompts cut at {number(top)} tokens"
    return fact(True, because, evidence, brief=brief, remedy=_ROOM_FOR_PROMPTS, grades=("warning", "failing"),
                explains=("never paid", "no learning"))  # fmt: skip


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The sum of both lengths against the engine's, and verl's micro-batch of tokens."""
    if config.dialect.name == "trl":
        yield from _trl(config)
        return
    if config.dialect.name in _OTHERS:
        yield from _of_others(config)
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
    budget = config.whole(TOKENS)
    parallel = max(config.whole(ACTOR + key) or 1 for key in _SHARED)
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


def _of_others(config: Settings) -> Iterator[Finding]:
    """The largest prompt and completion against the largest sequence, both as they are given."""
    limit, prompt, room = (key_of(config, name) for name in ("max_tokens", "max_prompt", "room"))
    answer, holds = config.whole(limit), config.whole(room)
    if answer is None or holds is None:
        yield cannot_tell(f"{limit} or {room} is not known", limit, room)
        return
    asked = (config.whole(prompt) if config.says(prompt) else None) or 0
    whole = asked + answer
    if whole <= holds:
        return
    what = "prompt and completion may have" if asked else "a completion alone may have"
    least = f"{whole} or more" if asked else f"more than {whole}"
    yield fact(
        True,
        f"{what} {whole} tokens, but {_OTHERS[config.dialect.name]} holds {holds}: what is beyond it is cut, or the "
        "run stops there",
        config.signs(limit, *([prompt] if asked else []), room),
        grade="warning" if answer > holds else "note",  # prompts may be shorter than their limit
        explains=("length", "unseen truncation"),
        brief="sequences do not fit",
        remedy=f"set {room} to {least}, or {limit} to less",
    )


FAULT = Fault(
    name="room for sequences",
    rank=1.6,
    remedy="give the engine and the micro-batch room for prompt and completion",
    log=LogTest(
        "room for sequences",
        _check,
        needs=(),
        statistic="share of prompts that are as long as the longest",
        threshold=f"{_AT_LIMIT:g} in the median row, the longest being one number in every row and the shortest at "
        f"most {_SHORT:g} of it",
        where_logged=True,
    ),
    settings=SettingsCheck(
        "room for sequences",
        _settings,
        ("trl", "verl", *_OTHERS),
        "sequences longer than the engine or a micro-batch can hold",
        ("failing", "warning", "note"),
    ),
)
