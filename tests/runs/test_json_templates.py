"""Columns by template: those of json.loads line by line, bit for bit, and None wherever it is not sure."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trainer_logs as logs
from hypothesis import given, settings
from hypothesis import strategies as st

from grposcope.files import json_number
from grposcope.runs import read
from grposcope.runs.columns import flat
from grposcope.runs.formats import json_templates, jsonl

TEXTS = st.one_of(st.text(max_size=5), st.sampled_from(["NaN", "inf", "0.5", '"', "\\", "x" * 250]))
VALUES = st.one_of(st.floats(), st.integers(), st.booleans(), st.none())
KEYS = (
    ("step", "reward", "kl"),
    ("step", "kl", "reward"),  # the same quotes, another order
    ("step", 'a"b', "c\\", "é,:{}[]1", "x:1"),
    ("a.e", "b.E"),
)


def plainly(data: bytes, unwrap: str = "") -> json_templates.Block:
    """Every line by itself."""
    rows = [flat(jsonl.unwrapped(json.loads(line), unwrap)) for line in data.split(b"\n")[:-1]]
    block = json_templates.Block({}, {})
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        numbers = [json_number(value) for value in values]
        if any(name in row and n is not None for row, n in zip(rows, numbers, strict=True)):
            block.columns[name] = np.array([math.nan if n is None else n for n in numbers])
        if None in numbers:
            block.texts[name] = [v if n is None else None for v, n in zip(values, numbers, strict=True)]
    return block


def equal(block: json_templates.Block | None, data: bytes, unwrap: str = "") -> bool:
    assert block is not None
    expected = plainly(data, unwrap)
    for name, column in expected.columns.items():
        np.testing.assert_array_equal(block.columns[name], column, err_msg=name)
    texts = {name: values for name, values in block.texts.items() if set(values) > {None} or None not in values}
    return block.columns.keys() == expected.columns.keys() and texts == expected.texts


@settings(max_examples=80, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.sampled_from(KEYS), st.lists(VALUES, min_size=5, max_size=5)), min_size=1, max_size=9),
    texts=st.lists(TEXTS, max_size=3),
    compact=st.booleans(),
    ascii_only=st.booleans(),
    nest=st.booleans(),
)
def test_lines_in_a_few_templates(
    shapes: list[tuple[tuple[str, ...], list[Any]]], texts: list[str], compact: bool, ascii_only: bool, nest: bool
) -> None:
    rows: list[dict[str, Any]] = [dict(zip(keys, values, strict=False)) for keys, values in shapes]
    if nest:
        rows = [{"n": k, "data": {"more": row}, "empty": {}} for k, row in enumerate(rows)]
    separators = (",", ":") if compact else None
    text = "".join(json.dumps(row, ensure_ascii=ascii_only, separators=separators) + "\n" for row in rows)
    assert equal(json_templates.table(text.encode(), "data"), text.encode(), "data")
    rows = [{**row, "note": texts[k % len(texts)]} if texts else row for k, row in enumerate(rows)]
    text = "".join(json.dumps(row, ensure_ascii=ascii_only, separators=separators) + "\n" for row in rows)
    block = json_templates.table(text.encode(), "data")
    assert (block is None and "x" * 250 in texts) or equal(block, text.encode(), "data")


@settings(max_examples=400, deadline=None)
@given(value=st.text('0123456789+-.eE"', max_size=6) | st.sampled_from(["nan", "Infinity", "tru", "null", "[1]", "{}"]))
@pytest.mark.parametrize("key", ["kl", "a.e5"])
def test_what_json_does_not_have_is_never_taken(key: str, value: str) -> None:
    """One line with anything as its value: either it is not sure, or json.loads reads the same number."""
    data = f'{{"step": 1, "{key}": 0.5}}\n{{"step": 2, "{key}": {value}}}\n'.encode()
    block = json_templates.table(data)
    try:
        assert block is None or equal(block, data)
    except json.JSONDecodeError:
        pytest.fail(f"{value!r} is no JSON")


@pytest.mark.parametrize("value", ["1", "-0.5e-7", "1E+3", "true", "null", "NaN", "-Infinity", "9" * 400, "1e999"])
def test_numbers_of_every_kind_are_taken(value: str) -> None:
    data = f'{{"step": 1, "b.e": 0.5}}\n{{"step": 2, "b.e": {value}}}\n'.encode()
    assert equal(json_templates.table(data), data)


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 2, "step": 3, "kl": 1}',  # the last of two holds, and its place is the first's
        '{"step": {}, "kl": 1, "step": 2}',
        '{"step": 2, "kl": 1, "data": {"kl": 2}}',  # the inner one replaces the outer
        '{"a": {"b": 1}, "a/b": 2}',
        '{"step": 2, "kl": "' + "long" * 60 + '"}',
        '{"step": 2, "kl": "\n"}',
        '{"step": 2, "kl": "a"b", "c": "d"}',
        '{"step": 2, "kl": "a\\"}',
        '{"step": 2, "kl": "a" "b"}',
        '{"step": 2, "kl": [1]}',
        '{"step": 2, "kl": 1} ',
        '{"step": 2, "kl": 1}{"step": 2, "kl": 1}',
        '{"step": 2, "kl":\t1}',
        '{"step": 2, "k',
        "{}",
        "[2]",
        "",
        '{"step": 2, "kl": ' + '{"a":' * 9 + "1" + "}" * 9 + "}",
        '{"a":' * 3000 + "1" + "}" * 3000,
    ],
)
def test_anything_else_is_left_to_the_caller(line: str) -> None:
    usual = '{"step": 1, "kl": 0.5}\n'
    for text in (usual + line + "\n", line + "\n" + usual):
        block = json_templates.table(text.encode(), "data")
        assert block is None or (line.endswith((" ", "\t1}")) and equal(block, text.encode()))


@pytest.mark.parametrize("value", ['["a"]', '{"a": 1}', '"a', '"a\tb"'])
def test_what_is_no_text_is_left_to_the_caller(value: str) -> None:
    assert json_templates.table(f'{{"step": 1, "kl": "x"}}\n{{"step": 2, "kl": {value}}}\n'.encode()) is None


def test_more_templates_than_are_tried() -> None:
    rows = [{"step": s, **{f"k{j}": j for j in range(s % json_templates.TEMPLATES)}} for s in range(100)]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert equal(json_templates.table(data), data)
    more = "".join(json.dumps({**row, f"x{row['step'] // 50}": 1}) + "\n" for row in rows).encode()
    assert json_templates.table(more) is None


def test_many_keys_in_few_lines_each_do_not_fill_the_memory() -> None:
    """Two templates of a thousand keys and a thousand lines without: a dense table would be larger than the text."""
    wide = ["".join(json.dumps({f"{name}{k}": 1 for k in range(1000)}) + "\n") for name in "ab"]
    assert json_templates.table("".join([*wide, '{"s": 1}\n' * 10_000]).encode()) is None


def test_usual_logs_are_read_in_bulk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's evaluations come with keys of their own, every ten steps."""
    monkeypatch.setattr(jsonl, "_parsed", lambda *given: pytest.fail("line by line"))
    monkeypatch.setattr(jsonl, "FEW", 0)
    rows = []
    for step in range(1, 61):
        data = {**logs.verl_row(step), "actor/grad_norm": math.nan if step == 7 else 0.5}
        rows.append({"step": step, "data": {**data, **({"val-core/x/mean@1": 0.1} if step % 10 == 0 else {})}})
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read(tmp_path / "log.jsonl")
    assert run.steps == 60
    assert len(run.evaluations) == 6
    assert run.nonfinite == {"grad_norm": 1}


def test_a_short_log_is_read_without_arrow(tmp_path: Path) -> None:
    """Loading Arrow takes longer than the whole verdict on a log of some hundred rows."""
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(logs.verl_row(step)) + "\n" for step in range(1, 61)))
    code = "import sys; from grposcope.runs import read; read(sys.argv[1]); sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "log.jsonl"], check=False).returncode == 0
