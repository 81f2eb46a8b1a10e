"""YAML that means something else than it looks, or nothing: a line that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from grposcope.core import yaml_files
from grposcope.core.errors import UserError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: \x01", "not valid YAML"),
        ("\x00", "not valid YAML"),
        ("a: !!bool x", "not valid YAML"),
        ("a: !!timestamp x", "not valid YAML"),
        ("date: 2026-99-99", "not valid YAML"),
        ("a: &x [*x]", "stand for over 500,000 values"),
        ("a: &x {b: *x}", "stand for over 500,000 values"),
        ("a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{f'*a{i - 1}, ' * 8}]}}\n" for i in range(1, 12)),
         "stand for over 500,000 values"),
    ],
)  # fmt: skip
def test_what_is_no_settings_is_said_in_a_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=rf"^x\.yaml.*{said}"):
        yaml_files.parse(text, Path("x.yaml"))


def test_aliases_of_settings_are_read() -> None:
    content = yaml_files.parse("base: &base {lr: 1e-6}\nruns: [*base, {<<: *base, n: 8}]", Path("x.yaml")).content
    assert content["runs"] == [{"lr": 1e-6}, {"lr": 1e-6, "n": 8}]
