"""Completions that will be cut, and sequences that do not fit where they have to go."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.text import percent
from grposcope.instruments.lint.checks.derived import ACTOR, ROLLOUT
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold
from grposcope.maths.timeseries.change import LATE

MANY, SOME = 0.5, 0.1
"""Shares of cut completions from which most, and from which many, rollouts are lost."""

KEYS = {"trl": "max_completion_length", "verl": "data.max_response_length"}
"""The key of the longest completion."""


def truncation(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """The share of completions that will be cut, from an earlier run with a limit at least as high."""
    key = KEYS[config.dialect.name]
    limit = config.whole(key)
    masked = config.on("mask_truncated_completions")
    if limit is None:
        yield Untold(f"{key} is not known")
        return
    if known.run is None:
        yield Untold("the lengths of completions are not known: give an earlier run")
        return
    run, before = known.run, known.run.setting("max_tokens")
    cut = _late(run.table.get("truncated", run.table.get("at_limit")))
    length = _late(run.table.get("length"))
    if length is not None and limit < length:
        yield Fault("failing", "most completions will be cut", f"the limit is {limit} tokens, but at the end of "
                      f"{run.meta.name} completions were {length:.0f} tokens long on average",
                      f"set {key} to {2 * length:.0f} or more", (key,))  # fmt: skip
    elif cut is not None and cut >= SOME and (before is None or limit <= before):
        at = f"a limit of {before} tokens" if before else "an unknown limit"
        what = "are left out of the loss" if masked else "are graded as they are, mostly as wrong"
        yield Fault("warning" if cut >= MANY else "note", "many completions will be cut", f"{percent(cut)} of the "
                      f"completions of {run.meta.name} were cut, at {at}; they {what}",
                      f"raise {key}", (key, *(["mask_truncated_completions"] if masked else [])))  # fmt: skip


def masked_groups(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """TRL: cut completions are masked from the loss, but stay in the mean and the deviation of their group."""
    if config.on("mask_truncated_completions"):
        yield Fault("note", "truncated completions still count in the baseline", "they are left out of the loss, but "
                      "their rewards, mostly 0, stay in the mean of the group, so correct complete answers gain from "
                      "them; a batch in which every completion is truncated has no gradient",
                      "watch completions/clipped_ratio, and raise max_completion_length if it is above 0.1",
                      ("mask_truncated_completions",))  # fmt: skip


def no_room(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """Prompt and completion together do not fit the engine, or a micro-batch of tokens."""
    if config.dialect.name == "trl":
        limit, room = config.whole("max_completion_length"), config.whole("vllm_max_model_length")
        room = room or config.whole("vllm_max_model_len")
        before = config.whole("max_prompt_length") or 0
        keys = ("max_completion_length", "vllm_max_model_length")
        if limit and room and limit + before > room:
            yield Fault("failing", "completions do not fit the engine", f"prompt and completion may have "
                        f"{limit + before} tokens, but the engine holds {room}",
                        f"set vllm_max_model_length to {limit + before} or more", keys)  # fmt: skip
        return
    prompt, answer = config.whole("data.max_prompt_length"), config.whole("data.max_response_length")
    if prompt is None or answer is None:
        yield Untold("the longest prompt or completion is not known")
        return
    both = ("data.max_prompt_length", "data.max_response_length")
    room = config.whole(ROLLOUT + "max_model_len")
    if room and room < prompt + answer:
        yield Fault("warning", "sequences do not fit the engine", f"prompt and completion may have {prompt + answer} "
                      f"tokens, but the engine holds {room}",
                      f"set {ROLLOUT}max_model_len to {prompt + answer} or more",
                      (*both, ROLLOUT + "max_model_len"))  # fmt: skip
    budget = config.whole(ACTOR + "ppo_max_token_len_per_gpu")
    parallel = config.whole(ACTOR + "ulysses_sequence_parallel_size") or 1
    if config.on(ACTOR + "use_dynamic_bsz") and budget and budget * parallel < prompt + answer:
        yield Fault("warning", "a long sequence crashes the run", f"a micro-batch holds {budget * parallel} tokens, "
                      f"but a sequence may have {prompt + answer}: the first that is too long fails an assertion",
                      f"set {ACTOR}ppo_max_token_len_per_gpu to {-(-(prompt + answer) // parallel)} or more",
                      (*both, ACTOR + "ppo_max_token_len_per_gpu"))  # fmt: skip


def _late(column: np.ndarray | None) -> float | None:
    """Mean of the last part of a column, LATE; None where it has no finite value there."""
    if column is None:
        return None
    late = column[int(LATE[0] * len(column)) :]
    late = late[np.isfinite(late)]
    return float(late.mean()) if len(late) else None
