"""Groups of rollouts from the traces of verifiers: those of prime-rl's orchestrator, and of evaluations.

- rollouts/step_N/train/effective/traces.jsonl in the run of prime-rl, a line per episode: `task`, `group`, `env`,
  `run` and `traces`, one for each agent. `effective` are those that were trained on; `all`, taken where there is no
  other, has the failed and rejected ones too. Log-probabilities have four decimals there.
- traces.jsonl of an evaluation by verifiers, the same without `group`: rollouts of one task are one.
- results.jsonl of verifiers up to 0.1: `example_id`, `prompt`, `completion`, `reward`, `metrics`; no tokens.

A trace is a graph of messages (`nodes`), each with its tokens, of which those under `mask` were sampled. The reward is
the sum of score × weight. Of a trace with several branches, the one that was sampled last is the rollout, and the
others are its `continuations`. A trace whose messages do not lead to its root is left out, with a note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import json_lines
from grposcope.core.rollouts import Bools, Floats, Rollout, turns_of
from grposcope.core.text import visible
from grposcope.core.trajectories import joined, with_histories
from grposcope.logs.formats.kind import OBJECTS
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.rollout_columns import STOP_WORDS
from grposcope.logs.rollout_rows import row_of
from grposcope.logs.written_rollouts import WrittenFiles, kind, messages, number, numbers

TRACES, RESULTS = "traces.jsonl", "results.jsonl"
"""Files of episodes, and of rollouts before there were episodes."""

_STEP = re.compile(r"step_(\d{1,15})")
_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")
_PER_SAMPLED = {"logprobs": math.nan, "trainer_logprobs": math.nan, "advantages": 0.0}
"""Column with a value for each sampled token -> the value of the others."""


def find(path: Path) -> WrittenFiles | None:
    """The traces at a place: a file, a folder with one, or rollouts/ of prime-rl, itself or in the folder of a run."""
    if path.is_file():
        return _of_file(path)
    for folder in (path / "rollouts", path):
        if paths := _step_files(folder):
            notes = list[str]()
            return WrittenFiles("prime-rl", paths, partial(_stepped, notes=notes), notes=notes)
    return next((_of_file(path / name) for name in (TRACES, RESULTS) if (path / name).is_file()), None)


def _step_files(folder: Path) -> dict[int, Path]:
    """Step -> file of the episodes of training in a folder rollouts/ of prime-rl; empty for any other folder."""
    if not folder.is_dir():
        return {}
    steps = {int(match[1]): path for path in folder.iterdir() if (match := _STEP.fullmatch(path.name))}
    paths: dict[int, Path] = {}
    for step in sorted(steps):
        kinds = (steps[step] / "train" / subset / TRACES for subset in ("effective", "all"))
        if (path := next((path for path in kinds if path.is_file()), None)) is not None:
            paths[step] = path
    return paths


def _is_episode(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("traces"), list) and isinstance(row.get("task"), dict)


def _is_trace(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("nodes"), list) and isinstance(row.get("task"), dict)


def _is_result(row: Mapping[str, Any]) -> bool:
    return {"example_id", "prompt", "completion", "reward"} <= row.keys()


def _of_file(path: Path) -> WrittenFiles | None:
    if not KIND.recognises(LogFile(path)):
        return None
    row = LogFile(path).first_row or {}
    engine = "prime-rl" if isinstance(run := row.get("run"), dict) and run.get("type") == "train" else "verifiers"
    in_path = _step_in(path)
    steps = {in_path: path} if in_path is not None else {rollout.step: path for rollout in rollouts(path, notes=[])}
    notes = list[str]()
    read = partial(rollouts, step=in_path, notes=notes)
    return WrittenFiles(engine, dict(sorted(steps.items())) or {0: path}, read, notes=notes)


def _step_in(path: Path) -> int | None:
    """The step in the folders of a file as prime-rl names them."""
    names = path.resolve().parts[-4:-1]
    return next((int(match[1]) for name in names if (match := _STEP.fullmatch(name))), None)


def _stepped(path: Path, notes: list[str]) -> Iterator[Rollout]:
    return rollouts(path, _step_in(path), notes)


class _BrokenTraceError(UserError):
    """A trace whose messages do not lead to its root."""


def rollouts(path: Path, step: int | None = None, notes: list[str] | None = None) -> Iterator[Rollout]:
    """The rollouts of the agents that are trained, in the order of the file.

    step: of all of them, by default the one at which each was drawn. notes: takes what was left out, a sentence each;
    without it, nothing is. UserError, with the line, for what does not fit.
    """
    for line, row in json_lines(path, growing=True):
        where = f"{path}, line {line}"
        if _is_episode(row):
            yield from _of_episode(row, where, step, notes)
        elif _is_trace(row):
            yield from _of_episode({"task": row["task"], "traces": [row]}, where, step, notes)
        elif _is_result(row):
            yield _of_result(row, where, step)
        else:
            has = visible(", ".join(row), 60)
            raise UserError(f"{where}: no traces, nodes or completion in it (it has {has}); give {TRACES} unchanged")


def _of_episode(row: Mapping[str, Any], where: str, step: int | None, notes: list[str] | None) -> Iterator[Rollout]:
    run, env, group = (_object(row, name, where) for name in ("run", "env", "group"))
    work = _object(run, "work", where)
    policy = _object(work, "policy", where)
    at = step if step is not None else _whole(work.get("step"), "step", where)
    environment = str(env.get("name") or env.get("id") or "")
    for place, trace in enumerate(row["traces"], 1):
        each = where if len(row["traces"]) == 1 else f"{where}, trace {place}"
        if not isinstance(trace, dict):
            raise UserError(f"{each}: {visible(str(trace), 40)} is not a trace; give {TRACES} unchanged")
        if _object(trace, "agent", each).get("trainable", True) is not False:
            key = group.get("id")
            version = number(policy.get("start"), "policy/start", each)
            try:
                made = _of_trace(trace, each, at, _task(row["task"]), version, environment)
            except _BrokenTraceError as error:
                if notes is None:
                    raise
                notes.append(f"{error}; the trace was left out")
                continue
            yield made if key is None else replace(made, group=str(key), named=True)


def _of_trace(trace: Mapping[str, Any], where: str, step: int, group: str, version: float, environment: str) -> Rollout:
    path, *branches = _paths(trace.get("nodes") or [], where)
    first = next((k for k, node in enumerate(path) if node.get("sampled")), len(path))
    said = messages([node.get("message") for node in path], "message", where)
    scores, reward = _rewards(trace.get("rewards"), where)
    errors = trace.get("errors")
    failed = ""
    if trace.get("ok") is False:
        last = errors[-1] if isinstance(errors, list) and errors else None
        failed = str(last.get("type")) if isinstance(last, dict) else str(trace.get("stop_condition") or "not ok")
    whole = Rollout(
        where=where,
        step=step,
        group=group,
        prompt=said[:first],
        completion=said[first:],
        reward=math.nan if failed and not scores else reward,
        rewards=scores,
        truncated=_truncated(trace),
        version=version,
        environment=environment,
        failed=failed,
        stop=_stop(trace, failed),
        pieces=1 + len(branches),
        **_tokens(path, where),
    )
    return with_histories(whole, (Rollout(where=where, **_tokens(branch, where)) for branch in branches))


def _paths(nodes: Any, where: str) -> list[list[Mapping[str, Any]]]:
    """The messages from the root to each that was sampled and that no other sampled one follows, the last one first."""
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise UserError(f"{where}: nodes is {visible(str(nodes), 40)}; give the list of messages unchanged")
    sampled = [index for index, node in enumerate(nodes) if node.get("sampled")]
    paths: list[list[Mapping[str, Any]]] = []
    followed: set[int] = set()
    for last in reversed(sampled or ([len(nodes) - 1] if nodes else [])):
        if last not in followed:
            path = _to_root(nodes, last, where)
            followed.update(path)
            paths.append([nodes[index] for index in path])
    return paths or [[]]


def _to_root(nodes: Sequence[Mapping[str, Any]], last: int, where: str) -> list[int]:
    """Places of the messages from the root to the one at `last`."""
    path: list[int] = []
    at: int | None = last
    while at is not None:
        path.append(at)
        parent = nodes[at].get("parent")
        if parent is not None and not (isinstance(parent, int) and 0 <= parent < at):
            raise _BrokenTraceError(f"{where}: parent of node {at} is {visible(str(parent), 40)}; give one before it")
        at = parent
    return path[::-1]


def _tokens(path: Sequence[Mapping[str, Any]], where: str) -> dict[str, Any]:
    """Ids, mask, log-probabilities and advantages of a path, cut at the first sampled token; empty without ids."""
    ids: list[int] = []
    mask: list[bool] = []
    columns: dict[str, list[Floats]] = {name: [] for name in _PER_SAMPLED}
    for index, node in enumerate(path):
        own, flags = node.get("token_ids") or [], node.get("mask") or []
        if len(own) != len(flags):
            raise UserError(f"{where}: node {index} has {len(own):,} token_ids and {len(flags):,} flags in mask")
        ids += own
        mask += [bool(flag) for flag in flags]
        for name, parts in columns.items():
            parts.append(_spread(node, name, np.array(flags, bool), f"{where}: node {index}"))
    if not ids or not any(mask):
        return {}
    start = mask.index(True)
    values_by_name = {name: np.concatenate(parts)[start:] for name, parts in columns.items()}
    drawn = np.array(mask[start:])
    present = {name: not np.isnan(values[drawn]).any() for name, values in values_by_name.items()}
    try:
        prompt, completion = np.array(ids[:start], np.int64), np.array(ids[start:], np.int64)
    except (ValueError, TypeError, OverflowError):
        raise UserError(f"{where}: token_ids has values that are not ids of tokens") from None
    return {
        "prompt_ids": prompt,
        "completion_ids": completion,
        "mask": drawn,
        "written": drawn,
        "turns": turns_of(drawn),
        "sampler": values_by_name["logprobs"] if present["logprobs"] else None,
        "current": values_by_name["trainer_logprobs"] if present["trainer_logprobs"] else None,
        "advantages": values_by_name["advantages"] if present["advantages"] else None,
    }


def _spread(node: Mapping[str, Any], name: str, mask: Bools, where: str) -> Floats:
    """A column with a value per sampled token over all tokens of a message; NaN for those that it lacks."""
    spread: Floats = np.full(len(mask), _PER_SAMPLED[name])
    values = node.get(name)
    if values is None or (values == [] and mask.any()):
        spread[mask] = np.nan
        return spread
    if not isinstance(values, list) or len(values) != mask.sum():
        shown = f"{len(values):,} values" if isinstance(values, list) else visible(str(values), 40)
        raise UserError(f"{where} has {shown} as {name} and {int(mask.sum()):,} sampled tokens; give one for each")
    spread[mask] = [number(element, name, where) for element in values]
    return spread


def _of_result(row: Mapping[str, Any], where: str, step: int | None) -> Rollout:
    """A row of results; where it has the steps of its trajectory, with their tokens, these give the rollout's."""
    whole = _of_texts(row, where, step)
    steps = row.get("trajectory")
    if not isinstance(steps, list) or not all(isinstance(call, dict) and _has_ids(call) for call in steps) or not steps:
        return whole
    own = [_of_call(call, index, f"{where}, step {index}") for index, call in enumerate(steps, 1)]
    made = joined(own)[0][0]
    return replace(
        made, where=where, step=whole.step, group=whole.group, named=whole.named, problem=whole.problem,
        prompt=whole.prompt, completion=whole.completion, reward=whole.reward, rewards=whole.rewards,
        failed=whole.failed, stop=whole.stop, truncated=whole.truncated, environment=whole.environment, trajectory="",
    )  # fmt: skip


def _has_ids(call: Mapping[str, Any]) -> bool:
    tokens = call.get("tokens")
    return isinstance(tokens, dict) and {"prompt_ids", "completion_ids"} <= tokens.keys()


def _of_call(call: Mapping[str, Any], index: int, where: str) -> Rollout:
    """One call of the policy, as verifiers records it with `trajectory` among the columns of its state."""
    tokens = call["tokens"]
    return row_of(
        {
            "trajectory": "one", "turn": index, "prompt_ids": tokens["prompt_ids"],
            "completion_ids": tokens["completion_ids"], "mask": tokens.get("completion_mask"),
            "rollout_logprobs": tokens.get("completion_logprobs"), "reward": call.get("reward"),
            "advantage": call.get("advantage"),
        },
        where,
    )  # fmt: skip


def _of_texts(row: Mapping[str, Any], where: str, step: int | None) -> Rollout:
    prompt, completion = (_text(row[name], name, where) for name in ("prompt", "completion"))
    error = row.get("error")
    kind = error.get("error") if isinstance(error, dict) else error
    made = row_of({**row, "metrics": numbers(row.get("metrics"), "metrics", where)}, where)
    return replace(
        made,
        step=step if step is not None else made.step,
        prompt=prompt,
        completion=completion,
        reward=number(row["reward"], "reward", where),
        failed=str(kind) if kind else "",
        stop=_stop(row, str(kind or "")),
        columns={name: value for name, value in row.items() if _is_further(name, value)},
    )


def _is_further(name: str, value: Any) -> bool:
    """Whether a value is the answer, or a number beside the reward, as verifiers writes its metrics up to 0.1."""
    return bool(value) if name == "answer" else isinstance(value, int | float) and name not in ("reward", "example_id")


def _text(value: Any, what: str, where: str) -> Any:
    return value if isinstance(value, str) else messages(value or [], what, where)


def _rewards(value: Any, where: str) -> tuple[dict[str, float], float]:
    """The scores by name, and the sum of score × weight."""
    if value is None:
        return {}, 0.0
    if not isinstance(value, dict):
        raise UserError(f"{where}: rewards is {visible(str(value), 40)}; give the object unchanged")
    scores, total = {}, 0.0
    for name, score in value.items():
        if score is None:
            continue
        scored = score if isinstance(score, dict) else {"score": score}
        scores[name] = number(scored.get("score"), f"rewards/{visible(name, 40)}", where)
        total += scores[name] * number(scored.get("weight", 1.0), f"the weight of {visible(name, 40)}", where)
    return scores, total


def _truncated(trace: Mapping[str, Any]) -> bool | None:
    """Whether a limit cut the rollout, by what stopped it and by the last call that went well."""
    if isinstance(said := trace.get("is_truncated"), bool):
        return said
    if trace.get("stop_condition") in _LIMITS:
        return True
    calls = [call for call in trace.get("calls") or [] if isinstance(call, dict) and call.get("error") is None]
    return calls[-1].get("finish_reason") == "length" if calls else None


def _stop(trace: Mapping[str, Any], failed: str) -> str:
    """Why the rollout ended, in our words: by the agent's own account, else by its last call."""
    calls = [call for call in trace.get("calls") or [] if isinstance(call, dict)]
    reason = str(trace.get("stop_condition") or (calls[-1].get("finish_reason") if calls else "") or "")
    return STOP_WORDS.get(reason, reason) or ("error" if failed else "")


def _task(task: Mapping[str, Any]) -> str:
    """What tells a task from others, of a file without groups."""
    inner = task.get("data")
    data: Mapping[str, Any] = inner if isinstance(inner, dict) else {}
    named = (task.get("key"), task.get("hash"), data.get("id"), data.get("idx"), data.get("prompt"))
    return str(next((name for name in named if name is not None), ""))


def _object(row: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = row.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{where}: {name} is {visible(str(value), 40)}; give {TRACES} unchanged")
    return value


def _whole(value: Any, what: str, where: str) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or abs(value) >= 2**53:
        raise UserError(f"{where}: {what} is {visible(str(value), 40)}; give a whole number")
    return value


def _is_folder(folder: Path) -> bool:
    here = (folder / name for name in (TRACES, RESULTS))
    return bool(_step_files(folder)) or any(path.is_file() and KIND.recognises(LogFile(path)) for path in here)


KIND = replace(
    kind(find),
    shapes=OBJECTS,
    rows=(
        {"traces": list, "task": dict},
        {"nodes": list, "task": dict},
        dict.fromkeys(("example_id", "prompt", "completion", "reward"), object),
    ),
    folder=_is_folder,
)
"""Episodes, traces or results of verifiers by themselves; the folder of a run of prime-rl is read by its metrics."""
