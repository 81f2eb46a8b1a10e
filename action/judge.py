"""The step of action.yml: runs `grposcope diagnose` or `lint`, writes the job's summary, outputs and annotations.

Exits as the command does: 0, 1 for what --fail-on names, 2 for input that cannot be read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMANDS = ("diagnose", "lint")
LEVELS = {"failing": "error", "warning": "warning", "note": "notice"}
"""Grade -> kind of annotation."""


def main() -> int:
    """Judge what the environment names."""
    command, path = os.environ["GRPOSCOPE_COMMAND"], os.environ["GRPOSCOPE_PATH"]
    if command not in COMMANDS:
        print(f"::error::command is {escaped(command)}; give one of {', '.join(COMMANDS)}")
        return 2
    place = path if not path.startswith("-") else f"./{path}"
    line = [sys.executable, "-m", "grposcope", command, place, "--json", "--fail-on", os.environ["GRPOSCOPE_FAIL_ON"]]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        print(f"::error::{escaped(done.stderr.strip())}")
        return done.returncode or 2
    told = json.loads(done.stdout)
    print("\n".join(annotations(told, path)))
    append("GITHUB_STEP_SUMMARY", summary(told, path))
    word = told.get("word") or told.get("grade") or ""
    append("GITHUB_OUTPUT", f"word={one_line(word)}\nsentence={one_line(told.get('sentence', ''))}\n")
    return done.returncode


def annotations(told: Mapping[str, Any], path: str) -> list[str]:
    """A line for each fault that is present, as the runner reads it."""
    lines = []
    for finding in told.get("findings", []):
        if finding.get("status") == "present":
            kind = LEVELS.get(finding.get("grade") or "", "notice")
            text = f"{finding['fault']}: {finding['because']}; what to do: {finding['remedy']}"
            lines.append(
                f"::{kind} file={escaped(path, True)},title={escaped(finding['fault'], True)}::{escaped(text)}"
            )
    return lines or [f"::notice::{escaped(told.get('sentence', ''))}"]


def summary(told: Mapping[str, Any], path: str) -> str:
    """The answer as Markdown."""
    lines = [f"### {cell(path)}: {cell(told.get('sentence', ''))}", ""]
    if told.get("because"):
        lines += [f"Because {cell(told['because'])}.", ""]
    if told.get("do"):
        lines += [f"**What to do:** {cell(told['do'])}", ""]
    rows = [finding for finding in told.get("findings", []) if finding.get("status") == "present"]
    if rows:
        lines += ["| grade | fault | since step | why |", "|---|---|---|---|"]
        for each in rows:
            since = (each.get("since") or {}).get("step", "")
            lines.append(f"| {each['grade']} | {cell(each['fault'])} | {since} | {cell(each['because'])} |")
    return "\n".join([*lines, ""])


def append(variable: str, text: str) -> None:
    """Append to the file that a variable of the runner names; nothing where there is none."""
    if place := os.environ.get(variable):
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(text)


def escaped(text: str, of_property: bool = False) -> str:
    """A text that cannot end its annotation, or begin another."""
    made = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return made.replace(":", "%3A").replace(",", "%2C") if of_property else made


def cell(text: str) -> str:
    """A text for a cell of a Markdown table: one line, no mark-up of its own."""
    made = one_line(str(text))
    for sign in "\\`*_[]<>|#":
        made = made.replace(sign, "\\" + sign)
    return made


def one_line(text: str) -> str:
    """A text without ends of lines."""
    return " ".join(str(text).split())


if __name__ == "__main__":
    sys.exit(main())
