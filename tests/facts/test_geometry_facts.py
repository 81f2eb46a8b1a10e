"""What is said of a probe: each sentence has the numbers of the record, and terminal and page say it word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

import synthetic_probe
from grposcope.cli import main
from grposcope.facts import geometry
from grposcope.report.sections import geometry as section
from grposcope.runs import probe as probes
from grposcope.runs import read
from synthetic_probe import estimate


def sentences(folder: Path) -> dict[str, str]:
    return {fact.name: fact.sentence for fact in geometry.facts(probes.read(folder))}


def test_the_sentences_have_the_numbers_of_the_probe(tmp_path: Path) -> None:
    said = sentences(synthetic_probe.make(tmp_path / "one", seed=3))
    for name, part in (
        ("rank", "stable rank Σσ²/σ₁² of 1.5 (1.3 to 1.7), mean and spread over 7 matrices"),
        ("rank", "participation ratio 2, entropy of σ² 3; 3.5 directions hold 90%"),
        ("rank", "with the same weight on every rollout, reward or not, the stable rank is 1.9 (1.7 to 2.1)"),
        ("class_means", "holds 99% (98.8% to 99.2%) of the squared norm of a live group's gradient, over 8 groups"),
        ("class_means", "over 8 groups, and 99.5% once"),
        ("tokens", "the top 5% hold 78% of the squared score norms and the top 20% 99%"),
        ("tokens", "the 60% on text that two completions share (30% on text common to all)"),
        ("tokens", "20% of the credit undoes itself so"),
        ("parameters", "would change 97.7% of the weights by Adam (its first step) and 0.04% by plain descent"),
        ("baseline", "the best constant baseline lies below the group mean. Best constant 0.11 (-0.086 to 0.306)"),
    ):
        assert part in said[name]


@pytest.mark.parametrize(
    ("seen", "alike", "words"),
    [
        (0.5, 0.1, "prompts differ in difficulty"),
        (0.1, 0.9, "there are fewer"),
        (0.5, 0.45, "within the interval"),
    ],
)
def test_dead_groups_are_judged_against_the_binomial(tmp_path: Path, seen: float, alike: float, words: str) -> None:
    groups = {"dead": estimate(seen, 0.05, 100), "dead_if_alike": alike}
    assert words in sentences(synthetic_probe.make(tmp_path / "probe", groups=groups))["dead_groups"]


def test_terminal_and_page_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "probe"
    assert main(["probe", "--prompts", "4", "--group", "4", "--threads", "1", "--controls", "--out", str(out)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    run = read(out)
    page = section.section([run])
    assert page is not None
    said = geometry.facts(run.probes[0])
    assert len(said) == 6
    for fact in said:
        assert " ".join(fact.sentence.split()) in printed
        assert fact.sentence in page.text
