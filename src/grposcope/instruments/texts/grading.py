"""Texts graded by a reward function of the user's own, in a child process with a time limit.

The file of the function is imported under another name, so that what stands under `if __name__ == "__main__"` does not
run. The child keeps the folder, so that the function finds its data, and may write temporary files alone.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout, Text
from grposcope.core.text import visible

TextBatch = tuple[Sequence[Text], Sequence[Text]]
"""Prompts and completions that the function is called with at once, as texts or messages."""

SECONDS = 60.0
"""Seconds that importing and grading may take together."""


@dataclass(frozen=True)
class BatchRewards:
    """What a function said of a batch: its rewards, NaN for none, or why it has none. refused: paths that it tried to
    write in any of the batches."""

    rewards: tuple[float, ...] = ()
    problem: str = ""
    refused: tuple[str, ...] = ()


def graded(
    spec: str, rows: Sequence[Rollout], batches: Sequence[TextBatch], seconds: float = SECONDS
) -> list[BatchRewards]:
    """Each batch, graded by the function `module:function` or `file.py:function`. rows: with the columns of prompts.

    UserError where it cannot be imported or takes a column that no row has, where importing takes too long, and where
    it ends the process before the first batch is graded. A batch that it fails on says so.
    """
    with tempfile.TemporaryDirectory() as folder:
        lines, end = _ran(pickle.dumps((_whole(spec), list(rows), list(batches))), folder, seconds)
    if lines and "problem" in lines[0]:
        raise UserError(str(lines[0]["problem"]))
    if not lines:
        raise UserError(f"reward {visible(spec)}: importing it {end}; name a file that only defines the function")
    refused = tuple(path for line in lines for path in line.get("refused", ()))
    said = [line for line in lines[1:] if "refused" not in line]
    made = [BatchRewards(tuple(line.get("rewards", ())), str(line.get("problem", "")), refused) for line in said]
    return [*made, *(BatchRewards(problem=end, refused=refused) for _ in range(len(batches) - len(made)))]


def _whole(spec: str) -> str:
    where, colon, name = spec.rpartition(":")
    return f"{Path(where).expanduser().resolve()}{colon}{name}" if where.endswith(".py") else spec


def _ran(asked: bytes, folder: str, seconds: float) -> tuple[list[Mapping[str, Any]], str]:
    """The lines of the child, and how it ended where it did not finish: too late, or with a status."""
    paths = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    more = {"PYTHONPATH": paths, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "grposcope.instruments.texts.grading_child"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **more}, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = child.communicate(asked, seconds)
        last = err.decode("utf8", "replace").strip().splitlines()[-1:]
        end = f"ended the process with status {child.returncode}{': ' + visible(last[0]) if last else ''}"
    except subprocess.TimeoutExpired:
        end = f"took longer than {seconds:g} s and was ended"
        _end(child)
        out, _ = child.communicate()
    finally:
        _end(child)
    return [json.loads(line) for line in out.decode("utf8").splitlines() if line.endswith("}")], end


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it began."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
