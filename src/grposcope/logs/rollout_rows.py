"""One rollout from an object with any of the names in `rollout_columns.NAMES`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import json_number
from grposcope.core.rollouts import Bools, Floats, Ints, Rollout, turns_of
from grposcope.core.text import visible
from grposcope.core.trajectories import joined
from grposcope.logs.rollout_columns import ENVIRONMENTS, NAMES, STOP_WORDS

_OF_FUNCTION = re.compile(r"(?!total_|mean_)\w+_reward(?:_func(?:tion)?|_fn)?")
"""Names of columns beside the reward that are those of its functions."""

_EVERY = frozenset(name for names in NAMES.values() for name in names)
_OF_TOKENS = ("mask", "attended", "written", "turns", "sampler", "old", "current", "reference", "loss_weights", "last",
              "last_weights")  # fmt: skip
_NO_REWARDS = _EVERY | {"gts"}
_FLAGS = ("mask", "attended", "written")
_OURS = _EVERY - set(NAMES["environment"][1:])
_LISTS = ("turns", "turn_rewards", "anchors", "version_by_turn", "attended")
_SHARED = frozenset((
    "prompts", "responses", "rewards", "metrics", "length", *NAMES["environment"], *NAMES["stop"],
    *NAMES["trajectory"], *NAMES["turn"],
    *(name for column in _LISTS for name in NAMES[column]),
))  # fmt: skip


def rows_of(rows: Iterable[tuple[str, Mapping[str, Any]]], notes: list[str] | None = None) -> list[Rollout]:
    """The rollouts of a file, of (where, row), with their environment by one column for all of them; as `row_of`.

    Rows of one trajectory are one rollout. notes: takes what did not fit, a sentence each.
    """
    every = list(rows)
    name = _environment_column([row for _, row in every])
    made = [row_of(row, where) for where, row in every]
    if name is not None:
        made = [replace(own, environment=_word_of(row[name])) for own, (_, row) in zip(made, every, strict=True)]
    of_rollouts = _by_rollout_id(made, [_name_of(row.get("rollout_id")) for _, row in every])
    whole, told = joined(map(_with_turns, of_rollouts or made), same_prompt=of_rollouts is not None)
    if notes is not None:
        if of_rollouts is not None:
            notes.append(f"rows of one rollout_id are one rollout: {len(every):,} rows, {len(whole):,} rollouts")
        notes += told
    return whole


def _by_rollout_id(rows: Sequence[Rollout], ids: Sequence[str]) -> list[Rollout] | None:
    """Rows with their `rollout_id` as their trajectory, where it names rollouts that are several rows of training; None
    where it may count steps, batches or rows.

    It names rollouts where every row has one and no turn, rows of one are siblings of one reward and one advantage, and
    a group has several of them whose rewards differ.
    """
    if not all(ids) or any(row.turn is not None or row.trajectory for row in rows):
        return None
    of_id: dict[tuple[int, str], list[Rollout]] = {}
    for row, name in zip(rows, ids, strict=True):
        of_id.setdefault((row.step, name), []).append(row)
    if len(of_id) == len(rows) or any(len({_outcome(row) for row in own}) > 1 for own in of_id.values()):
        return None
    rewards: dict[tuple[int, str | None], set[float]] = {}
    for own in of_id.values():
        if not math.isnan(own[0].reward):
            rewards.setdefault((own[0].step, own[0].group), set()).add(own[0].reward)
    if all(len(values) == 1 for values in rewards.values()):
        return None
    return [replace(row, trajectory=name) for row, name in zip(rows, ids, strict=True)]


def _outcome(row: Rollout) -> tuple[object, ...]:
    """What rows of one rollout share: the group, the reward, and an advantage that stands for all tokens."""
    advantage = row.advantages
    whole = None if advantage is None or not len(advantage) or np.ptp(advantage) != 0 else float(advantage[0])
    return row.group if row.named else None, None if math.isnan(row.reward) else row.reward, whole


def _environment_column(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The column of a file that says which environment a rollout is of, one for all of its rows.

    The first that tells 2 to ENVIRONMENTS apart, else the first that all have; None where no column has a text for all.
    """
    texts = {name: [_word_of(row.get(name)) for row in rows] for name in NAMES["environment"]}
    counts = {name: len(set(column)) for name, column in texts.items() if column and all(column)}
    several = next((name for name, count in counts.items() if 2 <= count <= ENVIRONMENTS), None)
    return several or next((name for name, count in counts.items() if count == 1), None)


def row_of(row: Mapping[str, Any], where: str) -> Rollout:
    """One rollout from an object with names as in NAMES.

    A mask over prompt and completion is divided between them. UserError for lists of other lengths than the
    completion's, and for values of another type.
    """
    values = _values(row)
    if isinstance(row.get("rewards"), list) and isinstance(values["reward"], list):
        raise UserError(f'{where}: rewards is not an object such as {{"right": 1, "format": 0.5}}')
    lists, before, after = _tokens(values, where)
    flags = {name: None if lists[name] is None else lists[name] != 0 for name in _FLAGS}
    named, group = _group(values, before)
    stop = str(values["stop"] or "")
    trajectory = _name_of(values["trajectory"])
    return Rollout(
        where=where,
        step=int(_number(values["step"], "step", where, 0.0)),
        group=group,
        named=named,
        problem=str(values["problem"] if values["problem"] is not None else ""),
        prompt=_text(values["prompt"], "prompt", where),
        completion=_text(values["completion"], "completion", where),
        prompt_ids=before,
        completion_ids=after,
        mask=flags["mask"],
        attended=flags["attended"],
        written=flags["written"],
        prompt_trained=_bools(lists["prompt_trained"]),
        sampler=lists["sampler"],
        old=lists["old"],
        current=lists["current"],
        reference=lists["reference"],
        loss_weights=lists["loss_weights"],
        micro_batch=int(_number(values["micro_batch"], "micro_batch", where, 0.0)),
        last=lists["last"],
        last_weights=lists["last_weights"],
        last_step=int(_number(values["last_step"], "last_step", where, 0.0)),
        last_part=int(_number(values["last_part"], "last_part", where, 0.0)),
        rewards=_rewards(values["rewards"], where),
        reward=_number(values["reward"], "reward", where, math.nan),
        advantages=lists["advantages"],
        length=_number(values["length"], "length", where, math.nan),
        turns=None if lists["turns"] is None else lists["turns"].astype(np.int64),
        trajectory=trajectory,
        turn=values["turn"],
        pieces=int(_number(values["pieces"], "pieces", where, 1.0)),
        turn_rewards=_array(values["turn_rewards"], np.float64, "turn_rewards", where),
        stop=STOP_WORDS.get(stop, stop),
        anchors=tuple(map(str, values["anchors"] or ())),
        version=_number(values["version"], "version", where, math.nan),
        version_by_turn=_array(values["version_by_turn"], np.float64, "version_by_turn", where),
        truncated=_truncated(values["truncated"], values["stop"]),
        environment=_word_of(values["environment"]),
        failed=_reason(values["failed"]),
        dropped=_reason(values["dropped"]),
        columns={name: value for name, value in row.items() if name not in _OURS},
    )


def _is_of_verl(row: Mapping[str, Any]) -> bool:
    """Whether an object is a rollout as verl dumps it, whose further numbers are of its reward function."""
    return "output" in row and "score" in row and ("input" in row or "uid" in row)


def _is_of_trl(row: Mapping[str, Any]) -> bool:
    """Whether an object is a row of TRL's completions, whose further numbers are rewards by function."""
    return {"prompt", "completion", "advantage"} <= row.keys() and not ({"reward", "score", "rewards"} & row.keys())


@lru_cache(64)
def _columns(keys: tuple[str, ...]) -> list[tuple[str, list[str], Callable[[Any], bool] | None]]:
    """Our columns that rows with these keys may have: with its names among them, and what its value must be."""
    return [
        (column, own, _FITS.get(column))
        for column, names in NAMES.items()
        if (own := [name for name in names if name in keys])
    ]


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Our column -> its value, None where the row lacks it; names of two columns go by what is in them."""
    values: dict[str, Any] = dict.fromkeys(NAMES)
    for column, names, fits in _columns(tuple(row)):
        values[column] = _value_of(row, names, fits)
    values |= _whose(row, values["group"], values["trajectory"], values["turn"])
    if isinstance(values["reward"], list) and _is_per_token(values["reward"], row):
        values["reward"] = math.fsum(values["reward"])
    of_all = row.get("token_ids")
    if of_all is not None and values["prompt_ids"] is None and values["completion_ids"] is of_all:
        values["sequence_ids"], values["completion_ids"] = values["completion_ids"], None
    values["rewards"] = _by_function(row, values["rewards"])
    return values


def _value_of(row: Mapping[str, Any], names: Sequence[str], fits: Callable[[Any], bool] | None) -> Any:
    """The first value that a row has under names of a column and that may be of it, by `_columns`; else None."""
    for name in names:
        if row[name] is not None and (fits is None or name not in _SHARED or fits(row[name])):
            return row[name]
    return None


def _whose(row: Mapping[str, Any], group: Any, trajectory: Any, turn: Any) -> dict[str, Any]:
    """Group, trajectory and turn of a row, by what stands there as one of them: a uid may name the other two as well,
    and a rollout_id without a turn names no trajectory by itself."""
    if row.get("uid") is not None and row["uid"] is group:
        if trajectory is None:
            trajectory, turn = _trajectory_of(str(group))
        group = _group_of(str(group))
    elif group is None and isinstance(trajectory, Mapping):
        group = trajectory.get("instance_id")
    if turn is None and trajectory is row.get("rollout_id"):
        trajectory = None
    return {"group": group, "trajectory": trajectory, "turn": turn}


_OF_VERL = re.compile(r"(?P<group>.+?)_(?P<session>\d{1,9})_(?P<output>\d{1,9})")


def _group_of(identity: str) -> str:
    """The group of an id of the pipeline's own: that of verl without the numbers of session and output."""
    match = _OF_VERL.fullmatch(identity)
    return match["group"] if match else identity


def _trajectory_of(identity: str) -> tuple[str, int | None]:
    """The trajectory that an id of verl names, and the place in it of the output; empty and None for any other id."""
    match = _OF_VERL.fullmatch(identity)
    return (f"{match['group']}_{match['session']}", int(match["output"])) if match else ("", None)


def _by_function(row: Mapping[str, Any], rewards: Any) -> Any:
    """The numbers among rewards by function, which verl, TRL and verifiers write beside the row's other columns."""
    if rewards is None and (_is_of_verl(row) or _is_of_trl(row)):
        return {name: own for name, own in row.items() if name not in _NO_REWARDS and isinstance(own, int | float)}
    if not rewards and isinstance(row.get("reward"), int | float) and not isinstance(row.get("rewards"), Mapping):
        return {name: own for name, own in row.items() if _OF_FUNCTION.fullmatch(name) and isinstance(own, int | float)}
    if isinstance(rewards, Mapping) and not isinstance(row.get("rewards"), Mapping):
        return {name: own for name, own in rewards.items() if isinstance(own, int | float)}
    return rewards


def _tokens(values: Mapping[str, Any], where: str) -> tuple[dict[str, Any], Ints | None, Ints | None]:
    """The lists with a value per token of the completion, the ids of the prompt and those of the completion."""
    lists = {name: _array(values[name], np.float64, name, where) for name in _OF_TOKENS}
    advantages = values["advantages"]
    lists["advantages"] = _array(
        advantages if isinstance(advantages, list | np.ndarray) or advantages is None else [advantages],
        np.float64, "advantages", where,
    )  # fmt: skip
    before, after, whole = (
        _array(values[name], np.int64, name, where) for name in ("prompt_ids", "completion_ids", "sequence_ids")
    )
    of_prompt = _array(values["prompt_trained"], np.float64, "prompt_trained", where)
    mask = lists["mask"]
    if before is not None and after is not None and mask is not None and len(mask) == len(before) + len(after) != 0:
        of_prompt = mask[: len(before)]
    before, after = _cut(lists, before, after, whole)
    lengths = {name: len(own) for name, own in lists.items() if own is not None and not _for_all(name, own)}
    if after is not None:
        lengths["completion_ids"] = len(after)
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise UserError(f"{where}: columns of one completion differ in length ({shown}); give a value per token")
    return {**lists, "prompt_trained": of_prompt}, before, after


def _cut(
    lists: dict[str, Any], before: Ints | None, after: Ints | None, whole: Ints | None
) -> tuple[Ints | None, Ints | None]:
    """Ids of prompt and completion; what stands over both in one list is cut, in `lists` too.

    Without ids of the prompt, a sequence whose mask begins with zeros is a prompt up to its first trained token.
    """
    mask = lists["mask"]
    if whole is None:
        width = None if before is None or after is None else len(before) + len(after)
        start = 0 if before is None else len(before)
    else:
        width = len(whole)
        start = _start(whole, before, mask)
        before, after = (before if before is not None else whole[:start] if start else None), whole[start:]
    for name, own in lists.items():
        if own is not None and width and start and len(own) == width and not _for_all(name, own):
            lists[name] = own[start:]
    return before, after


def _start(whole: Ints, before: Ints | None, mask: Floats | None) -> int:
    """Where in a sequence the completion begins."""
    if before is not None:
        return len(before)
    if mask is None:
        return 0
    if len(mask) < len(whole):
        return len(whole) - len(mask)
    return int(np.argmax(mask != 0)) if (mask != 0).any() else 0


def _group(values: Mapping[str, Any], ids: Ints | None) -> tuple[bool, str | None]:
    """Whether the pipeline names the group, and what tells it from others."""
    if values["group"] is not None:
        return True, str(values["group"])
    if values["problem"] is not None:
        return False, str(values["problem"])
    if values["prompt"] is not None:
        return False, str(values["prompt"])
    return False, None if ids is None or not len(ids) else " ".join(map(str, ids))


def _with_turns(row: Rollout) -> Rollout:
    """A rollout with the turn of each token, by the runs of tokens that the policy wrote where there are several."""
    drawn = row.written if row.written is not None else row.mask
    if row.turns is not None or drawn is None or not len(drawn):
        return row
    runs = turns_of(drawn)
    return replace(row, turns=runs) if runs[-1] > 0 else row


def _name_of(name: Any) -> str:
    """The name of a trajectory, empty where there is none; of SkyRL's object, the instance and its repetition."""
    return "" if name is None else "_".join(map(str, name.values())) if isinstance(name, Mapping) else str(name)


def _is_per_token(rewards: list[Any], row: Mapping[str, Any]) -> bool:
    """Whether rewards are numbers, one for each token of the response, as SkyRL has them."""
    ids = row.get("response_ids")
    return isinstance(ids, list) and len(ids) == len(rewards) and all(isinstance(r, int | float) for r in rewards)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, int) for element in value)


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "prompt": lambda value: not _is_ids(value),
    "completion": lambda value: not _is_ids(value),
    "prompt_ids": _is_ids,
    "completion_ids": _is_ids,
    "rewards": lambda value: isinstance(value, Mapping),
    "reward": lambda value: not isinstance(value, Mapping),
    "length": lambda value: isinstance(value, int | float),
    "environment": lambda value: bool(_word_of(value)),
    "stop": lambda value: isinstance(value, str),
    "trajectory": lambda value: isinstance(value, str | int | Mapping),
    "turn": lambda value: isinstance(value, int) and not isinstance(value, bool),
    **dict.fromkeys(_LISTS, lambda value: isinstance(value, list)),
}
"""Of a column that shares names with others, or with what a data set may have, what its values are."""


def _word_of(value: Any) -> str:
    """The text of a column; of a list, as one per token, that which all are; empty for anything else."""
    if isinstance(value, list) and value and all(element == value[0] for element in value):
        value = value[0]
    return visible(value, 40) if isinstance(value, str) else ""


def _for_all(name: str, values: Floats) -> bool:
    """Whether one advantage stands for all tokens."""
    return name == "advantages" and len(values) == 1


def _bools(values: Floats | None) -> Bools | None:
    return None if values is None else np.asarray(values != 0)


def _reason(value: Any) -> str:
    return str(value) if value and value is not True else "yes" if value else ""


def _truncated(value: Any, reason: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return None if reason is None else STOP_WORDS.get(str(reason), str(reason)) == "length"


def _text(value: Any, name: str, where: str) -> Any:
    """A text, or a conversation as it is, None for NaN; UserError for what is neither."""
    if isinstance(value, list) and not all(isinstance(message, Mapping) for message in value):
        raise UserError(f"{where}: {name} is a list of something else than messages; write token ids as {name}_ids")
    if value is None or isinstance(value, str | list):
        return value
    if isinstance(value, float) and math.isnan(value):
        return None
    raise UserError(f"{where}: {name} is a {type(value).__name__}; give a text, or a list of messages")


def _array(value: Any, kind: type, name: str, where: str) -> Any:
    if value is None:
        return None
    try:
        made: Any = np.array(
            [math.nan if element is None else element for element in value] if kind is np.float64 else value, kind
        )
    except (ValueError, TypeError, OverflowError):
        made = np.empty((0, 0))
    if made.size == 0 and made.ndim == 1:
        return np.empty(0, kind)
    if made.ndim != 1:
        each = "turn" if name in ("turn_rewards", "version_by_turn") else "token"
        raise UserError(f"{where}: {name} is not a list of numbers; give one per {each}")
    return made


def _number(value: Any, name: str, where: str, absent: float) -> float:
    number = absent if value is None else json_number(value)
    if number is None or (name == "step" and not abs(number) < 2**63):
        raise UserError(f"{where}: {name} is {visible(str(value), 40)}; give a number, or leave it out")
    return number


def _rewards(value: Any, where: str) -> dict[str, float]:
    if value is None:
        return {}
    return {
        str(name): _number(own, f"the reward {visible(str(name), 40)}", where, math.nan) for name, own in value.items()
    }
