"""Numbers of commands on dynamics that a double or a machine cannot hold."""

from __future__ import annotations

import pytest

from grposcope.cli import main


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("simulate --arms 100000000", "--arms"),
        ("simulate --arms 10000", "--arms"),
        ("simulate --contexts 100000000", "--contexts"),
        ("simulate --steps 1000000000", "--steps"),
        ("simulate --group 4 --runs 1000000000", "--runs"),
        ("simulate --group 100000000", "--group"),
        ("simulate --group 1,70000 --runs 1", "--group"),
        ("simulate --interval 1000000000000000000000", "--interval"),
        ("simulate --kl 1e-300", "--kl"),
        ("simulate --kl inf", "--kl"),
        ("simulate --seed -1", "--seed"),
        ("stability --lr 1e300 --curvature 1e300 --interval 100000000", "--lr"),
        ("stability --lr 1e-300 --curvature 1e-300", "--curvature"),
        ("stability --lr 1e-300 --curvature 1e300", "--curvature"),
        ("stability --lr 0.1 --curvature 1 --interval 1" + 400 * "0", "interval"),
        ("stability --lr 0.1 --curvature 1 --curvature-se 1e300", "--curvature-se"),
        ("stability --lr 0.1 --curvature 1 --curvature-variation 1e300", "--curvature-variation"),
    ],
)
def test_numbers_beyond_what_can_be_computed_are_refused_at_once(
    words: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("grposcope: error: ")
    assert named in line
