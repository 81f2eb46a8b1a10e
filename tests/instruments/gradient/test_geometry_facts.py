"""What is said of a probe: each sentence has the numbers of the record, and terminal and page say it word for word."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic_probe
from asked import asked
from synthetic_probe import estimate

from grposcope.instruments.gradient import answer as section
from grposcope.instruments.gradient import findings as geometry
from grposcope.instruments.gradient import probe_record as probes
from grposcope.logs import read
from grposcope.render import terminal


def sentences(folder: Path) -> dict[str, str]:
    return {fact.name: fact.sentence for fact in geometry.facts(probes.read(folder))}


def test_the_sentences_have_the_numbers_of_the_probe(tmp_path: Path) -> None:
    said = sentences(synthetic_probe.make(tmp_path / "one", seed=3))
    for name, part in (
        ("rank", "stable rank Σσ²/σ₁² of 1.5 (1.3 to 1.7), the mean over 7 matrices with its 95% interval"),
        ("rank", "participation ratio 2, entropy of σ² 3; 3.5 directions hold 90%"),
        ("rank", "with the same weight on every rollout, whatever its reward, the stable rank is 1.9 (1.7 to 2.1)"),
        ("class_means", "holds 99% (98.8% to 99.2%) of the squared norm of a live group's gradient, over 8 groups."),
        ("class_means", "over 8 groups. With the rollout weights of the objective it holds 99.5%"),
        ("tokens", "hold 78% of the squared score norms, and the top 20% hold 99%"),
        ("tokens", "60% of the credit lies on text that two completions share, 30% on text common to all."),
        ("tokens", "20% of the credit cancels this way"),
        ("parameters", "would change 97.7% of them with Adam (its first step) and 0.04% with plain SGD"),
        ("baseline", "the best constant baseline lies below the group mean. Best constant 0.11 (0.0164 to 0.478)"),
    ):
        assert part in said[name]


def test_no_interval_leaves_what_is_possible(tmp_path: Path) -> None:
    """Shares stay in [0, 1], ranks above 1 and at most the rollouts of a group, variances above 0; words and JSON."""
    group_rank = {"rank": estimate(1.67, 0.45, 2), "top": estimate(0.91, 0.08, 2), "null": estimate(3.0),
                  "deviation": estimate(0.433), "rank_of_two": estimate(1.45)}  # fmt: skip
    baseline = {"mean": estimate(0.07, 0.12, 8), "optimal": estimate(0.06, 0.11, 8), "verdict": "no difference",
                "covariance": estimate(-0.01, 0.01, 8), "excess_mean": estimate(-0.03, 0.04, 8),
                "excess_none": estimate(6.2, 9.1, 8), "saving": estimate(-0.03, 0.04, 8)}  # fmt: skip
    folder = synthetic_probe.make(
        tmp_path / "probe", group=4, group_rank=group_rank, baseline=baseline,
        groups={"dead": estimate(0.75, 0.15, 8), "dead_if_alike": 0.2},
        class_means={"plain": estimate(0.97, 0.05, 2), "reduced": estimate(0.97), "distinct": estimate(0.97)},
        statistics={"group_rank_by_role": {"q_proj": estimate(1.7, 1.2, 2)}},
    )  # fmt: skip
    made = section.of_probe(probes.read(folder))
    for said in (
        "= 1.67 (1.15 to 2.83) over 2 live groups",
        "and 91% (63% to 99%) of their energy",
        "Excess variance over the best: 0% (0% to 5%)",
    ):
        assert said in "\n".join(made.text), said
    ranges = {"group_rank.rank": (1, 4), "group_rank.top": (0.25, 1),
              "class_means.plain": (0, 1), "groups.dead": (0, 1),
              "baseline.mean": (0, 1), "baseline.optimal": (0, 1), "baseline.excess_none": (0, 1e9),
              "baseline.saving": (0, 1), "group_rank_by_role.q_proj": (1, 4), "stable": (1, 1e9)}  # fmt: skip
    for name, (least, most) in ranges.items():
        low, high = made.document["intervals"][name]
        assert least <= low <= high <= most, name


@pytest.mark.parametrize(
    ("seen", "alike", "words"),
    [
        (0.5, 0.1, "prompts differ in difficulty"),
        (0.1, 0.9, "fewer groups are dead"),
        (0.5, 0.45, "within the interval"),
    ],
)
def test_dead_groups_are_judged_against_the_binomial(tmp_path: Path, seen: float, alike: float, words: str) -> None:
    groups = {"dead": estimate(seen, 0.05, 100), "dead_if_alike": alike}
    assert words in sentences(synthetic_probe.make(tmp_path / "probe", groups=groups))["dead_groups"]


@pytest.mark.slow
def test_terminal_page_and_json_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the answer of the probe it wrote, which the page shows of it."""
    out = tmp_path / "probe"
    given = ("--prompts", "4", "--group", "4", "--threads", "1", "--controls", "--out", out)
    status, content = asked("probe", *given)
    assert status == 0
    printed = capsys.readouterr().out
    run = read(out)
    page = section._section([run])
    assert page is not None
    assert printed.startswith(page.sentence)
    assert terminal.text(page) in printed
    assert len(page.numbers) == 4
    said = geometry.facts(probes.of_run(run)[0])
    assert len(said) == 7
    assert {fact.sentence for fact in said} <= set(page.text)
    assert "Self-check: the layers' gradients differ from autograd's by " in page.text[0]
    assert content["sentence"] == page.sentence
    assert content["numbers"]["stable rank"]["value"] == content["settings"]["grpo"]["layer"]["stable"]["value"]
    assert {name for name, value in page.document["probe"].items() if name not in content} == {"probe", "step"}


def test_several_probes_are_told_by_their_ranks(tmp_path: Path) -> None:
    runs = [read(synthetic_probe.make(tmp_path / name, seed=3)) for name in ("one", "two")]
    page = section._section(runs)
    assert page is not None
    rank = "1.5 (1.3 to 1.7)"
    assert page.sentence == f"The gradients have mean stable ranks of {rank} in one and {rank} in two."


def test_the_formulas_know_no_disk() -> None:
    """What measures and computes returns types of its own; the record is made of them."""
    folder = Path(section.__file__).parent
    knowing = {file.stem for file in folder.glob("*.py") if "probe_record import" in file.read_text()}
    knowing |= {file.stem for file in folder.glob("*.py") if "import probe_record" in file.read_text()}
    assert knowing == {"answer", "command", "figures_over_steps", "findings", "recording", "statistics"}
