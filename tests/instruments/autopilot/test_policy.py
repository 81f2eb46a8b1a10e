"""Policies: from a text or a file; what cannot be is refused with where it stands and what there is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from grposcope.core.errors import UserError
from grposcope.instruments.autopilot.answer import _policy_document
from grposcope.instruments.autopilot.policy import AutopilotPolicy, parse


def test_texts() -> None:
    assert parse("act") == AutopilotPolicy()
    assert parse("advise:fall=0.2,alpha=0.01,monitors=reward+heldout") == AutopilotPolicy(
        "advise", 0.01, 0.2, "reward,heldout"
    )
    assert parse("act:interval=no,stop=false").interval is False


def test_a_file_of_all_defaults_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "autopilot.yaml"
    path.write_text(yaml.safe_dump({**_policy_document(AutopilotPolicy()), "monitors": ["reward", "cut"]}))
    assert asdict(parse(str(path))) == {**asdict(AutopilotPolicy()), "monitors": "reward,cut"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fly", "give one of off, advise, act"),
        ("act:speed=2", "a policy has no setting 'speed'; its settings are mode, alpha"),
        ("act:alpha=2", "alpha is 2.0; it must be between 0 and 1"),
        ("act:alpha=nan", "alpha is nan"),
        ("act:rollbacks=1.5", "rollbacks is '1.5'; it must be a int"),
        ("act:rollbacks", "'rollbacks' is not a limit; write key=value"),
        ("act:stop=perhaps", "stop is 'perhaps'"),
        ("act:monitors=reward+luck", "there is no monitor 'luck'"),
        ("act:monitors=", "a policy needs a monitor"),
        ("act:rollbacks=0,changes=0,stop=no", "the policy allows no rollback, no change and no stop"),
    ],
)
def test_what_cannot_be(text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(text)
    assert said in str(refused.value)


def test_off_in_yaml_is_a_word(tmp_path: Path) -> None:
    path = tmp_path / "autopilot.yaml"
    path.write_text("mode: off\n")
    assert parse(str(path)).mode == "off"


def test_a_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "autopilot.yaml"
    path.write_text("alpha: 0.1\nspeed: 2\n")
    with pytest.raises(UserError, match=r"autopilot.yaml, line 2: a policy has no setting 'speed'"):
        parse(str(path))
    with pytest.raises(UserError, match="there is no "):
        parse(str(tmp_path / "none.yaml"))
