"""Groups of rollouts from rLLM's episodes: episodes/train_step_N_epoch_E/episode_….json, an episode a file.

An episode has `episode_id` (TASK:ROLLOUT) and `trajectories`, one for each role, with `reward` and `steps`: a call of
the policy each, with the conversation up to its answer (`chat_completions`), a `reward`, and `prompt_ids`,
`response_ids`, `logprobs` where they were kept. Trajectories of one role and task are a group.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import read_whole
from grposcope.core.rollouts import Rollout
from grposcope.core.text import visible
from grposcope.core.trajectories import joined
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.rollout_columns import STOP_WORDS
from grposcope.logs.rollout_rows import row_of
from grposcope.logs.written_rollouts import WrittenFiles, kind, number

EPISODES = "episodes"
"""Folder of the steps, in the folder of a run."""

_STEP = re.compile(r"train_step_(\d{1,15})_epoch_\d{1,15}")


def find(place: Path) -> WrittenFiles | None:
    """The episodes at a place: a file, the folder of a step, the folder of all steps, or that of a run."""
    notes = list[str]()
    if place.is_file():
        if not _is_episode(place):
            return None
        return WrittenFiles("rllm", place, partial(_rollouts, notes=notes), notes=notes)
    for folder in (place / EPISODES, place):
        steps = {int(match[1]): path for path in _folders(folder) if (match := _STEP.fullmatch(path.name))}
        if steps:
            return WrittenFiles("rllm", dict(sorted(steps.items())), partial(_rollouts, notes=notes), notes=notes)
    if (match := _STEP.fullmatch(place.name)) and _files(place):
        return WrittenFiles("rllm", {int(match[1]): place}, partial(_rollouts, notes=notes), notes=notes)
    return None


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir() and _files(path)] if folder.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("episode_*.json"))


def _is_episode(path: Path) -> bool:
    return path.suffix == ".json" and KIND.recognises(LogFile(path))


def _rollouts(path: Path, notes: list[str] | None = None) -> Iterator[Rollout]:
    """The trajectories of an episode, or of all episodes of a step. notes: takes what did not fit, a sentence each.

    UserError, with the file, for what is no episode.
    """
    for file in _files(path) if path.is_dir() else [path]:
        try:
            episode = json.loads(read_whole(file))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file}: not valid JSON ({error}); give episodes as rLLM writes them") from None
        yield from _of_episode(episode, str(file), notes)


def _of_episode(episode: Any, where: str, notes: list[str] | None) -> Iterator[Rollout]:
    trajectories = episode.get("trajectories") if isinstance(episode, dict) else None
    if not isinstance(trajectories, list) or not all(isinstance(each, dict) for each in trajectories):
        raise UserError(f"{where}: no trajectories in it; give episodes as rLLM writes them")
    name = str(episode.get("episode_id") or episode.get("id") or "")
    step = episode.get("training_step")
    reason = str(episode.get("termination_reason") or "")
    for place, trajectory in enumerate(trajectories, 1):
        each = where if len(trajectories) == 1 else f"{where}, trajectory {place}"
        role = str(trajectory.get("name") or "")
        steps = trajectory.get("steps")
        if not isinstance(steps, list) or not all(isinstance(call, dict) for call in steps):
            raise UserError(f"{each}: steps is {visible(str(steps), 40)}; give a list of objects")
        calls = [_of_step(call, turn, f"{each}, step {turn + 1}") for turn, call in enumerate(steps)]
        if not calls:
            if notes is not None:
                notes.append(f"{each} has no steps, so it is left out")
            continue
        whole, told = joined(calls)
        if notes is not None:
            notes += told
        reward = number(trajectory.get("reward"), "reward", each)
        yield replace(
            whole[0],
            where=each,
            step=step if isinstance(step, int) else 0,
            group=f"{name.partition(':')[0]}:{role}",
            named=True,
            trajectory=str(trajectory.get("uid") or ""),
            turn=None,
            reward=whole[0].reward if math.isnan(reward) else reward,
            stop=STOP_WORDS.get(reason, reason),
            truncated=STOP_WORDS.get(reason) == "length" if reason else None,
            failed=reason if STOP_WORDS.get(reason, reason) == "error" else "",
            environment=role,
        )


def _of_step(call: Mapping[str, Any], turn: int, where: str) -> Rollout:
    """One call of the policy as a row; its conversation ends with the answer."""
    said = call.get("chat_completions")
    said = said if isinstance(said, list) else []
    ids = {
        name: call[key] for name, key in
        (("prompt_ids", "prompt_ids"), ("completion_ids", "response_ids"), ("rollout_logprobs", "logprobs"))
        if call.get(key)
    }  # fmt: skip
    advantage = call.get("advantage")
    return row_of(
        {
            "trajectory": "one", "turn": turn, "prompt": said[:-1] or None,
            "completion": said[-1:] or str(call.get("model_response") or ""), "reward": call.get("reward"),
            "version": call.get("weight_version"), **ids, **({} if advantage is None else {"advantage": advantage}),
        },
        where,
    )  # fmt: skip


def _is_run(folder: Path) -> bool:
    return find(folder) is not None


KIND: LogKind = replace(kind(find), document={"trajectories": list, "termination_reason": object}, folder=_is_run)
"""Episodes by themselves, or the folder of a run that has them."""
