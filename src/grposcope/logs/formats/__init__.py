"""File formats of logs: bytes to rows, without knowledge of trainers. A new format is one file and one line here."""

from grposcope.logs.formats import csv, jsonl, tensorboard, text_table, wandb
from grposcope.logs.formats.kind import LogKind

FORMATS: dict[str, LogKind] = {
    "W&B": wandb.KIND,
    "TensorBoard": tensorboard.KIND,
    "table as text": text_table.KIND,
    "JSON lines": jsonl.LINES,
    "JSON document": jsonl.DOCUMENT,
    "CSV": csv.KIND,
}
"""Kinds of logs that hold the metrics of any trainer, in the order in which they are tried."""
