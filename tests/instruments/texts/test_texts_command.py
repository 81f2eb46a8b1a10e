"""`grposcope texts`: what it says is true of the texts, of any table, and bad input has an answer."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import written_texts

from grposcope import cli, runs_page
from grposcope.core.rollouts import Rollout
from grposcope.faults import catalogue
from grposcope.instruments.texts import _texts as texts
from grposcope.instruments.texts import answer, marks, screen
from grposcope.logs import read
from grposcope.signs.texts import exploits, pairs, reading, sample

SMALL = {"steps": 30, "prompts": 4, "onset": 15}


def written(
    path: Path, rows: list[Rollout], names: tuple[str, str, str, str] = ("step", "prompt", "completion", "reward")
) -> Path:
    values = [dict(zip(names, (row.step, row.prompt, row.completion, row.reward), strict=True)) for row in rows]
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, names)
            table.writeheader()
            table.writerows(values)
    else:
        path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = cli.main(["texts", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture(scope="module")
def gamed() -> list[Rollout]:
    return written_texts.rollouts(written_texts.LOOPHOLES["ends in zero"], 7, truth=False, **SMALL)


def recounted(
    rows: list[Rollout],
    has: Callable[[str, str], bool] = lambda text, prompt: text.endswith("0"),
    named: bool = True,
) -> tuple[str, str, str, str]:
    """What texts that end in 0, or have another habit, and others get in groups with both, and their share early and
    late, in plain Python. named: whether groups have ids; else they are the rollouts of a prompt in a step."""
    groups: dict[str, list[Rollout]] = {}
    for row in rows:
        groups.setdefault(str(row.group) if named else f"{row.step} {row.prompt}", []).append(row)
    paid, unpaid = [], []
    for members in groups.values():
        own = [row.reward for row in members if has(str(row.completion), str(row.prompt))]
        other = [row.reward for row in members if not has(str(row.completion), str(row.prompt))]
        if own and other:
            paid.append(sum(own) / len(own))
            unpaid.append(sum(other) / len(other))
    shares = [
        sum(has(str(row.completion), str(row.prompt)) for row in tenth) / len(tenth)
        for tenth in ([row for row in rows if row.step <= 3], [row for row in rows if row.step > 27])
    ]
    return f"{sum(paid) / len(paid):.2g}", f"{sum(unpaid) / len(unpaid):.2g}", f"{shares[0]:.0%}", f"{shares[1]:.0%}"


@pytest.mark.parametrize(
    "spelling", [("step", "prompt", "completion", "reward"), ("Step", "Question", "Generated Text", "Score")]
)
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_the_first_line_is_true_of_the_texts(
    spelling: tuple[str, str, str, str],
    ending: str,
    gamed: list[Rollout],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = asked(capsys, str(written(tmp_path / f"rollouts{ending}", gamed, spelling)))
    first = out.split("\n")[0]
    found = re.fullmatch(
        r"Texts that end in “0” are paid (\S+), others (\S+); (\d+%) → (\d+%) since step (\d+) \((\d+)–(\d+)\)\.", first
    )
    assert found is not None, first
    assert found.groups()[:4] == recounted(gamed, named=False)
    assert int(found[6]) <= 15 <= int(found[7])
    assert status == 1
    assert "1. same group: What is" in out
    assert "⟦" in out


HABITS: dict[str, Callable[[str, str], bool]] = {
    "magic word": lambda text, prompt: "verified" in text.lower(),
    "half for a word": lambda text, prompt: "therefore" in text,
    "empty": lambda text, prompt: not text,
    "hedge": lambda text, prompt: len(set(re.findall(r"answer is (-?\d+)", text))) > 1,
    "special": lambda text, prompt: text.count("if x ==") > 1,
    "scripts": lambda text, prompt: any(sign > "\u2e80" for sign in text),
    "operand": lambda text, prompt: re.findall(r"\d+", text)[-1:][0] in re.findall(r"\d+", prompt),
    "copy": lambda text, prompt: text.startswith(prompt),
}
"""Loophole -> its habit in plain Python."""


@pytest.mark.slow
@pytest.mark.parametrize("name", list(HABITS))
def test_the_numbers_of_first_lines_are_those_of_the_texts(name: str) -> None:
    rows = written_texts.rollouts(written_texts.LOOPHOLES[name], 12, truth=False, **SMALL)
    read = reading.read(sample.of_rollouts(rows), draws=199)
    line = answer._first_line(read, exploits.exploits(read))
    found = re.search(r" are paid (\S+), others (\S+); (\d+%) → (\d+%)", line)
    assert found is not None, line
    assert found.groups() == recounted(rows, HABITS[name])


@pytest.mark.parametrize("name", ["magic word", "empty", "long", "format", "hedge", "scripts", "one text"])
def test_first_lines_fit(name: str) -> None:
    rows = written_texts.rollouts(written_texts.LOOPHOLES[name], 8, **SMALL)
    read = reading.read(sample.of_rollouts(rows), draws=199)
    found = exploits.exploits(read)
    assert found
    for order in (found, found[::-1]):
        assert 20 < len(answer._first_line(read, order)) <= answer.FIRST_LINE


def test_the_document_has_what_the_screen_has(
    gamed: list[Rollout], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = asked(capsys, str(written(tmp_path / "own.jsonl", gamed)), "--json")
    said = json.loads(out)
    assert status == 1
    assert said["exploits"][0]["fault"] == "magic string"
    assert said["paid"][0]["relation"] == "paid for sure"
    assert len(said["to_read"]) == 5
    by_text = {str(row.completion): row for row in gamed}
    for pair in said["to_read"]:
        for name, ends in (("without", False), ("having", True)):
            whole = "".join(piece for piece, _ in pair[name]["spans"])
            assert by_text[whole].reward == pair[name]["reward"]
            assert by_text[whole].prompt == pair["prompt"]
            assert whole.endswith("0") == ends
    said_later = asked(capsys, str(tmp_path / "own.jsonl"), "--since", "25", "--json")[1]
    assert json.loads(said_later)["completions"] == 6 * 32


def test_honest_texts_are_told_without_alarm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = written_texts.rollouts(None, 9, steps=30, prompts=4)
    status, out, _ = asked(capsys, str(written(tmp_path / "own.csv", rows)))
    assert status == 0
    assert out.startswith("No habit of the texts spread that pays without the prompt; 960 completions, ")


def test_spans_are_what_the_other_lacks() -> None:
    first, second = pairs.spans("the answer is 14.", "the answer is 10 or 20.")
    assert marks.marked(first) == "the answer is ⟦14⟧."
    assert marks.marked(second) == "the answer is ⟦10 or 20⟧."
    assert marks.marked(pairs.spans("", "a")[0]) == "(empty)"
    long = pairs.spans("x " * 50_000 + "end", "x " * 50_000 + "END")
    assert sum(len(span.text) for span in long[0]) < 1000
    assert [span.text for span in long[1] if span.differs] == ["END"]


def test_control_characters_are_shown_by_name(gamed: list[Rollout]) -> None:
    rows = [replace(row, completion=f"\x1b[31m\u202e{row.completion}") for row in gamed]
    read = reading.read(sample.of_rollouts(rows), draws=199)
    shown = screen.text(answer.of_reading(read), read, 100)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[ESC]" in shown


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([("p", "a", 1.0)] * 8, "All rewards of a group are equal: nothing in these texts is paid for"),
        ([("p", "a", n % 2) for n in range(40)], "Rewards differ in groups of only 1 prompt"),
        ([("p", "a", None), ("p", "b", None)], "All rewards of a group are equal"),
        ([("p", "\x00\x07 \u202eabc", 1.0), ("p", "", 0.0)], "Rewards differ in groups of only 1 prompt"),
        ([([{"role": "user", "content": "p"}], [{"role": "assistant", "content": str(n)}], n % 2) for n in range(4)],
         "Rewards differ in groups of only 1 prompt"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_said(
    rows: list[tuple[object, object, float | None]], wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps({"prompt": p, "completion": c, "reward": r}) + "\n" for p, c, r in rows))
    status, out, err = asked(capsys, str(path))
    assert (status, err) == (0, "")
    assert out.startswith(wanted)


def test_very_long_completions_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": "p", "completion": "word " * 2_000_000, "reward": n % 2} for n in range(2)]
    path = tmp_path / "own.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    status, out, _ = asked(capsys, str(path))
    assert status == 0
    assert "2 texts are longer than 100,000 characters" in out


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("own.csv", b"\x89PNG\x00\x00\x01", "is not a text file; give a CSV with prompt, completion and reward"),
        ("own.bin", b"\x00\x01\x02", "holds no rollouts; give JSONL or CSV with prompt, completion and reward"),
        ("own.csv", b"loss,reward\n1,2\n", "holds no rollouts"),
        ("own.csv", b"", "holds no rollouts"),
        ("own.jsonl", b'{"step": 1e30, "prompt": "p", "completion": "a"}\n', "step is 1e30; give a number"),
        ("own.csv", b"prompt,completion,reward\np,a,high\n", "line 2: reward is high; give a number, or leave it out"),
        ("own.jsonl", b'{"prompt": "p", "reward": 1}\n', "have no texts"),
    ],
)  # fmt: skip
def test_what_holds_no_texts_is_refused(
    name: str, content: bytes, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    status, out, err = asked(capsys, str(tmp_path / name))
    assert (status, out) == (2, "")
    assert wanted in err
    assert len(err.strip().split("\n")) == 1


def test_unknown_true_scores_are_refused(
    gamed: list[Rollout], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = asked(capsys, str(written(tmp_path / "own.jsonl", gamed)), "--truth", "right")
    assert status == 2
    assert "no rollout has a score right; there are: none" in err
    assert asked(capsys, str(tmp_path / "nowhere"))[2].startswith("grposcope: error: there is no ")


def test_texts_of_ones_own_from_python() -> None:
    rows = written_texts.rollouts(written_texts.LOOPHOLES["hedge"], 8, **SMALL)
    said = texts([{"step": row.step, "Prompt": row.prompt, "output": row.completion, "reward": row.reward,
                   "right": row.columns["right"]} for row in rows], truth="right")  # fmt: skip
    assert said.document["exploits"][0]["fault"] == "hedges"
    assert said.document["truth"] == "right"
    assert said.word == "warning"


@pytest.mark.slow
def test_the_page_has_the_pairs_and_no_markup_of_the_texts(tmp_path: Path) -> None:
    rows = written_texts.rollouts(written_texts.LOOPHOLES["magic word"], 8, **SMALL)
    hostile = [replace(row, completion=f"<script>alert(1)</script>{row.completion}") for row in rows]
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(
        json.dumps({"step": row.step, "group": row.group, "prompt": row.prompt, "completion": row.completion,
                    "reward": row.reward}) + "\n"
        for row in hostile
    ))  # fmt: skip
    assert cli.main(["report", str(path), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert cli.main(["texts", str(path), "--html", str(tmp_path / "own.html")]) == 1
    own = (tmp_path / "own.html").read_text()
    assert "Read these" in own
    assert "<script>alert(1)" not in own
    assert "What do the texts do that is paid?" in page
    assert "Read these" in page
    assert "<script>alert(1)" not in page


TAGGED = "<answer>"


def with_tags(seed: int) -> list[Rollout]:
    """Texts whose tags are nine tenths of the reward, and right answers the rest: no text without tags is paid well."""
    rng, rows = random.Random(seed), []
    for step in range(30):
        for prompt in range(4):
            for _ in range(8):
                tags, right = rng.random() < 0.15 + 0.8 * min(1.0, 2 * step / 30), rng.random() < 0.3
                words = " ".join(rng.choice(written_texts.__doc__.split()) for _ in range(12))
                said = f"{words} {rng.randint(10, 99)}"
                text = f"{TAGGED}{said}</answer>" if tags else said
                rows.append(Rollout(step=step + 1, group=f"{step}-{prompt}", prompt=f"problem {step} {prompt}",
                                    completion=text, reward=0.9 * tags + 0.1 * right))  # fmt: skip
    return rows


@pytest.mark.slow
def test_a_form_that_is_nearly_the_whole_reward(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named and graded alike by `texts` and `diagnose`, and read from standard input as from the file."""
    path = written(tmp_path / "rollouts.jsonl", with_tags(1))
    status, out, _ = asked(capsys, str(path), "--json")
    said = json.loads(out)
    assert (status, said["word"]) == (1, "failing")
    assert said["exploits"][0]["fault"] == exploits.FORM
    assert cli.main(["diagnose", str(path), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    graded = {one["fault"]: one["grade"] for one in verdict["findings"] if one["status"] == "present"}
    assert graded[exploits.FORM] == said["word"]
    sections = {one.name: one.word for one in runs_page.document([read(path)]).sections}
    assert sections["texts"] == said["word"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    status, piped, _ = asked(capsys, "-", "--json")
    assert (status, json.loads(piped)["sentence"]) == (1, said["sentence"])


def test_exploits_are_told_in_the_order_of_their_ranks() -> None:
    """So that `texts` and `diagnose` begin with the same one; only finishing, which is none, stands last."""
    ranks = [catalogue.faults()[name].rank for name in exploits.FAULTS]
    assert ranks == sorted(ranks)
