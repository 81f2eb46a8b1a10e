"""Hand alerts to a command of the user's own: the document as JSON on its standard input, no shell in between.

Where the command is a shell of the user's own (`sh -c '…{run}…'`), what the alert says comes to it as variables, whose
values a shell does not run: the name of a run may hold anything.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from functools import partial
from pathlib import Path

from grposcope.core.errors import UserError
from grposcope.core.text import visible
from grposcope.watch.alerts import Alert, Sender

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish")
_SAID = re.compile(r"\{(run|fault|grade|step)\}")

TIMEOUT = 10.0
"""Seconds that the command may take."""


def command(line: str) -> Sender:
    """A sender to this command line; UserError where it cannot be read or names no program.

    {run}, {fault}, {grade} and {step} in its words are what the alert says; a word with one stays one word.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"{visible(line)!r} cannot be read as a command ({error}); close its quotes") from None
    if not words or shutil.which(words[0]) is None:
        name = visible(words[0] if words else line)
        raise UserError(f"{name!r} is no program on this machine; give the path of one that can be executed")
    return Sender("command", partial(_run, words))


def _run(words: list[str], alert: Alert) -> None:
    said = {"run": alert.run, "fault": alert.fault, "grade": alert.grade, "step": str(alert.step)}
    scripts = _scripts(words)
    told = [
        _SAID.sub(lambda match: f'"$GRPOSCOPE_{match[1].upper()}"', word) if index in scripts
        else _SAID.sub(lambda match: said[match[1]], word)
        for index, word in enumerate(words)
    ]  # fmt: skip
    variables = {f"GRPOSCOPE_{name.upper()}": value for name, value in said.items()}
    document = json.dumps(dict(alert.document))
    try:
        done = subprocess.run(
            told, input=document, capture_output=True, text=True, errors="replace", timeout=TIMEOUT,
            env={**os.environ, **variables},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{words[0]} took longer than {TIMEOUT:g} s and was ended") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"{words[0]} ended with status {done.returncode}{': ' + last[0] if last else ''}")


def _scripts(words: list[str]) -> set[int]:
    """Places of the words that a shell runs: those after -c of a shell."""
    shells = [index for index, word in enumerate(words) if Path(word).name in _SHELLS]
    return {
        index for index in range(2, len(words))
        if shells and shells[0] < index - 1 and re.fullmatch(r"-\w*c", words[index - 1])
    }  # fmt: skip
