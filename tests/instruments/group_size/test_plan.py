"""`grposcope plan`: the numbers of `planning` from shell to JSON, both kinds of input, and all it must refuse."""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked import asked

from grposcope.core.errors import UserError
from grposcope.core.files import dumps
from grposcope.instruments.gradient.probe_record import ProbeGram, read_gram, write_gram
from grposcope.instruments.group_size import PlanSettings, mse, planning
from grposcope.instruments.group_size import command as plan
from grposcope.instruments.group_size.answer import answers, of_run
from grposcope.logs import read
from grposcope.maths import dead_groups, moments
from grposcope.render import terminal


def make_probe(folder: Path, prompts: int = 40, group: int = 6, seed: int = 0, **change: Any) -> ProbeGram:
    """A probe whose rewards depend on the scores, written as the probe command writes it."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(prompts, group, 9))
    directions = rng.normal(size=9) + 1.5 * rng.normal(size=(prompts, 9))
    given = {
        "gram": scores.reshape(-1, 9) @ scores.reshape(-1, 9).T,
        "rewards": (np.einsum("pgd,pd->pg", scores, directions) > 0.5).astype(float),
        "truncated": rng.random((prompts, group)) < 0.1,
    }
    flat = scores.reshape(-1, 9)
    layers = np.stack([flat[:, :4] @ flat[:, :4].T, flat[:, 4:] @ flat[:, 4:].T])
    write_gram(folder, ProbeGram(**{**given, "layers": layers, "layer_names": ("low", "high"), **change}))
    about = {"format": 1, "model": "tiny", "task": "arithmetic", "prompts": prompts, "group": group}
    (folder / "probe.json").write_text(json.dumps(about))
    return read_gram(folder)


def make_run(folder: Path, lines: list[Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = [line if isinstance(line, str) else json.dumps({"problem": "p", **line}) for line in lines]
    (folder / "config.json").write_text('{"format": 2}')
    (folder / "groups.jsonl").write_text("\n".join(text) + "\n")
    return folder


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, dict[str, Any]]:
    """Text and JSON of one call."""
    status, document = asked("plan", *arguments)
    assert status == 0
    return capsys.readouterr().out.removesuffix("\n"), document


def test_a_probes_plan_is_that_of_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe = make_probe(tmp_path, seed=5)
    text, document = call(capsys, tmp_path, "--groups", "2,5,8")
    found = moments.from_gram(probe.gram, probe.rewards)
    best = planning.optimal_group(found)
    assert document["plan"]["continuous"]["value"] == best.continuous.value
    assert document["plan"]["interval"] == json.loads(dumps(best.interval))
    assert document["plan"]["integer"] == best.integer
    assert [point["group"] for point in document["plan"]["curve"]] == [2, 5, 8]
    assert document["moments"]["sigma1"]["value"] == found.sigma1.value
    assert document["moments"]["delta"]["low"] == found.interval(lambda s: s.delta)[0]
    batch = document["allocation"]
    assert batch["prompts"] * batch["group"] <= 240
    at = (found, batch["prompts"], batch["group"])
    assert document["errors"]["leave-one-out (RLOO)"]["value"] == mse.leave_one_out(*at).value
    standardized = json.loads(dumps(mse.standardized(*at)))  # NaN where the group is larger than the probe's
    assert document["errors"]["standardized (GRPO), with its bias"] == standardized
    assert f"Best G = {best.integer} (G* = " in text
    assert "tiny on arithmetic, 40 prompts × 6 rollouts" in text
    dead = dead_groups.expected(probe.rewards, 5).value
    assert f"{dead:.1%}" in text


def test_costs_budget_and_multiple_reach_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe = make_probe(tmp_path)
    money = ("--budget", 500, "--prompt-cost", 2, "--rollout-cost", 0.5, "--multiple", 24)
    _, document = call(capsys, tmp_path, *money, "--replicates", 50, "--seed", 3)
    found = moments.from_gram(probe.gram, probe.rewards, 50, 3)
    batch = planning.allocate(found, 500, 2, 0.5, 24)
    assert document["allocation"]["prompts"] == batch.prompts
    assert document["allocation"]["group"] == batch.group
    assert batch.prompts * batch.group % 24 == 0
    assert document["plan"]["interval"] == json.loads(dumps(planning.optimal_group(found, 2, 0.5).interval))


def test_layers_are_planned_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_probe(tmp_path)
    text, document = call(capsys, tmp_path, "--layers")
    total = sum(layer["sigma1"]["value"] for layer in document["layers"].values())
    assert list(document["layers"]) == ["low", "high"]
    assert total == pytest.approx(document["moments"]["sigma1"]["value"])
    assert "low " in text


def test_truncated_rollouts_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe = make_probe(tmp_path)
    assert probe.truncated.any()
    _, document = call(capsys, tmp_path, "--truncated", "drop")
    kept = probe.without_truncated()
    assert document["moments"]["sigma1"]["value"] == moments.from_gram(kept.gram, kept.rewards).sigma1.value


def test_too_few_informative_groups_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    scores = np.tile(rng.normal(size=(1, 6, 9)), (8, 1, 1))  # one prompt copied: no difference between prompts
    flat = scores.reshape(-1, 9)
    layers, names = np.empty((0, 48, 48)), ()
    graded = np.tile(rng.normal(size=(1, 6)), (8, 1))
    make_probe(tmp_path, 8, 6, gram=flat @ flat.T, rewards=graded, layers=layers, layer_names=names)
    text, document = call(capsys, tmp_path)
    assert document["plan"]["decided"] is False
    assert document["allocation"] is None
    assert "Cannot tell the best group size: 8 of 8 groups have" in text


def test_a_run_answers_what_rewards_can_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(2)
    logged = (rng.random((30, 4)) < 0.4).astype(float)
    lines = [{"step": 1 + i // 3, "problem": f"p{i}", "rewards": row.tolist()} for i, row in enumerate(logged)]
    text, document = call(capsys, make_run(tmp_path, lines), "--last", 4, "--groups", "2,4,8")
    assert document["steps"] == [7, 10]
    assert document["groups"] == 12
    for point in document["curve"]:
        assert point["dead"]["value"] == dead_groups.expected(logged[18:], point["group"]).value
    assert document["plan"] is None
    assert "best group" in document["cannot_tell"]
    assert "Cannot tell" in text
    assert "extrapolated" in text


def test_a_run_with_several_rewards_has_the_dead_groups_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the last steps alone; a group in which one reward is constant is not dead in the sum."""
    rng = np.random.default_rng(2)
    right, form = (rng.random((2, 30, 4)) < np.array([0.4, 0.9])[:, None, None]).astype(float)
    lines = [
        {"step": 1 + i // 3, "problem": f"p{i}", "rewards": (right[i] + form[i] / 2).tolist(),
         "components": {"right": right[i].tolist(), "form": form[i].tolist()}} for i in range(30)
    ]  # fmt: skip
    run = make_run(tmp_path, lines)
    text, _ = call(capsys, run, "--last", 4, "--groups", "2,4")
    found = of_run(read(run), PlanSettings(last=4, groups=(2, 4))).tables[-1]
    assert found.header[1:4] == ("right", "form", "all of them")
    both = right + 2 * form  # one number for each pair
    assert found.rows[-1][0] == "smallest G with ≤ 50%"
    for j, values in enumerate((right, form, both), 1):
        dead = {group: dead_groups.expected(values[18:], group).value for group in (2, 4)}
        assert found.rows[-1][j] == next((str(group) for group in (2, 4) if dead[group] <= 0.5), "none of these")
    assert found.rows[-1][1:4] == ("4", "none of these", "2")
    for row in found.rows[:-1]:
        for cell, values in zip(row[1:4], (right, form, both), strict=True):
            assert cell.startswith(f"{dead_groups.expected(values[18:], int(row[0])).value:.1%} ±")
    assert "Groups in which a reward does not vary" in text


def test_a_run_in_progress_is_read_up_to_its_last_whole_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, [GOOD, GOOD])
    with (run / "groups.jsonl").open("a") as file:
        file.write('{"step": 2, "rew')
    assert call(capsys, run)[1]["groups"] == 2


def test_a_runs_probes_are_planned_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that have their Gram, pooled; without any, rewards alone."""
    run = make_run(tmp_path, [{"step": 1, "rewards": [0, 1, 1, 0]}])
    assert call(capsys, run)[1]["kind"] == "run"
    for step in (9, 10, 200):
        (run / "probes" / f"step-{step}").mkdir(parents=True)
        make_probe(run / "probes" / f"step-{step}", seed=step)
    (run / "probes" / "step-200" / "gram.npz").unlink()
    text, document = call(capsys, run)
    assert document["kind"] == "probe"
    assert document["folder"] == str(run)
    assert document["probe"]["folder"] == str(run / "probes" / "step-10")
    assert document["pooled"] == {"steps": [9, 10], "left_out": 0, "drift": None}
    assert "The 2 probes of steps 9 to 10 are pooled" in text
    assert "80 prompts × 6 rollouts in 2 probes; the last is tiny on arithmetic after step 10, 40 prompts" in text
    (run / "probes" / "step-9" / "gram.npz").unlink()
    alone = call(capsys, run)[1]
    assert alone["plan"] == call(capsys, run / "probes" / "step-10")[1]["plan"] != document["plan"]


@pytest.mark.slow
def test_small_probes_pooled_say_what_a_big_one_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """32 probes of 8 prompts decide like one of 256; one of 8 does not."""
    run = make_run(tmp_path / "run", [{"step": 1, "rewards": [0, 1, 1, 0]}])
    for step in range(1, 33):
        (run / "probes" / f"step-{step}").mkdir(parents=True)
        part(tmp_path, run / "probes" / f"step-{step}", step - 1)
    small = call(capsys, run)[1]["plan"]
    assert not call(capsys, run / "probes" / "step-32")[1]["plan"]["decided"]
    big = call(capsys, tmp_path / "whole")[1]["plan"]
    assert small["decided"]
    assert big["interval"][0] <= small["continuous"]["value"] <= big["interval"][1]


def part(folder: Path, to: Path, number: int) -> None:
    """Prompts 8 × `number` and the 7 after them of a probe of 256 in `folder`/whole, as a probe of its own."""
    if not (folder / "whole").is_dir():
        (folder / "whole").mkdir()
        make_probe(folder / "whole", prompts=256, layers=None, layer_names=())
    whole = read_gram(folder / "whole")
    of, rows = slice(8 * number, 8 * number + 8), slice(48 * number, 48 * number + 48)
    write_gram(to, ProbeGram(whole.gram[rows, rows], whole.rewards[of], whole.truncated[of]))
    (to / "probe.json").write_text(json.dumps({"format": 1, "model": "tiny", "prompts": 8, "group": 6}))


@pytest.mark.slow
def test_a_drift_over_the_probes_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Gradients ten times as large in the later half: that half is pooled alone."""
    run = make_run(tmp_path, [{"step": 1, "rewards": [0, 1, 1, 0]}])
    for step in range(1, 7):
        (run / "probes" / f"step-{step}").mkdir(parents=True)
        made = make_probe(run / "probes" / f"step-{step}", seed=step, layers=None, layer_names=())
        write_gram(
            run / "probes" / f"step-{step}",
            ProbeGram(made.gram * (100 if step > 3 else 1), made.rewards, made.truncated),
        )
    text, document = call(capsys, run)
    assert document["pooled"]["steps"] == [4, 5, 6]
    assert "The 3 probes of steps 4 to 6, the later half, are pooled, because over all probes the squared" in text


def test_the_page_the_terminal_and_json_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_probe(tmp_path / "probe")
    text, document = call(capsys, tmp_path / "probe")
    (answer,) = answers([read(tmp_path / "probe")], PlanSettings())
    assert all(paragraph in text for paragraph in answer.paragraphs)
    assert all(terminal._of_table(table) in text for table in answer.tables)
    shown = json.loads(dumps(answer.document))["probe"]
    assert {name: document[name] for name in shown.keys() & document.keys()} == shown
    assert shown.keys() >= {"kind", "probe", "moments", "plan", "allocation", "errors", "recipe", "verdict", "step"}
    assert answer.figures


def test_the_recipe_that_is_trained_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the answer for leave-one-out advantages is named as such, not the other way round."""
    make_probe(tmp_path / "probe")
    text, document = call(capsys, tmp_path / "probe", "--recipe", "grpo")
    assert (
        "group size for recipe grpo, which divides advantages by the group's standard deviation" in text.splitlines()[0]
    )
    assert document["verdict"] in text
    assert "With leave-one-out advantages (recipe rloo): Best G = " in text
    assert "best group size with leave-one-out advantages" in text
    assert call(capsys, tmp_path / "probe", "--recipe", "rloo")[0].startswith("Best G = ")


@pytest.mark.slow
def test_several_probes_are_told_apart(tmp_path: Path) -> None:
    """A row of each in every table, and a probe that cannot tell beside one that can."""
    runs = []
    for seed, name in enumerate(("one", "two", "few")):
        (tmp_path / name).mkdir()
        make_probe(tmp_path / name, 1 if name == "few" else 40, seed=seed)
        runs.append(read(tmp_path / name))
    alone = [answers([run], PlanSettings())[0] for run in runs]
    (both,) = answers(runs, PlanSettings())
    best = [one.numbers[0].shown for one in alone[:2]]
    assert both.sentence == f"one: best G = {best[0]}; two: best G = {best[1]}; few: cannot tell."
    assert both.word == "told"
    rows = next(table for table in both.tables if table.title == "What you lose at each group size").rows
    assert [row[0] for row in rows] == ["one"] * 6 + ["two"] * 6
    assert rows[6][1:] == alone[1].tables[0].rows[0]
    assert both.document == {name: dict(one.document)[name] for name, one in zip(both.document, alone, strict=True)}
    assert any(paragraph == f"few: {alone[2].sentence}" for paragraph in both.text)


def test_a_gram_matrix_alone_is_planned_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_probe(tmp_path)
    _, with_record = call(capsys, tmp_path)
    (tmp_path / "probe.json").unlink()
    text, document = call(capsys, tmp_path)
    assert document["plan"] == with_record["plan"]
    assert document["probe"] == {"folder": str(tmp_path)}
    assert "From 40 prompts × 6 rollouts; " in text


def test_the_star_marks_what_is_extrapolated_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_probe(tmp_path)
    text, _ = call(capsys, tmp_path, "--groups", "2,6")
    assert "*" not in text.split("What you lose")[1].split("\n\n")[0].replace("G*", "")
    text, _ = call(capsys, tmp_path, "--groups", "2,8")
    lost = text.split("What you lose")[1].split("\n\n")[0]
    rows = [line for line in lost.splitlines() if line.startswith(("  2 ", "  8 "))]
    assert [row.count("*") for row in rows] == [0, 1]


def test_what_standardizing_does_follows_from_the_success_rate_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a probe and of a run's rewards: the sentence at the group size in use, and a row per size."""
    make_probe(tmp_path)
    text, _ = call(capsys, tmp_path, "--groups", "3,8")
    assert "Standardized advantages: at G = " in text
    table = text.split("What standardizing weighs")[1].split("\n\n")[0].splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in table if line.startswith("  ")}
    assert set(rows["3"]) == {"1.00"}
    assert rows["8"][2] == "1.25"


@pytest.mark.parametrize(("rewards", "said"), [([0.2, 0.4, 0.3], True), ([0.2, 1.4, 0.3], False)])
def test_a_log_of_mean_rewards_says_what_a_success_rate_says(
    rewards: list[float], said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mean rewards outside of [0, 1] are no success rate."""
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"step": n, "reward": r}) + "\n" for n, r in enumerate(rewards)))
    if not said:
        with pytest.raises(UserError, match="were not recorded"):
            call(capsys, log)
        return
    text, document = call(capsys, log, "--groups", "8")
    assert document["success"] == pytest.approx(0.3)
    assert "1.25" in text
    assert "Dead groups at each size need" in text


def test_groups_of_a_run_may_differ_in_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [{"step": 1, "rewards": [0, 1, 1]}, {"step": 1, "rewards": [0, 0, 1, 1]}]
    _, document = call(capsys, make_run(tmp_path, lines), "--groups", "2")
    assert document["curve"][0]["dead"]["value"] == pytest.approx((1 / 3 + 2 / 6) / 2)


GOOD = {"step": 1, "rewards": [0, 1]}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "holds no groups"),
        ([GOOD, '{"step": 2, "rew'], "line 2: "),
        ([GOOD, {"step": 2}], "line 2: rewards, truncated and the columns beside them"),
        ([GOOD, {"step": 2, "rewards": ["NaN", 1]}], "a reward of step 2 is not finite"),
        ([{"step": 3, "rewards": [1, 1]}], "all rewards are equal within every group of steps 3 to 3"),
    ],
)
def test_bad_logs_are_refused(
    tmp_path: Path, lines: list[Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path, lines)
    if not lines:
        (tmp_path / "groups.jsonl").write_text("")
    with pytest.raises(UserError, match=message):
        call(capsys, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.ones((40, 6))}, "all rewards are equal within every group"),
        ({"rewards": np.where(np.eye(40, 6) == 1, np.nan, np.eye(40, 6)[::-1])}, "is NaN but its score"),
        ({"gram": np.triu(np.ones((240, 240)))}, "not symmetric"),
        ({"gram": np.ones((240, 240)) - 5 * np.eye(240)}, "not positive semi-definite"),
    ],
)
def test_bad_probes_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_probe(tmp_path, **change)
    with pytest.raises(UserError, match=message):
        call(capsys, tmp_path)


@pytest.mark.parametrize(
    ("prompts", "group", "flags", "message"),
    [
        (1, 6, (), "one prompt does not show how"),
        (6, 3, (), "the probe has 3; it gives only"),
        (40, 6, ("--budget", "1"), "too small for one group"),
        (40, 6, ("--multiple", "7", "--budget", "6"), "multiples of 7"),
        (40, 6, ("--recipe", "grop"), "recipe grop: there is no such recipe; the recipes are rloo, "),
        (6, 4, ("--rollout-cost", "0"), "cost per rollout"),
        (6, 4, ("--replicates", "3"), "--replicates 3 must be at least 20"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    tmp_path: Path, prompts: int, group: int, flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_probe(tmp_path, prompts, group)
    with pytest.raises(UserError, match=message):
        call(capsys, tmp_path, *flags)


def test_other_folders_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="there is no"):
        call(capsys, tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"has no config\.json and no log"):
        call(capsys, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="grposcope probe"):
        call(capsys, tmp_path)
    make_probe(tmp_path)
    (tmp_path / "probe.json").write_text('{"format": 9}')
    with pytest.raises(UserError, match="has format 9, and this grposcope reads formats up to 1"):
        call(capsys, tmp_path)
    (tmp_path / "probe.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        call(capsys, tmp_path)


@pytest.mark.parametrize("text", ["", "2,x", "1,4"])
def test_group_lists_are_checked(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        plan._groups(text)


@pytest.mark.parametrize("group", [6, 8])
@pytest.mark.filterwarnings("error")
def test_a_hard_task_gets_no_answer_and_nothing_is_allocated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], group: int
) -> None:
    """Every live group has exactly one success, so the estimate of E‖g‖² is 0 and that of V_p negative."""
    rewards = np.zeros((40, group))
    rewards[:9, 0] = 1
    make_probe(tmp_path, group=group, rewards=rewards)
    text, document = call(capsys, tmp_path)
    assert "Cannot tell the best group size: 0 of 40 groups have at least two successes and two failures" in text
    assert "prompts like these would probably decide" in text
    plan = document["plan"]
    assert (plan["decided"], document["allocation"], plan["curve"], document["errors"]) == (False, None, [], None)
    said = text.partition("Moments of the gradient")[0]
    assert not any(word in said for word in ("∞", "inf", "nan", "buys", "Best G"))


@pytest.mark.filterwarnings("error")
def test_probes_with_few_live_groups_give_no_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Many bootstrap draws have no gradient at all."""
    rewards = np.zeros((40, 6))
    rewards[0, 0] = rewards[1, :3] = 1
    make_probe(tmp_path, rewards=rewards, truncated=np.zeros((40, 6), bool))
    text, _ = call(capsys, tmp_path)
    assert "Cannot tell the best group size" in text


def test_planning_needs_neither_torch_nor_pyarrow_nor_distributions(tmp_path: Path) -> None:
    make_probe(tmp_path)
    code = (
        f"import sys; from grposcope.cli import main; main(['plan', {str(tmp_path)!r}, '--json']); "
        "sys.exit(bool({'torch', 'pyarrow', 'scipy.stats'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert math.isfinite(json.loads(done.stdout)["moments"]["delta"]["value"])


def one_of_each(prompts: int, group: int) -> np.ndarray:
    return np.eye(group)[np.zeros(prompts, int)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompts": 2}, ["error not known", "too few prompts: no standard error", "too few informative groups"]),
        ({"prompts": 3}, ["not known", "3 prompts: rough standard error"]),
        ({"prompts": 16, "rewards": one_of_each(16, 6)}, ["not known", "too few informative groups"]),
        ({"prompts": 64, "group": 4}, ["not known", "the probe has 4 rollouts per prompt, too few for groups of"]),
    ],
    ids=["two prompts", "three prompts", "a success in each group", "larger groups than probed"],
)
def test_what_a_probe_does_not_tell_is_said_to_be_not_known(
    change: dict[str, Any], said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_probe(tmp_path, **change)
    text, _ = call(capsys, tmp_path, "--layers", "--replicates", "100")
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)
    assert all(words in text for words in said)


@pytest.mark.parametrize(("step", "decided"), [(1.0, True), (0.1, False)])
def test_what_a_probe_decides_and_costs_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], step: float, decided: bool
) -> None:
    """Of rewards of many values it decides nothing for standardized advantages, which is said before it is paid for."""
    rng = np.random.default_rng(0)
    rows = [{"step": 1 + k // 8, "rewards": (step * rng.integers(0, round(1 / step) + 1, 8)).round(2).tolist()}
            for k in range(80)]  # fmt: skip
    run = make_run(tmp_path / "run", rows)
    (run / "config.json").write_text('{"format": 2, "settings": {"recipe": "grpo", "group": 8}}')
    out, document = call(capsys, run)
    assert document["values"] == (2 if decided else 11)
    prompts = int(re.search(r"--prompts (\d+)", out)[1])  # type: ignore[index]
    assert f"price: {prompts * 8} rollouts ({prompts} prompts × 8) and one backward pass over them" in out
    assert ("\nto decide:\n" in out) == decided
    assert ("It cannot decide it for advantages that are divided" in out) != decided
    if not decided:
        assert "with 11 different rewards" in out
        assert "recipe grpo of this run among them" in out
        assert "which a probe of the model measures, for some recipes." in out
        assert "\nto decide, for advantages that are the reward less a mean:\n" in out
