"""The skill for coding agents names commands and flags that there are."""

from __future__ import annotations

import re
import subprocess
import sys

from places import ROOT

from grposcope.commands import known

TEXT = (ROOT / "skills" / "grposcope" / "SKILL.md").read_text("utf-8")


def test_its_head_says_when_to_use_it() -> None:
    head = TEXT.split("---")[1]
    assert re.search(r"^name: grposcope$", head, re.M)
    assert 100 < len(re.search(r"^description: (.+)$", head, re.M)[1]) < 1000  # type: ignore[index]
    assert len(TEXT.split()) < 400


def test_every_command_and_flag_in_it_is_one() -> None:
    named = re.findall(r"`grposcope (\w+)([^`]*)`", TEXT)
    assert len(named) > 7
    for command, rest in named:
        assert command in known()
        flags = re.findall(r"--[\w-]+", rest)
        if flags:
            shown = subprocess.run(
                [sys.executable, "-m", "grposcope", command, "--help"], capture_output=True, text=True, check=True
            ).stdout
            assert all(flag in shown for flag in flags), (command, flags)
