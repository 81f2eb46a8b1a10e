"""Rollouts and settings as evidence, whoever wrote them.

- JSONL with a rollout a line, names as in NAMES; so are the files of verl's rollout_data_dir.
- TRL's completions/completions_NNNNN.parquet: texts, rewards by function, advantages; no ids, no log-probabilities.
- ART's trajectories/, ms-swift's completions.jsonl, the traces of prime-rl and verifiers (`rollout_files`).
- prime-rl's token_exports: whole sequences, of which the prompt is what stands before the first trained token.
- verify/step-NNNNNN.jsonl of our own record: whole batches, written every verify_every steps; verify/settings.json.
- rollouts/step-NNNNNN.parquet of our own record: a part of the groups of a step, with log-probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grposcope import logs
from grposcope.core.errors import UserError
from grposcope.core.files import json_lines, json_number
from grposcope.core.run import Floats, Run
from grposcope.core.text import visible
from grposcope.instruments.verify import overruled, row_file
from grposcope.instruments.verify.overruled import AskedSettings
from grposcope.logs.formats import parquet
from grposcope.logs.hints import Hints
from grposcope.logs.native import rollouts as recorded
from grposcope.logs.trainers import prime_rl, rollout_files, trl_completions, verl
from grposcope.logs.written_rollouts import WrittenRollout
from grposcope.signs.rollouts import stated as settings
from grposcope.signs.rollouts.evidence import EvidenceRow, PipelineEvidence, Stated

NAMES: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "global_step"),
    "group": ("group", "group_id", "prompt_id", "uid", "problem"),
    "prompt": ("prompt", "input"),
    "completion": ("completion", "output", "response"),
    "prompt_ids": ("prompt_ids", "prompt_token_ids", "prompt_tokens"),
    "completion_ids": ("completion_ids", "completion_token_ids", "response_ids", "token_ids"),
    "trained": ("mask", "completion_mask", "loss_mask", "response_mask"),
    "sampler": (
        "rollout_logprobs", "sampling_logprobs", "inference_logprobs", "rollout_log_probs", "sampling_per_token_logps",
    ),
    "old": ("old_logprobs", "old_log_probs", "old_per_token_logps"),
    "current": ("logprobs", "trainer_logprobs", "log_probs", "per_token_logps"),
    "reference": ("ref_logprobs", "ref_log_prob", "ref_log_probs", "ref_per_token_logps"),
    "loss_weights": ("loss_weights",),
    "part": ("part", "micro_batch"),
    "written": ("tool_mask", "env_mask", "written"),
    "prompt_trained": ("prompt_mask_trained", "prompt_trained", "prompt_loss_mask"),
    "reward": ("reward", "score"),
    "advantages": ("advantage", "advantages"),
    "version": ("version", "weight_version", "policy_version"),
    "environment": ("environment", "env", "env_name", "data_source"),
    "failed": ("error", "failed"),
    "dropped": ("dropped", "filtered"),
}  # fmt: skip
"""Our name -> names that a column may have, of which the first that is there is taken."""

_KNOWN = frozenset(name for names in NAMES.values() for name in names) | {"rewards", "truncated", "finish_reason"}
_OF_ROLLOUTS = frozenset(
    name
    for kind in ("completion", "completion_ids", "trained", "sampler", "old", "current", "advantages")
    for name in NAMES[kind]
)
_TOKENS = ("trained", "sampler", "old", "current", "reference", "loss_weights", "written")


def evidence(
    place: Path,
    rollouts: Path | None = None,
    asked: AskedSettings | None = None,
    hints: Hints | None = None,
) -> PipelineEvidence:
    """What is at hand of the run or the rollouts at `place`.

    rollouts: where they lie, if not with the run. asked: settings, which count before those of the run. UserError where
    neither a log nor rollouts are found, with the line for a rollout that does not fit.
    """
    if not place.exists():
        raise UserError(f"there is no {place}; give the folder of a run, a trainer's log, or a file of rollouts")
    home, asked = row_file.home(place), asked or AskedSettings()
    where = rollouts if rollouts is not None else home
    if not where.exists():
        raise UserError(f"there is no {where}; give a file or a folder of rollouts")
    run, problem = _run(place, hints or Hints())
    own = row_file.read_stated(home) or (Stated() if run is None else settings.of_run(run))
    found = tuple(_any_rows(where, run))
    if rollouts is not None and not found:
        raise UserError(
            f"{rollouts} holds no rollouts; give a JSONL file with one rollout per line, or a folder of such files"
        )
    if run is None and not found and _needs_log(place):
        raise UserError(problem)
    functions = tuple(dict.fromkeys(name for row in found for name in row.rewards))
    engine = run.meta.engine if run is not None else asked.engine
    said, differences = overruled.of_both(own, asked, engine, functions)
    notes = tuple(run.meta.notes) if run is not None else ()
    kept = with_groups(with_rewards(found, said), said.group)
    batches = where.is_dir() and bool(row_file.files(where) or trl_completions.files(where))
    partial = where.is_dir() and not batches and bool(recorded.files(where))
    return PipelineEvidence(
        str(place), engine, kept, said, run, filtered=row_file.read_filtered(home), notes=notes,
        whole=False if partial else None, optimizer=row_file.read_optimizer(home), differences=differences,
        live=row_file.read_claims(home),
    )  # fmt: skip


def of_rows(
    given: Sequence[Mapping[str, Any]], stated: Stated | Mapping[str, Any] | None = None, source: str = "rollouts"
) -> PipelineEvidence:
    """Evidence of rows as `row_of` takes them, in the order in which they were drawn.

    stated: settings, as Stated or under the names of the trainer (`stated.ALIASES`).
    """
    said = stated if isinstance(stated, Stated) else settings.of_settings(settings.flat(stated or {}))
    found = tuple(row_of(row, f"{source}, row {place}") for place, row in enumerate(given, 1))
    said = settings.named(said, tuple(dict.fromkeys(name for row in found for name in row.rewards)))
    return PipelineEvidence(source, rows=with_groups(with_rewards(found, said), said.group), stated=said)


def rows(path: Path) -> tuple[EvidenceRow, ...]:
    """The rollouts of a file, in its order. UserError, with the line, for what does not fit."""
    return tuple(row_of(row, f"{path}, line {line}") for line, row in json_lines(path))


def with_rewards(found: Sequence[EvidenceRow], said: Stated) -> tuple[EvidenceRow, ...]:
    """The rows with the weighted sum of their functions as the reward where they have none and the weights are known.

    A function without a value counts nothing, as in TRL; the sum is NaN where none has one.
    """
    return tuple(
        replace(row, reward=_total(row.rewards, said.weights)) if math.isnan(row.reward) and row.rewards else row
        for row in found
    )


def _total(rewards: Mapping[str, float], weights: Mapping[str, float] | None) -> float:
    values = np.array(list(rewards.values()))
    if np.isnan(values).all() or (weights is None and len(values) > 1):
        return math.nan
    scale = np.array([1.0 if weights is None else weights.get(name, math.nan) for name in rewards])
    return float(np.nansum(values * scale)) if not np.isnan(scale).any() else math.nan


def with_groups(found: Sequence[EvidenceRow], size: int | None) -> tuple[EvidenceRow, ...]:
    """The rows with a group where they have none: the rollouts of a prompt in a step, in their order.

    Where they are a multiple of the stated size, the prompt was drawn several times, and each `size` in turn are one.
    """
    counts: dict[tuple[int, str], int] = {}
    for row in found:
        if row.group is not None and not row.named:
            counts[row.step, row.group] = counts.get((row.step, row.group), 0) + 1
    seen: dict[tuple[int, str], int] = {}
    made = []
    for row in found:
        if row.group is None or row.named:
            made.append(row)
            continue
        key = (row.step, row.group)
        place = seen[key] = seen.get(key, -1) + 1
        whole = size is not None and size > 0 and counts[key] > size and counts[key] % size == 0
        made.append(replace(row, group=f"{row.group}\x1f{place // size}") if whole and size else row)
    return tuple(made)


def row_of(row: Mapping[str, Any], where: str) -> EvidenceRow:
    """One rollout from a mapping with names as in NAMES, `rewards` (name -> number) and `truncated` or `finish_reason`.

    A mask over prompt and completion is divided between them. UserError for lists of other lengths than the
    completion's, and for values of another type.
    """
    given = {name: next((row[key] for key in keys if row.get(key) is not None), None) for name, keys in NAMES.items()}
    ids = {name: _array(given[name], np.int64, name, where) for name in ("prompt_ids", "completion_ids")}
    tokens = {name: _array(given[name], np.float64, name, where) for name in _TOKENS}
    of_prompt = _array(given["prompt_trained"], np.float64, "prompt_trained", where)
    advantages = given["advantages"]
    tokens["advantages"] = _array(
        advantages if isinstance(advantages, list | np.ndarray) or advantages is None else [advantages],
        np.float64, "advantages", where,
    )  # fmt: skip
    before, after = ids["prompt_ids"], ids["completion_ids"]
    mask = tokens["trained"]
    if mask is not None and before is not None and after is not None and len(mask) == len(before) + len(after) != 0:
        of_prompt, tokens["trained"] = mask[: len(before)], mask[len(before) :]
    lengths = {name: len(part) for name, part in tokens.items() if part is not None and not _one(name, part)}
    if after is not None:
        lengths["completion_ids"] = len(after)
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise UserError(f"{where}: columns of one completion differ in length ({shown}); give a value per token")
    group = given["group"] if given["group"] is not None else _prompt_key(given["prompt"], before)
    return EvidenceRow(
        where=where,
        step=int(_number(given["step"], "step", where, 0.0)),
        group=None if group is None else str(group),
        prompt=given["prompt"],
        completion=given["completion"],
        prompt_ids=before,
        completion_ids=after,
        trained=_bools(tokens["trained"]),
        sampler=tokens["sampler"],
        old=tokens["old"],
        current=tokens["current"],
        reference=tokens["reference"],
        loss_weights=tokens["loss_weights"],
        part=int(_number(given["part"], "part", where, 0.0)),
        rewards=_rewards(row.get("rewards"), where),
        reward=_number(given["reward"], "reward", where, math.nan),
        advantages=tokens["advantages"],
        truncated=_truncated(row),
        version=_number(given["version"], "version", where, math.nan),
        environment=str(given["environment"] or ""),
        failed=_reason(given["failed"]),
        dropped=_reason(given["dropped"]),
        written=_bools(tokens["written"]),
        prompt_trained=_bools(of_prompt),
        named=given["group"] is not None,
        columns={name: value for name, value in row.items() if name not in _KNOWN},
    )


def _run(place: Path, hints: Hints) -> tuple[Run | None, str]:
    """The run of a log, or why there is none."""
    if place.is_file() and (_is_rollouts(place) or rollout_files.find(place) is not None):
        return None, ""
    try:
        return logs.read(place, hints), ""
    except UserError as error:
        return None, str(error)


def _needs_log(place: Path) -> bool:
    return place.is_dir() or not (_is_rollouts(place) or rollout_files.find(place) is not None)


def _is_rollouts(path: Path) -> bool:
    """Whether a file holds a rollout a line; an empty one does, of none."""
    if path.suffix not in (".jsonl", ".ndjson", ".json", ".gz"):
        return False
    try:
        _, first = next(json_lines(path), (0, None))
    except UserError:
        return False
    return first is None or bool(_OF_ROLLOUTS & set(first))


def _any_rows(place: Path, run: Run | None) -> Iterator[EvidenceRow]:
    """The rollouts at a place, by what lies there; none where there are none."""
    if place.is_file():
        if (written := rollout_files.find(place)) is not None:
            yield from map(_of_written, written.rollouts())
        elif place.suffix == ".parquet":
            yield from _parquet(place, run)
        elif _is_rollouts(place):
            yield from rows(place)
        return
    if own := row_file.files(place):
        for path in own:
            yield from rows(path)
    elif files := trl_completions.files(place):
        for path in files:
            yield from _of_trl(path, run)
    elif files := list(recorded.files(place).values()):
        for path in files:
            yield from _of_record(path)
    elif exports := prime_rl.export_files(place):
        for paths in exports.values():
            for path in paths:
                yield from _of_export(path)
    elif dumped := verl.rollout_files(place):
        for step, path in dumped.items():
            yield from (row if row.step else replace(row, step=step) for row in rows(path))
    elif (written := rollout_files.find(place)) is not None:
        yield from map(_of_written, written.rollouts())
    else:
        for path in sorted(place.glob("rollouts*.jsonl*")):
            yield from rows(path) if _is_rollouts(path) else ()


def _parquet(path: Path, run: Run | None) -> Iterator[EvidenceRow]:
    names = set(parquet.column_names(path))
    if {"tokens", "logp", "completion"} <= names:
        yield from _of_record(path)
    elif {"prompt", "completion", "advantage"} <= names:
        yield from _of_trl(path, run)
    else:
        for place, row in enumerate(parquet.table(path).to_pylist(), 1):
            yield row_of(row, f"{path}, row {place}")


def _of_trl(path: Path, run: Run | None) -> Iterator[EvidenceRow]:
    """TRL's completions. Reward functions are those that the log names, else every column of numbers."""
    named = () if run is None else [n.removeprefix("component/") for n in run.table if n.startswith("component/")]
    logged = trl_completions.logged(path, named)
    for place, (prompt, completion) in enumerate(zip(logged.prompts, logged.completions, strict=True)):
        yield EvidenceRow(
            where=f"{path}, row {place + 1}",
            step=logged.step,
            group=logged.keys[place],
            prompt=prompt,
            completion=completion,
            rewards={name: float(column[place]) for name, column in logged.rewards.items()},
            advantages=None if logged.advantages is None else logged.advantages[place : place + 1],
        )


def _of_written(one: WrittenRollout) -> EvidenceRow:
    """A rollout of an engine whose files name its group."""
    return EvidenceRow(
        where=one.where,
        step=one.step,
        group=one.group,
        prompt=one.prompt,
        completion=one.completion,
        prompt_ids=one.prompt_ids,
        completion_ids=one.completion_ids,
        trained=one.trained,
        sampler=one.sampler,
        current=one.trainer,
        rewards=one.components if len(one.components) > 1 else {},
        reward=one.reward,
        advantages=one.advantages,
        truncated=one.truncated,
        version=one.version,
        environment=one.environment,
        failed=one.failed,
        written=one.trained,
        named=True,
    )


def _of_record(path: Path) -> Iterator[EvidenceRow]:
    """Our own record: tokens as texts, without ids."""
    step = int(path.stem.removeprefix("step-")) if path.stem.removeprefix("step-").isdigit() else 0
    for place, one in enumerate(recorded.read(path), 1):
        yield EvidenceRow(
            where=f"{path}, row {place}",
            step=step,
            group=one.problem,
            prompt=one.prompt,
            completion=one.completion,
            sampler=one.logp,
            current=one.trainer_logp,
            rewards=dict(one.components) if len(one.components) > 1 else {},
            reward=one.reward,
            truncated=one.truncated,
            version=math.nan if one.version is None else float(one.version),
            columns={"problem": one.problem},
        )


def _of_export(path: Path) -> Iterator[EvidenceRow]:
    """prime-rl's token exports, the prompt being what stands before the first trained token."""
    for line, row in json_lines(path):
        mask = [bool(one) for one in row.get("loss_mask") or ()]
        start = mask.index(True) if True in mask else 0
        cut = {name: value[start:] if isinstance(value, list) and len(value) == len(mask) else value
               for name, value in row.items()}  # fmt: skip
        ids = row.get("token_ids") or []
        rewards = [one for one in cut.pop("rewards", None) or () if one is not None]
        cut |= {"prompt_ids": ids[:start], "completion_ids": ids[start:], "token_ids": None}
        made = row_of({**cut, "reward": rewards[-1] if rewards else None}, f"{path}, line {line}")
        yield replace(made, group=None, columns={})


def _prompt_key(prompt: Any, ids: Any) -> str | None:
    if prompt is not None:
        return str(prompt)
    return None if ids is None or not len(ids) else " ".join(map(str, ids))


def _one(name: str, values: Floats) -> bool:
    return name == "advantages" and len(values) == 1


def _bools(values: Floats | None) -> Any:
    return None if values is None else values != 0


def _reason(value: Any) -> str:
    return str(value) if value and value is not True else "yes" if value else ""


def _truncated(row: Mapping[str, Any]) -> bool | None:
    if isinstance(row.get("truncated"), bool):
        return bool(row["truncated"])
    reason = row.get("finish_reason")
    return None if reason is None else str(reason) in ("length", "max_tokens", "truncated")


def _array(value: Any, kind: type, name: str, where: str) -> Any:
    if value is None:
        return None
    try:
        found: Any = np.array(
            [math.nan if one is None else one for one in value] if kind is np.float64 else value, kind
        )
    except (ValueError, TypeError, OverflowError):
        found = np.empty((0, 0))
    if found.size == 0 and found.ndim == 1:
        return np.empty(0, kind)
    if found.ndim != 1:
        raise UserError(f"{where}: {name} is not a list of numbers; give one per token")
    return found


def _number(value: Any, name: str, where: str, absent: float) -> float:
    found = absent if value is None else json_number(value)
    if found is None or (name == "step" and not math.isfinite(found)):
        raise UserError(f"{where}: {name} is {visible(str(value), 40)}; give a number, or leave it out")
    return found


def _rewards(value: Any, where: str) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: rewards is not an object; give the reward of each function by its name")
    return {str(name): _number(one, f"rewards.{name}", where, math.nan) for name, one in value.items()}
