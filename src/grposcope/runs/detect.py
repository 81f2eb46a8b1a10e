"""Finds the reader for a path, by what stands in it and not by its name.

docs/readers.md lists what can be read. Pickles (training_args.bin, .pt) are refused unopened, since
loading one runs code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.runs import probe  # fmt: skip
from grposcope.runs.formats import csv, notebook, tensorboard, wandb
from grposcope.runs.formats.jsonl import loaded
from grposcope.runs.formats.source import Source
from grposcope.runs.native import reader as own
from grposcope.runs.normalize import no_evaluations, no_groups
from grposcope.runs.run import Meta, Run
from grposcope.runs.trainers import openrlhf, trl, trl_completions, trl_console, verl_console, verl_jsonl, verl_rollouts

Reader = Callable[[Path, Mapping[str, Any]], Run]

CONSOLES: tuple[tuple[Callable[[bytes], bool], Reader], ...] = (
    (verl_console.recognises, verl_console.read),
    (openrlhf.recognises, openrlhf.read),
    (trl_console.recognises, trl_console.read),
)
"""What trainers print: whether a text has such lines, and the reader."""

LOGS = (".jsonl", ".json", ".log", ".txt", ".out", ".csv", ".tsv", ".ipynb", ".ndjson")
_TRIED = 40  # files of a folder
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b"))  # what text has none of


def read(place: Path, given: Mapping[str, Any]) -> Run:
    """The run in a file or folder; UserError where there is none that can be read, or more than one."""
    return _folder(place, given) if place.is_dir() else _file(place, given)


def _of_probe(folder: Path) -> Run:
    """A probe by itself, as a run without steps; its config is what probe.json says in single values."""
    record = probe.read(folder)
    meta = Meta(folder, "grposcope probe", folder.resolve().name, "finished" if record.complete else "interrupted")
    table = {"step": np.empty(0)}
    return Run(meta, record.scalars(), table, no_groups(), no_evaluations(), probes=(record,))


def _folder(folder: Path, given: Mapping[str, Any]) -> Run:
    if own.recognises(folder) and _ours(folder):
        return own.read(folder)
    if probe.recognises(folder):
        return _of_probe(folder)
    if trl.states(folder):
        return trl.read_folder(folder, given)
    if verl_rollouts.files(folder):
        return verl_rollouts.read(folder, given)
    if trl_completions.files(folder):
        return trl_completions.read_alone(folder, given)
    records = wandb.files(folder)
    if len(records) > 1:
        names = ", ".join(path.parent.name for path in records[:5])
        raise UserError(f"{folder}: {len(records)} W&B runs ({names}); give the .wandb file of one")
    if records:
        return wandb.read(records[0], given)
    if tensorboard.files(folder):
        return tensorboard.read(folder, given)
    return _only_log(folder, given)


def _ours(folder: Path) -> bool:
    """Whether config.json is of a record of ours; a broken one counts, so that its error is shown."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except ValueError:
        return True
    return isinstance(config, dict) and "format" in config


def _only_log(folder: Path, given: Mapping[str, Any]) -> Run:
    """The one log among the files of a folder."""
    files = [
        path for path in sorted(folder.iterdir())
        if path.is_file() and path.name != "config.json" and path.name.removesuffix(".gz").endswith(LOGS)
    ]  # fmt: skip
    found: list[tuple[Path, Run]] = []
    reasons: list[str] = []
    for path in files[:_TRIED]:
        try:
            found.append((path, _file(path, given)))
        except UserError as error:
            reasons.append(str(error))
        if len(found) > 1:
            names = ", ".join(path.name for path, _ in found)
            raise UserError(f"{folder}: more than one log ({names}, …); give one of the files")
    if found:
        return found[0][1]
    runs = [
        path.name for path in sorted(folder.iterdir()) if path.is_dir() and (own.recognises(path) or trl.states(path))
    ]
    if runs:
        raise UserError(f"{folder}: a folder of {len(runs)} runs ({', '.join(runs[:5])}); give one of them")
    if own.recognises(folder):
        return own.read(folder)  # says that its config.json is another program's
    hint = f" ({reasons[0]})" if reasons else ""
    raise UserError(
        f"{folder} is no run: it is a folder without config.json, and without a log that can be read{hint}; give the "
        "folder of a run, which --out of grposcope train names, or a trainer's log"
    )


def _file(path: Path, given: Mapping[str, Any]) -> Run:
    if path.stat().st_size == 0:
        raise UserError(
            f"{path} is no run: it is a file with nothing in it; the run has not logged yet, or it was not copied"
        )
    head = Source(path).head()
    if not head:
        raise UserError(f"{path}: the compressed data is damaged from the start; copy the file again")
    if head.startswith(wandb.MAGIC):
        return wandb.read(path, given)
    if head.startswith(b"PAR1"):
        if trl_completions.recognises(path):
            return trl_completions.read_alone(path, given)
        raise UserError(
            f"{path}: a parquet file without prompt, completion and advantage; give TRL's completions_….parquet"
        )
    if (head[0] == 0x80 and head[1:2] <= b"\x05") or head.startswith(b"PK\x03\x04"):
        raise UserError(
            f"{path} is a pickle or an archive, which is not opened since that could run code; give the trainer's "
            "log, and settings by themselves"
        )
    if tensorboard.recognises(head):
        return tensorboard.read(path, given)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: text in UTF-16; save it as UTF-8")
    if len(head.translate(None, _CONTROL)) < 0.98 * len(head.rstrip(b"\0")):
        raise UserError(
            f"{path} is no run: it is a file of binary data of no kind that can be read; give the trainer's log"
        )
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] in (b"{", b"["):
        found = _json(path, head, start, given)
        if found is not None:
            return found
    return _text(path, head, given)


def _json(path: Path, head: bytes, start: bytes, given: Mapping[str, Any]) -> Run | None:
    """JSON lines or one document; None where it is neither but may be printed text."""
    first = loaded(start.split(b"\n", 1)[0])
    if first is not None and "log_history" not in first and not notebook.recognises(first):
        if verl_jsonl.recognises(first):
            return verl_jsonl.read(path, given)
        if verl_rollouts.recognises(first):
            return verl_rollouts.read(path, given)
        if not _columns(first) or len(start.split(b"\n", 2)) > 2:
            return csv.read_jsonl(path, given)
    if first is None and any(loaded(line) for line in head.split(b"\n")[:50] if line.startswith(b"{")):
        return csv.read_jsonl(path, given)  # only its first line is broken
    if first is None and any(recognises(head) for recognises, _ in CONSOLES):
        return None
    content = Source(path).document()
    if isinstance(content, dict) and "log_history" in content:
        return trl.read_state(path, content, given)
    if notebook.recognises(content):
        return notebook.read(path, content, given)
    if isinstance(content, dict | list):
        return csv.read_document(path, content, given)
    return None


def _columns(row: Mapping[str, Any]) -> bool:
    """Whether an object holds columns rather than a row."""
    return bool(row) and all(isinstance(value, list) for value in row.values())


def _text(path: Path, head: bytes, given: Mapping[str, Any]) -> Run:
    """Printed output or a table with separators."""
    for recognises, reader in CONSOLES:
        if recognises(head):
            return reader(path, given)
    lines = [line for line in head.split(b"\n")[:3] if line.strip()]
    if len(lines) > 1 and any(lines[0].count(mark) == lines[1].count(mark) > 0 for mark in (b",", b"\t", b";")):
        return csv.read_csv(path, given)
    for _, piece in Source(path).pieces():
        for recognises, reader in CONSOLES:
            if recognises(piece):
                return reader(path, given)
    raise UserError(
        f"{path} is no run: it is a file of no kind that can be read; docs/readers.md lists what can: logs of TRL, "
        "verl and OpenRLHF, TensorBoard, W&B, notebooks, JSON lines, CSV"
    )
