"""The flags that say how a log is read, in every command that reads one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from grposcope import cli
from grposcope.commands import log_flags
from grposcope.core.errors import UserError
from grposcope.signs.rollouts import pipeline_settings

REWARD = np.random.default_rng(0).normal(0.5, 0.05, 40).round(4).tolist()
NEEDED = {
    "diagnose": "diagnosis", "watch": "diagnosis", "compare": "runs", "fit": "dynamics", "stability": "dynamics",
}  # fmt: skip
COMMANDS = [
    pytest.param(words, marks=pytest.mark.needs(*NEEDED.get(words[0], "").split()), id=words[0])
    for words in (("diagnose",), ("fit",), ("watch", "--once"), ("compare",), ("report",), ("stability", "--run"))
]


def own_log(path: Path, runs: int = 1) -> Path:
    rows = [f"epoch {s // 10} at {s} my_score={r} other_reward=0.5" for s, r in enumerate(REWARD, 1)]
    path.write_text("\n".join(rows * runs) + "\n")
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dry_run_shows_what_is_understood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    path = str(own_log(tmp_path / "out.log"))
    question = "which number is the reward; candidates: other_reward (0.5 → 0.5, 40 rows), my_score ("
    assert cli.main(["diagnose", path]) == 2
    said = capsys.readouterr().err
    assert question in said
    assert "say which with --map, such as --map reward=other_reward" in said
    assert cli.main([*command, path, "--dry-run"]) == 0
    assert question in capsys.readouterr().out
    known = [*command, path, "--map", "reward=my_score,step=2", "--dry-run"]
    assert cli.main(known) == 0
    text = capsys.readouterr().out.splitlines()
    assert cli.main([*known, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["understood"]
    assert found["steps"] == [40, 1, 40]
    assert found["metrics"][0] | {"values": 0} == {
        "metric": "reward", "key": "my_score", "values": 0, "first": REWARD[0], "last": REWARD[-1],
    }  # fmt: skip
    assert f"{path} · generic · 40 steps, 1 to 40" in text[0]
    assert not list(tmp_path.glob("*.html"))


def test_a_dry_run_shows_what_a_refused_log_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    rows = [{"step": s, "a_reward": r, "b_reward": 2 * r, "gain": 0.25} for s, r in enumerate(REWARD, 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli.main(["diagnose", str(path), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path} · cannot be read as it is"
    cells = [line.split() for line in lines[2:7]]
    assert cells[1][:2] == ["a_reward", "40"]
    assert cells[1][-5:] == [f"{REWARD[-1]:.3g}", "may", "be", "the", "reward"]
    assert cells[3:] == [["gain", "40", "0.25", "0.25"], ["step", "40", "1", "40"]]
    assert lines[-1].endswith("--map reward=a_reward; --dry-run shows all that is in it")
    assert cli.main(["diagnose", str(path), "--dry-run", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["understood"]
    assert found["seen"][1] == {
        "key": "b_reward", "values": 40, "first": 2 * REWARD[0], "last": 2 * REWARD[-1], "candidate": True,
    }  # fmt: skip
    for flag in ("reward=a_reward", "a_reward=reward", "reward=train/a_reward"):
        assert cli.main(["diagnose", str(path), "--map", flag, "--dry-run"]) == 0
        cells = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert cells[3][:3] == ["reward", "a_reward", "40"]
        assert ["(not", "used)", "gain", "40", "0.25", "0.25"] in cells


@pytest.mark.needs("diagnosis")
def test_one_of_several_runs_is_named_by_its_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = own_log(tmp_path / "out.log", runs=2)
    flags = ["--map", "reward=my_score", "--map", "step=2"]
    assert cli.main(["diagnose", str(path), *flags]) == 2
    said = capsys.readouterr().err
    assert "2 runs in it: 1: steps 1 to 40, from line 1; 2: steps 1 to 40, from line 41" in said
    assert f"give one of them, such as {path}#2" in said
    assert cli.main(["diagnose", f"{path}#2", *flags]) == 0
    assert "of 2 runs in this log, this is 2: steps 1 to 40, from line 41" in capsys.readouterr().out
    assert cli.main(["watch", "--once", str(path), *flags]) == 0, "it follows the one that is being written"


@pytest.mark.needs("diagnosis")
def test_rows_of_a_step_are_averaged_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"step": 1 + k // 3, "reward": value + 0.2 * (k % 3)} for k, value in enumerate(REWARD)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli.main(["diagnose", str(path)]) == 2
    assert "use --average to average the rows of a step" in capsys.readouterr().err
    assert cli.main(["diagnose", str(path), "--average"]) == 0
    assert "the rows of a step were averaged, 40 rows to 14 steps: as asked" in capsys.readouterr().out


@pytest.mark.needs("diagnosis")
def test_what_is_no_pair_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(own_log(tmp_path / "out.log"))
    for flag, words in (
        ("reward", "is not METRIC=KEY"),
        ("rewrd=x", "'rewrd' is not a metric"),
        ("reward=x", "number 'x'"),
    ):
        assert cli.main(["diagnose", path, "--map", flag, "--map", "step=2"]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("grop=8", "there is no setting 'grop'; did you mean group?"),
        ("foo=1", "there is no setting 'foo'; choose one of accumulation, advantage, aggregation, "),
        ("group=abc", "group must be a whole number of at least 1; write for example --set group=8"),
        ("group=-5", "group must be a whole number of at least 1"),
        ("interval=0", "interval must be a whole number of at least 1"),
    ],
)
def test_a_setting_that_nothing_reads_or_that_cannot_be_is_refused(given: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        log_flags._settings([given])
    assert str(error.value).startswith(f"--set {given}: {said}")


def test_every_setting_that_an_instrument_asks_for_can_be_given() -> None:
    asked = {
        name
        for file in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"\brun\.setting\(\"(\w+)\"\)", file.read_text())
    }
    assert len(asked) > 5
    assert asked <= log_flags.known_settings()


def test_trainers_own_names_are_settings() -> None:
    assert log_flags._settings(["beta=4", "num_generations=8", "lr=1e-6"]) == {"kl": 4, "group": 8, "lr": 1e-6}
    assert log_flags._settings(["init_kl_coef=0.1"]) == {"kl": 0.1}
    with pytest.raises(UserError, match=r"--set kl=3: kl is given as 4 already"):
        log_flags._settings(["beta=4", "kl=3"])


def test_versions_of_engines_are_settings() -> None:
    assert {"trl_version", "verl_version", "prime_rl_version"} <= log_flags.known_settings()


@pytest.mark.parametrize(("value", "read"), [
    ("[1,0.2]", "1,0.2"), ("(1, 0.2)", "1,0.2"), ('{"right": 1, "form": 0.2}', "right=1,form=0.2"), ("1,0.2", "1,0.2"),
])  # fmt: skip
def test_lists_and_objects_are_settings(value: str, read: str) -> None:
    assert log_flags._settings([f"reward_weights={value}"]) == {"reward_weights": read}


@pytest.mark.parametrize("value", ["[1,x]", "[1,0.2", "[]", '{"right"}', "[nan]"])
def test_brackets_of_anything_but_numbers_are_refused(value: str) -> None:
    with pytest.raises(UserError, match="is not a list of numbers; write for example --set reward_weights=1"):
        log_flags._settings([f"reward_weights={value}"])


def test_several_numbers_are_refused_where_one_is_read() -> None:
    with pytest.raises(UserError, match="lr is one value, not several"):
        log_flags._settings(["lr=[1e-5,1e-6]"])


def test_weights_in_brackets_are_those_of_a_pipeline() -> None:
    """In order, which the functions name, and by name."""
    in_order = pipeline_settings.of_settings(log_flags._settings(["reward_weights=[1,0.2]"]))
    assert pipeline_settings.named(in_order, ("right", "form")).weights == {"right": 1.0, "form": 0.2}
    by_name = pipeline_settings.of_settings(log_flags._settings(['reward_weights={"right": 1, "form": 0.2}']))
    assert by_name.weights == {"right": 1.0, "form": 0.2}
