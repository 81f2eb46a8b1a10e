"""`grposcope compare`: runs that part, runs that do not, and what cannot be compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked import asked

from grposcope.core.errors import UserError
from grposcope.instruments.runs.compare.answer import SHORT, _measure


def log(path: Path, seed: int, drift: float, first: int = 1, offset: float = 0.0) -> Path:
    noise = 0.02 * np.random.default_rng(seed).normal(size=100)
    rows = [{"step": i + first, "reward": 0.3 + offset + noise[i] + drift * max(0, i - 50) / 50} for i in range(100)]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, dict[str, Any]]:
    status, document = asked("compare", *arguments)
    assert status == 0
    return capsys.readouterr().out, document


def test_the_step_where_runs_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, document = call(capsys, log(tmp_path / "a.jsonl", 0, 0.0), log(tmp_path / "b.jsonl", 1, 0.5))
    (found,) = document["partings"][0]["metrics"]
    assert found["adjusted"] < 0.01
    assert found["low"] <= 53
    assert abs(found["step"] - 51) <= 10
    first = f"b.jsonl against a.jsonl: reward {found['second']:.3g} against {found['first']:.3g} at the common end ("
    assert out.startswith(first), "the size goes first"
    assert f"), different from step {found['step']} [{found['low']}, {found['high']}] on." in out.splitlines()[0]
    assert found["second"] - found["first"] == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_a_constant_offset_has_a_size_and_no_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    one, other = log(tmp_path / "a.jsonl", seed, 0.0), log(tmp_path / "b.jsonl", 99, 0.0, offset=0.1)
    out, document = call(capsys, one, other)
    (found,) = document["partings"][0]["metrics"]
    assert found["adjusted"] < 0.01
    assert (found["step"], found["low"], found["high"]) == (None, None, None)
    assert "step" not in out.splitlines()[0]
    assert "(+0.1" in out.splitlines()[0] or "(+0.09" in out.splitlines()[0]
    assert "from the first step" in out


def test_a_date_is_given_only_where_its_interval_is_short() -> None:
    """Of wandering differences that rise slowly, none is given a step that could as well be another."""
    rng = np.random.default_rng(0)
    dates = []
    for _ in range(20):
        noise = np.convolve(rng.normal(size=160), 0.9 ** np.arange(40))[:150]
        found = _measure("reward", np.arange(150), np.zeros(150), 0.03 * noise + np.arange(150) / 400)
        dates += [found] if found.step is not None else []
        assert found.step is None or found.high - found.low <= SHORT * 149
    assert len(dates) < 10


def test_parts_of_the_reward_are_compared_and_dated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First and last levels, difference with interval, and since when; of those that both runs have."""
    for seed, name in enumerate("ab"):
        noise = 0.03 * np.random.default_rng(seed).normal(size=(100, 2))
        rows = []
        for i in range(100):
            form, right = 0.5 + noise[i, 0] + seed * 0.008 * max(0, i - 50), 0.3 + noise[i, 1]
            parts = {"rewards/format/mean": form, "rewards/right/mean": right, f"rewards/only_{name}/mean": 0.1 * i}
            rows.append(
                {
                    "step": i + 1,
                    "epoch": i / 100,
                    "kl": 0.01,
                    "completion_length": 9.0,
                    "reward": form + right + 0.1 * i,
                    **parts,
                }
            )
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, document = call(capsys, tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    found = {row["metric"]: row for row in document["partings"][0]["metrics"]}
    assert {name for name in found if "/" in name} == {"component/format", "component/right"}
    assert abs(found["component/format"]["step"] - 55) <= 10
    assert "Parts of the reward" in out
    (form,), (right,) = (re.findall(rf"^  b.jsonl +{part} .*$", out, re.MULTILINE) for part in ("format", "right"))
    assert re.search(r"0\.\d+ → 0\.\d+ +0\.\d+ → 0\.8\d* +\+0\.3\d+ \[0\.\d+, 0\.\d+\] +from step \d+ \[", form)
    assert right.endswith("within noise")


def test_a_part_that_is_the_whole_reward_is_not_said_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, name in enumerate("ab"):
        values = 0.3 + 0.03 * np.random.default_rng(seed).normal(size=60)
        rows = [{"step": i, "epoch": i / 60, "kl": 0.01, "completion_length": 9.0, "reward": value,
                 "rewards/right/mean": value}
                for i, value in enumerate(values.tolist())]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, _ = call(capsys, tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert "Parts of the reward" not in out


def test_the_reward_goes_first_and_the_others_follow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    for name, up in (("a", 0.0), ("b", 1.0)):
        noise = rng.normal(size=(100, 2)).tolist()
        rows = [{"step": i, "reward": 0.3 + 0.02 * a + 0.1 * up, "kl": 0.01 + 0.05 * up + 0.001 * b, "entropy": 1.0}
                for i, (a, b) in enumerate(noise)]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, _ = call(capsys, tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert "at the common end (+0." in out.splitlines()[0]
    assert re.search(r"; kl \(\+0\.0\d+\) differs too\.$", out.splitlines()[0])


def test_same_run_does_not_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "a.jsonl", 0, 0.3)
    out, document = call(capsys, path, path)
    assert document["partings"][0]["metrics"][0]["p"] == 1.0
    assert "equal to the last digit in the one metric that varies, so this is one run twice" in out


def logs(path: Path, coefficient: float, norm: float, seed: int) -> Path:
    """A log with a coefficient that the trainer writes in every row."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(60, 3)).tolist()
    rows = [{"step": i + 1, "reward": 0.4 + 0.02 * a, "reward_std": 0.3 + 0.01 * b, "grad_norm": norm * np.exp(0.1 * c),
             "policy/kl_loss_coef": coefficient} for i, (a, b, c) in enumerate(drawn)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_setting_without_effect_is_named_where_runs_are_equal_to_the_last_digit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = logs(tmp_path / "a.jsonl", 0.001, 1.0, 0), logs(tmp_path / "b.jsonl", 0.1, 1.0, 0)
    out, document = call(capsys, one, other)
    assert "although policy/kl_loss_coef is 0.001 and 0.1: it has no effect" in out
    assert document["settings"]["policy/kl_loss_coef"] == [0.001, 0.1]
    out, _ = call(capsys, one, logs(tmp_path / "c.jsonl", 0.1, 1.0, 1))
    assert "no effect" not in out


def test_the_first_line_begins_with_the_settings_that_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(name: str, settings: dict[str, Any], seed: int) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"format": 2, "name": name, "settings": settings}))
        return log(folder / "steps.jsonl", seed, 0.5 * seed).parent

    out, _ = call(capsys, logs(tmp_path / "c.jsonl", 0.001, 1.0, 0), logs(tmp_path / "d.jsonl", 0.1, 1.0, 1))
    assert out.startswith("d.jsonl against c.jsonl: policy/kl_loss_coef 0.1 against 0.001; they differ in no metric")
    first = {"lr": 1e-6, "group": 8, "seed": 1, "kl": 0.0}
    out, _ = call(capsys, record("a", first, 0), record("b", first | {"lr": 3e-6}, 1))
    assert out.startswith("b against a: lr 3e-6 against 1e-6; reward 0.6")
    one, other = record("a", first, 0), record("b", {"lr": 3e-6, "group": 4, "seed": 2, "kl": 0.1, "steps": 3}, 1)
    assert (
        ": lr 3e-6 against 1e-6, group 4 against 8, seed 2 against 1 and kl 0.1 against 0; reward"
        in call(capsys, one, other)[0]
    ), "steps are not stated by the first"


def test_another_scale_of_the_gradient_is_no_difference_of_learning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = logs(tmp_path / "a.jsonl", 0.1, 1.0, 0)
    out, _ = call(capsys, one, logs(tmp_path / "b.jsonl", 0.1, 1000.0, 1))
    assert "from the first step on, at equal reward and reward_std: the scale of the gradient" in out
    out, _ = call(capsys, one, logs(tmp_path / "c.jsonl", 0.1, 1.3, 1))
    assert "the scale of the gradient" not in out


def test_what_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="two runs"):
        call(capsys, log(tmp_path / "a.jsonl", 0, 0.0))
    with pytest.raises(UserError, match="have 0 steps in common"):
        call(capsys, tmp_path / "a.jsonl", log(tmp_path / "b.jsonl", 1, 0.0, first=5000))


def test_side_by_side_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of different trainers: means of both, and no comparison of what only shares its name."""
    ours = log(tmp_path / "a.jsonl", 0, 0.0)
    rows = [{"step": i + 1, "reward": 0.4, "kl": 0.01, "frac_reward_zero_std": 0.5} for i in range(100)]
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"log_history": rows, "global_step": 100, "logging_steps": 1}))
    verl = tmp_path / "verl.log"
    keys = "critic/score/mean:0.5 - actor/kl_loss:0.02"
    verl.write_text("".join(f"step:{i} - {keys}\n" for i in range(1, 101)))
    out, document = call(capsys, state, verl, ours, "--html", tmp_path / "both.html")
    assert document["ends"]["reward"][:2] == pytest.approx([0.4, 0.5])
    assert document["ends"]["dead_fraction"] == [0.5, None, None]
    row = next(line for line in out.splitlines() if line.startswith("  reward  "))
    assert row.split()[1:3] == ["0.4", "0.5"]
    assert "not logged" in out
    _, document = call(capsys, state, verl)
    assert document["not_compared"] == ["kl: kl and kl_loss are different quantities"]
    assert "kl" not in [p["metric"] for p in document["partings"][0]["metrics"]]
    page = (tmp_path / "both.html").read_text()
    assert "Where do these runs differ?" in page
    assert "trainer_state.json" in page


def test_escapes_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = log(tmp_path / "a\x1b[2J.jsonl", 0, 0.0), log(tmp_path / "b.jsonl", 1, 0.5)
    out, _ = call(capsys, one, other)
    assert "\x1b" not in out


def test_the_mismatch_of_sampler_and_trainer_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, late in (("sound", 1e-3), ("apart", 0.1)):
        rng = np.random.default_rng(0)
        sizes = np.where(np.arange(60) < 30, 1e-3, late) * np.exp(0.1 * rng.normal(size=60))
        rows = [{"step": k, "data": {"critic/rewards/mean": 0.5, "rollout_corr/k3_kl": size, "actor/entropy": 0.3}}
                for k, size in enumerate(sizes.tolist())]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text, _ = call(capsys, tmp_path / "sound.jsonl", tmp_path / "apart.jsonl")
    assert re.search(r"apart.jsonl +mismatch/k3 +0\.00\d+ +0\.1", text), text
