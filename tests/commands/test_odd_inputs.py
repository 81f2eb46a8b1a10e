"""Inputs that once ended a command with a traceback: an answer, or one line that says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import synthetic

from grposcope.cli import main
from grposcope.maths.dead_groups import log_choose


def lines(*rows: dict) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def rollouts(**changes: object) -> bytes:
    base = {"step": 1, "prompt": "p", "completion": "it is 3", "reward": 1.0}
    return lines(*({**base, "reward": float(i % 2), **changes} for i in range(4)))


def series(**columns: float) -> bytes:
    return lines(*({"step": i + 1, "reward": 0.3 + 0.1 * (i % 3), **columns} for i in range(40)))


def huge() -> bytes:
    columns = ((i // 4, "x" * i, 1e308 * (i % 2)) for i in range(80))
    return lines(*({"step": s, "prompt": f"p{s}", "completion": text, "reward": reward} for s, text, reward in columns))


@pytest.mark.parametrize(
    ("name", "content", "command", "said"),
    [
        ("r.jsonl", lambda: rollouts(completion=7), ("rewards",), "completion is a int; give a text"),
        ("r.jsonl", lambda: rollouts(prompt=True), ("plan",), "prompt is a bool; give a text"),
        ("r.jsonl", lambda: rollouts(length_of=10**400), ("texts",), ""),
        ("r.jsonl", lambda: rollouts(), ("texts", "--seed", "-1"), "-1 is out of range"),
        ("p.yaml", lambda: b"fall: null", ("advise", "SOUND", "--policy"), "fall is 'None'; it must be a float"),
        ("p.yaml", lambda: b"rollbacks: .inf", ("advise", "SOUND", "--policy"), "rollbacks is 'inf'; it must be a int"),
        ("c.yaml", lambda: b"steps: \x01", ("simulate", "--config"), "not valid YAML"),
        ("l.jsonl", lambda: series(kl=5e-324, loss=0.1), ("diagnose",), ""),
        ("l.jsonl", lambda: series(grad_norm=5e-324), ("diagnose",), ""),
        ("c.json", lambda: b'{"num_generations": 8, "beta": 1' + b"0" * 400 + b"}", ("verify", "SOUND", "--config"),
         "the setting beta is inf"),
        ("l.jsonl", lambda: lines(*({"step": i, "reward": 0.5, "grad_norm": 1e99 if i in (50, 90) else 5e-324}
                                    for i in range(1, 121))), ("diagnose",), ""),
        ("r.jsonl", lambda: huge(), ("texts",), ""),
        ("l.yaml", lambda: b"num_generations: 1000000000000\nlearning_rate: 1.0e-6\n", ("lint", "--run", "SOUND"),
         "a group of 1,000,000,000,000 rollouts is more than is computed"),
    ],
)  # fmt: skip
def test_an_answer_or_a_line(
    name: str, content: Callable[[], bytes], command: tuple[str, ...], said: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder,
) -> None:  # fmt: skip
    sound = synthetic.make(tmp_path / "sound", steps=4, group=2)
    (tmp_path / name).write_bytes(content())
    words = [str(sound) if word == "SOUND" else word for word in command]
    try:
        status = main([*words, str(tmp_path / name)])
    except SystemExit as stop:  # of argparse
        status = int(stop.code or 0)
    err = capsys.readouterr().err
    assert not recwarn.list
    assert status == (2 if said else 0)
    assert said in err
    assert "Traceback" not in err


def test_completions_that_are_lists_of_numbers_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "completions"
    folder.mkdir()
    table = {"step": [1] * 4, "prompt": ["p"] * 4, "completion": [[1, 2]] * 4, "r": [0.0, 1.0, 1.0, 0.0]}
    pyarrow.parquet.write_table(pa.table(table), folder / "completions_00001.parquet")
    assert main(["texts", str(folder)]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_a_page_of_texts_with_half_a_character_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes(rollouts(completion="\ud800"))
    assert main(["report", str(tmp_path / "r.jsonl"), "--out", str(tmp_path / "page.html")]) == 0


def test_a_record_whose_steps_are_no_lines_is_not_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its evaluations alone rise; what should be its steps is noise."""
    run = synthetic.make(tmp_path / "run", steps=20)
    (run / "steps.jsonl").write_bytes(np.random.default_rng(0).bytes(200).replace(b"\n", b"x"))
    assert main(["diagnose", str(run)]) == 2
    said = capsys.readouterr()
    assert "steps.jsonl, line 1" in said.err
    assert "ealthy" not in said.out


def test_a_loop_of_links_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert main(["offpolicy", str(tmp_path / "loop")]) == 2
    assert "cannot be followed to a folder" in capsys.readouterr().err


def test_what_the_system_refuses_is_no_fault_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(self: Path, *_: object, **__: object) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_file", refused)
        assert main(["plan", str(tmp_path)]) == 2
    assert "Permission denied; change its permissions" in capsys.readouterr().err


def test_numbers_of_subsets() -> None:
    assert log_choose(np.empty(0, int), 4).shape == (0,)
    assert log_choose([4, 5], 10**12).tolist() == [-np.inf, -np.inf]
    assert np.exp(log_choose([4, 5], 2)).round(9).tolist() == [6, 10]
