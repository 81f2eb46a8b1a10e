"""The child process that calls a reward function: it reads what to grade, and writes a line for each batch.

The first line says that the function was loaded; each further one has the rewards of a batch, or why there are none.
The last one has the paths that it tried to write; nothing outside the folder for temporary files is written.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout, Text
from grposcope.instruments.texts.grading import TextBatch
from grposcope.lab.tasks.base import raised_in
from grposcope.lab.tasks.custom import load_reward
from grposcope.signs.rollouts.reward_function import of_function

WRITES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "os.truncate", "shutil.rmtree")
"""Events of the interpreter, besides opened files, that change what is on the disk."""


def _refuse_writes(folder: str, refused: list[str]) -> None:
    """From now on, nothing but what lies in `folder`, or is a device, can be opened for writing, made or removed.

    refused: paths are added to it.
    """

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = bool(set(mode or "") & set("wax+")) or bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        else:
            path, writes = (arguments[0] if arguments else ""), event in WRITES
        if not writes or isinstance(path, int):
            return
        where = os.path.realpath(os.fsdecode(path))
        if not where.startswith((folder + os.sep, "/dev/")) and where != folder:
            refused.append(where)
            raise PermissionError(f"{where} may not be written here, where the function is only asked what it pays")

    sys.addaudithook(hook)


def _graded(grade: Callable[[Sequence[Text], Sequence[Text]], Sequence[float]], batch: TextBatch) -> dict[str, Any]:
    """The rewards of a batch, or why there are none."""
    try:
        values = [float(value) for value in grade(*batch)]
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        return {"problem": f"raised {type(error).__name__}: {reason}{raised_in(error)}"}
    if len(values) != len(batch[1]):
        return {"problem": f"returned {len(values):,} values for {len(batch[1]):,} completions"}
    return {"rewards": values}


def main() -> None:
    """Read the reward function, the rows with its columns and the batches, and grade these."""
    spec, rows, batches = pickle.load(sys.stdin.buffer)
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the function prints is no answer

    def say(said: dict[str, Any]) -> None:
        told.write(json.dumps(said) + "\n")
        told.flush()

    refused: list[str] = []
    _refuse_writes(os.path.realpath(os.environ["TMPDIR"]), refused)
    try:
        grade = _grader(spec, rows)
    except UserError as error:
        say({"problem": str(error)})
        return
    say({"loaded": True})
    for batch in batches:
        say(_graded(grade, batch))
    say({"refused": sorted(set(refused))})


def _grader(spec: str, rows: Sequence[Rollout]) -> Callable[[Sequence[Text], Sequence[Text]], Sequence[float]]:
    return of_function(load_reward(spec), rows)


if __name__ == "__main__":
    main()
