"""Hand alerts to a command of the user's own: the document as JSON on its standard input, no shell in between."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from functools import partial

from grposcope.core.errors import UserError
from grposcope.core.text import visible
from grposcope.watch.alerts import Alert, Sender

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
    for name, value in said.items():
        words = [word.replace(f"{{{name}}}", value) for word in words]
    document = json.dumps(dict(alert.document))
    try:
        done = subprocess.run(words, input=document, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{words[0]} took longer than {TIMEOUT:g} s and was ended") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"{words[0]} ended with status {done.returncode}{': ' + last[0] if last else ''}")
