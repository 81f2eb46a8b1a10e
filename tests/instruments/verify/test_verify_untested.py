"""What was not tested does not hold: no data, data in which the fault could not show, and a part of the tests."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import judged_claims
import numpy as np
import pipelines
import pytest
import toy_tokens
from pipelines import Pipeline

from grposcope import verify
from grposcope.cli import main
from grposcope.core.rollouts import Rollout
from grposcope.instruments.verify import own_loop, row_file
from grposcope.signs.rollouts.evidence import (
    GradientEvidence,
    OptimizerEvidence,
    PipelineEvidence,
    Stated,
)
from grposcope.signs.rollouts.module_match import ModuleMatch
from grposcope.signs.rollouts.stated_loss import StatedLoss

PIPELINE = Pipeline(steps=2, prompts=4, group=4, masks_truncated=False)


def changed(rows: pipelines.Rows, **columns: Any) -> pipelines.Rows:
    """The rows with other columns: values, or functions of the row."""
    return [{**row, **{name: value(row) if callable(value) else value for name, value in columns.items()}}
            for row in rows]  # fmt: skip


def of(evidence: PipelineEvidence, claim: str) -> judged_claims.Judged:
    """What becomes of one claim."""
    return judged_claims.of(evidence)[claim]


def zeros(row: dict[str, Any]) -> list[int]:
    """A mask in which no token is trained on."""
    return [0] * len(row["mask"])


@pytest.mark.parametrize(("claim", "columns", "reason"), [
    ("tokens", {"mask": [], "completion_ids": [], "truncated": None, **dict.fromkeys(
        ("sampling_logprobs", "old_logprobs", "logprobs"))}, "No rollout has a token"),
    ("advantages", {"reward": 1.0, "advantage": 0.0}, "every group has equal rewards"),
    ("advantages", {"advantage": math.nan}, "an advantage that the loss used"),
    ("first update", {"mask": zeros}, "No trained token has both"),
    ("first update", {"old_logprobs": lambda row: [math.nan] * len(row["mask"])}, "No trained token has both"),
    ("dropped", {}, "No rollout is marked as dropped"),
])  # fmt: skip
def test_no_data_is_no_test(claim: str, columns: dict[str, Any], reason: str) -> None:
    """Zeros, NaN and equal rewards leave nothing to compare."""
    result = pipelines.judged(changed(PIPELINE.rows(), **columns), PIPELINE.settings)[claim]
    assert result.status == "cannot tell"
    assert not result.told
    assert any(reason in one for one in result.untested), result.untested


@pytest.mark.parametrize(("claim", "columns", "settings", "held", "reason"), [
    ("tokens", {"prompt_trained": None}, {}, "32 rollouts all tokens", "masks are of completions alone"),
    ("tokens", {"truncated": None}, {}, "32 rollouts all tokens", "do not say whether they were truncated"),
    ("groups", {}, {"num_generations": None}, "All 8 groups have 4 rollouts", "do not state the group size"),
    ("groups", {"group": None}, {}, "All 8 groups have 4 rollouts", "formed by prompt"),
    ("groups", {"completion": None, "completion_ids": None}, {}, "One prompt", "copies among siblings were not"),
    ("advantages", {}, {"scale_rewards": None}, "are (r − group mean)", "do not state how advantages are made"),
    ("first update", {}, {}, "differ by 0 nats", "There is no log"),
])  # fmt: skip
def test_a_part_of_the_tests_does_not_hold(
    claim: str, columns: dict[str, Any], settings: dict[str, Any], held: str, reason: str
) -> None:
    """What did hold is kept, and what was missing is said."""
    rows = changed(PIPELINE.rows(), **columns)
    result = pipelines.judged(rows, {**PIPELINE.settings, **settings})[claim]
    assert result.status == "cannot tell"
    assert result.in_part
    assert any(held in one.because for one in result.told), result.told
    assert any(reason in one for one in result.untested), result.untested


@pytest.mark.parametrize(("recipe", "other"), [("grpo", "of the batch"), ("batch", "of the group")])
def test_one_group_does_not_tell_recipes_apart(recipe: str, other: str) -> None:
    """The deviations of the group and of the batch are one number; two groups tell them apart."""
    for prompts, status in ((1, "cannot tell"), (2, "holds")):
        pipeline = Pipeline(recipe=recipe, reward="real", steps=1, prompts=prompts)
        result = pipelines.judged(pipeline.rows(), pipeline.settings)["advantages"]
        assert result.status == status
        assert status == "holds" or other in result.untested[0]


def test_the_share_that_was_tested_is_said() -> None:
    """Of 32 rollouts 8 lack a reward, or have a mask of zeros."""
    rows = PIPELINE.rows()
    bare = [{**row, "reward": None, "advantage": None} if place >= 24 else row for place, row in enumerate(rows)]
    held = pipelines.judged(bare, PIPELINE.settings)["advantages"].told[0].because
    assert "24 of 32 rollouts (8 have no reward" in held
    masked = [{**row, "mask": zeros(row), "truncated": False} if place >= 24 else row for place, row in enumerate(rows)]
    told = pipelines.judged(masked, {**PIPELINE.settings, "max_completion_length": 999})["tokens"].told
    assert any("In 24 of 32 rollouts (8 have" in one.because for one in told), told


def test_tools_turns_and_ends_that_are_not_there_are_not_tested() -> None:
    """No test of a tool's output without tools; of completions without an end none of ends."""
    names = {one.fault for one in pipelines.judged(PIPELINE.rows(), PIPELINE.settings)["tokens"].told}
    assert "tool output trained on" not in names
    endless = changed(PIPELINE.rows(), completion_ids=lambda row: [1] * len(row["mask"]), truncated=True)
    result = pipelines.judged(endless, PIPELINE.settings)["tokens"]
    assert not {"end of text masked", "trained beyond the end"} & {one.fault for one in result.told}
    assert any("No completion has a token that ends it" in one for one in result.untested)
    turns = changed(PIPELINE.rows(), completion=[{"role": "assistant"}, {"role": "tool"}])
    result = pipelines.judged(turns, PIPELINE.settings)["tokens"]
    assert "tokens left out" not in {one.fault for one in result.told}
    assert any("write tool_mask" in one for one in result.untested)


def test_tokens_that_were_left_out_are_seen_beside_tools() -> None:
    """Where it is known what a tool wrote, the rest has to be trained on."""
    rows = [pipelines.with_tool(row, 0) for row in PIPELINE.rows()]
    rows = [{**row, "mask": [0, *row["mask"][1:]]} for row in rows]
    result = pipelines.judged(rows, PIPELINE.settings)["tokens"]
    assert (result.status, result.told[0].fault) == ("broken", "tokens left out")


def test_equal_rewards_do_not_show_where_they_belong() -> None:
    """Graded again, all are 1: rewards of other rollouts would be 1 too. One rollout has no order."""
    rows = changed(PIPELINE.rows(), reward=1.0)
    result = pipelines.judged(rows, {}, grader=lambda prompts, texts: [1.0] * len(texts))["rewards"]
    assert result.status == "cannot tell"
    assert any("all equal" in one for one in result.untested)
    alone = pipelines.judged(rows[:1], {}, grader=lambda prompts, texts: [1.0])["rewards"]
    assert (alone.status, [one.fault for one in alone.told]) == ("cannot tell", ["reward not repeatable"])
    silent = pipelines.judged(rows, {}, grader=lambda prompts, texts: [math.nan] * len(texts))["rewards"]
    assert (silent.status, silent.told) == ("cannot tell", ())


def emptied(rows: pipelines.Rows, paid: float, some: Sequence[int] = (0, 5, 9)) -> pipelines.Rows:
    """Some rollouts without a token, with this reward; advantages follow from all rewards."""
    none = {name: [] for name in ("completion_ids", "mask", "sampling_logprobs", "old_logprobs", "logprobs")}
    made = [{**row, **none, "completion": "", "reward": paid, "truncated": False} if place in some else row
            for place, row in enumerate(rows)]  # fmt: skip
    steps = sorted({row["step"] for row in made})
    return [row for step in steps
            for row in pipelines.with_advantages(PIPELINE, [row for row in made if row["step"] == step])]  # fmt: skip


def test_empty_completions_are_evidence() -> None:
    """One that is paid like the best is a fault; one that is not is in the baseline of its group."""
    paid = pipelines.judged(emptied(changed(PIPELINE.rows(), reward=lambda row: len(row["mask"]) % 3 / 2), 1.0), {})
    assert paid["rewards"].status == "broken"
    assert paid["rewards"].told[0].fault == "empty completions paid"
    assert "3 of 3 empty completions have the reward 1" in paid["rewards"].told[0].because
    rows = emptied(PIPELINE.rows(), 0.0)
    sound = pipelines.judged(rows, PIPELINE.settings)
    assert (sound["advantages"].status, sound["groups"].status) == ("holds", "holds")
    assert "32 rollouts" in sound["advantages"].told[0].because
    assert any("of 8 groups repeat a sibling" in one.because for one in sound["groups"].told)
    assert "In 29 of 32 rollouts (3 have no trained token" in sound["tokens"].told[0].because
    without = [{**row, "advantage": None} if not row["mask"] else row for row in rows]
    alone = pipelines.judged(without, PIPELINE.settings)["advantages"]
    assert "29 of 32 rollouts" in alone.told[0].because
    ids = pipelines.judged(changed(emptied(rows, 0.5), completion=None), {}, grader=lambda p, texts: [0.0] * len(texts))
    assert any("3 of 3 rollouts" in one.because for one in ids["rewards"].told)


def test_copies_of_empty_completions_keep_their_level() -> None:
    """Half of the draws are empty: an empty one repeats none, so that chance stays chance."""
    from grposcope.signs.rollouts.claims import groups

    random, seen = np.random.default_rng(0), 0
    chances = np.array([0.5, 0.3, 0.2])
    for _ in range(300):
        drawn = random.choice(3, (8, 8), p=chances)
        test = groups._by_probability([["" if one == 0 else str(one) for one in part] for part in drawn],
                                      [np.log(chances[part]).tolist() for part in drawn])  # fmt: skip
        seen += test.present
    assert seen <= 15


def test_a_gradient_without_derivatives_is_not_told() -> None:
    """The reference alone says nothing of the loss; derivatives of 0 and gradients of 0 are those of every loss."""
    values = np.array([-1.0, -2.0])
    row = Rollout("row", 5, "a", completion_ids=np.arange(2), mask=np.ones(2, bool), current=values,
                      reference=values - 0.1, advantages=np.ones(1))  # fmt: skip
    stated = Stated(loss=StatedLoss(), kl=0.1, reference="start")
    moved = (OptimizerEvidence(2, 2, 1e-3, 1e-4),)
    result = of(PipelineEvidence("", rows=(row,), stated=stated, optimizer=moved), "gradient")
    assert result.status == "cannot tell"
    assert [one.fault for one in result.told] == ["reference moves along"]
    assert "derivatives of the loss were not recorded" in result.untested[0]
    still = replace(row, advantages=np.zeros(1), loss_weights=np.zeros(2))
    for rows, gradients in (((still,), ()), ((), (GradientEvidence(3, 0.0, 0.0, 0.0, 0.0, 8, "step 2"),))):
        result = of(PipelineEvidence("", rows=rows, stated=Stated(loss=StatedLoss(), kl=0.0), gradients=gradients),
                    "gradient")  # fmt: skip
        assert (result.status, result.told) == ("cannot tell", ())


def test_a_kl_term_of_nothing_does_not_show_its_coefficient() -> None:
    """Policy and reference are equal, so that every coefficient has the same derivatives."""
    values = np.array([-1.0, -2.0])
    rows = tuple(
        Rollout(f"row {i}", 1, "a", completion_ids=np.arange(2), mask=np.ones(2, bool), current=values,
                    old=values, reference=values, advantages=np.array([sign]), loss_weights=np.full(2, -sign / 4))
        for i, sign in enumerate((1.0, -1.0))
    )  # fmt: skip
    result = of(PipelineEvidence("", rows=rows, stated=Stated(loss=StatedLoss(), kl=0.1)), "gradient")
    assert not result.told[0].present
    assert any("too small in these batches to see its coefficient 0.1" in one for one in result.untested)


def test_few_tokens_do_not_hold() -> None:
    """One token has no error; a distance beyond rounding that may be chance is told as that."""
    one = toy_tokens.evidence(1)
    rows = tuple(replace(row, sampler=np.where(np.arange(6) == 0, row.sampler, np.nan)) for row in one.rows)
    result = of(replace(one, rows=rows), "weights")
    assert (result.status, result.told) == ("cannot tell", ())
    assert "One token" in result.untested[0]
    sampling = of(one, "sampling")
    assert sampling.status == "cannot tell"
    assert of(toy_tokens.evidence(256), "sampling").status == "holds"


def test_weights_that_may_not_have_moved_are_not_told() -> None:
    """Equal tensors say something where training moved them."""
    for moved, status in ((0, "cannot tell"), (3, "holds")):
        match = ModuleMatch("mlp", 3, 3, 0, 0, moved, 0.0)
        assert of(PipelineEvidence("", arrived=(match,)), "arrived").status == status


def test_metrics_that_could_not_be_compared_are_named() -> None:
    """Lengths without ids, rewards that are all 0, and a metric that agrees in some steps only."""
    pipeline = Pipeline(steps=4, prompts=12, limit=8)
    rows = pipeline.rows()
    run = pipelines.log(rows, 4)
    bare = pipelines.judged(changed(rows, completion_ids=None), pipeline.settings, run)["metrics"]
    assert bare.in_part
    assert any("length was not compared" in one for one in bare.untested)
    dead = changed(rows, reward=0.0, advantage=0.0)
    flat = pipelines.judged(dead, pipeline.settings, pipelines.log(dead, 4))["metrics"]
    assert any("reward_std is 0 in all 4 steps under every definition" in one for one in flat.untested)
    some = replace(run, table={**run.table, "reward_std": run.table["reward_std"] * np.array([1, 1, 1, 2])})
    partly = pipelines.judged(rows, pipeline.settings, some)["metrics"]
    assert any("in 3 of 4 steps only" in one for one in partly.untested)


def test_a_run_without_a_restart_was_not_tested_for_one() -> None:
    """Nor is an optimiser state that counts nothing, a state without its decay."""
    rows = Pipeline(steps=4, prompts=2, group=2).rows()
    run = pipelines.log(rows, 4)
    assert any("no restart" in one for one in pipelines.judged(rows, {}, run)["resume"].untested)
    uncounted = tuple(OptimizerEvidence(step, math.nan, 1.0) for step in (1, 2, 3))
    result = of(PipelineEvidence("", optimizer=uncounted), "resume")
    assert (result.status, result.told) == ("cannot tell", ())


def test_the_word_and_the_counts() -> None:
    """Healthy only where a claim holds; claims that were tested in part are counted as such."""
    rows = changed(PIPELINE.rows(), reward=1.0, advantage=0.0, mask=None, prompt_ids=None)
    said = verify(rows, {})
    assert said.word == "cannot tell"
    assert said.sentence == ("Cannot tell: no claim could be tested in full, 2 were tested in part, 12 could not be "
                             "tested, on 32 rollouts.")  # fmt: skip
    held = verify(PIPELINE.rows(), PIPELINE.settings)
    assert held.word == "healthy"
    assert held.sentence == ("Nothing that could be tested is broken: 3 claims hold, 1 was tested in part, 10 could "
                             "not be tested, on 32 rollouts.")  # fmt: skip
    assert "healthy" not in own_loop.verify_batch((), Stated()).word


def test_nothing_recorded_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2 and "cannot tell" where no test could be made."""
    path = tmp_path / "rollouts.jsonl"
    path.write_text('{"completion": "a"}\n')
    assert main(["verify", str(path)]) == 2
    assert "Cannot tell: none of the 14 claims could be tested, on 1 rollout." in capsys.readouterr().out


BROKEN = {"status": "broken", "fault": "sign", "evidence": "row 3 differs.", "p": None, "remedy": "Reverse it."}


def recorded(folder: Path, looks: int = 12, broken: int = 10) -> Path:
    """Evidence of a training in a folder: a sound last batch, and claims that were broken in earlier ones."""
    rows = [one for one in own_loop_rows() if one.step == 1]
    row_file.write(folder, looks, [replace(row, step=looks) for row in rows])
    row_file.write_stated(folder, Stated(group=4, baseline="mean", scale="group", ddof=1, epsilon=1e-4, kl=0.0,
                                         loss=StatedLoss(), ends=(9,), limit=24, masks_truncated=False))  # fmt: skip
    for step in range(1, looks + 1):
        status = BROKEN if looks - broken < step else {"status": "holds"}
        row_file.append_claims(folder, {"step": step, "rollouts": 16, "claims": {"advantages": status}})
    return folder


def own_loop_rows() -> tuple[Rollout, ...]:
    """The rollouts of the pipeline as evidence."""
    from grposcope.instruments.verify import read

    return read.of_rows(PIPELINE.rows(), PIPELINE.settings).rows


def test_what_was_broken_live_is_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For the record and for the folder that holds it, since the first step, in how many of the batches."""
    recorded(tmp_path / "out" / "grposcope")
    for place in (tmp_path / "out" / "grposcope", tmp_path / "out"):
        assert main(["verify", str(place)]) == 1
        shown = capsys.readouterr().out
        assert "Broken: “Advantages follow from rewards and settings”" in shown
        said = " ".join(shown.split())
        assert "broken in 10 of 12 batches that were tested while the run trained, since step 3" in said
        document = verify(place).document
        (claim,) = [one for one in document["claims"] if one["claim"] == "advantages"]
        assert (claim["status"], claim["findings"][0]["since"]["step"]) == ("broken", 3)
        assert document["tested live"] == 12
        assert document["rollouts"] == 16
    with (tmp_path / "out" / "grposcope" / "verify" / "claims.jsonl").open("a") as file:
        file.write('{"step": 13, "cla')  # killed while it wrote
    assert verify(tmp_path / "out").word == "failing"


def test_a_fault_that_is_seen_twice_is_told_once(tmp_path: Path) -> None:
    """Now and while the run trained: one test, since the earlier step."""
    folder = recorded(tmp_path)
    rows = [replace(row, step=12, advantages=-row.advantages) for row in own_loop_rows()
            if row.step == 1 and row.advantages is not None]  # fmt: skip
    row_file.write(folder, 12, rows)
    (claim,) = [one for one in verify(folder).document["claims"] if one["claim"] == "advantages"]
    assert [one["fault"] for one in claim["findings"]] == ["reversed sign"]
    assert claim["findings"][0]["since"]["step"] == 3
    assert "opposite sign" in claim["findings"][0]["because"]
    assert "in 10 of 12 batches" in claim["findings"][0]["because"]


def test_settings_that_are_stated_otherwise_are_named_and_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """beta of a file over the run's own; what neither the file nor --set say stays the run's."""
    folder = recorded(tmp_path / "run", broken=0)
    config = tmp_path / "trl.yaml"
    config.write_text("beta: 0.04\nnum_generations: 4\nepsilon: 0.3\nloss_type: grpo\nscale_rewards: group\n")
    main(["verify", str(folder), "--config", str(config), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert f"beta is 0.04 in {config} and 0 in the run's own settings" in said["differences"]
    assert f"epsilon is 0.3 in {config} and 0.2 in the run's own settings" in said["differences"]
    assert not any("num_generations" in one for one in said["differences"])
    (groups,) = [one for one in said["claims"] if one["claim"] == "groups"]
    assert groups["status"] == "holds"
    main(["verify", str(folder), "--set", "num_generations=8"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "num_generations is 8 in --set and 4 in the run's own settings" in shown
    assert "do not have 8 rollouts" in shown
    assert "ends" in verify(folder, {"beta": 0.04}).document["stated"]


def test_the_loss_is_tested_against_the_stated_coefficient(tmp_path: Path) -> None:
    """Derivatives without a KL term are those of beta 0, and not those of the 0.04 that is stated."""
    random = np.random.default_rng(0)
    rows = []
    for i in range(8):
        logp = -random.exponential(1.0, 3)
        sign = 1.0 if i % 2 else -1.0
        rows.append(Rollout(f"row {i}", 3, str(i // 4), completion_ids=np.arange(1, 4), mask=np.ones(3, bool),
                                current=logp, old=logp, reference=logp + random.normal(0, 0.3, 3),
                                advantages=np.array([sign]), loss_weights=np.full(3, -sign / 24)))  # fmt: skip
    row_file.write(tmp_path, 3, rows)
    row_file.write_stated(tmp_path, Stated(group=4, kl=0.0, loss=StatedLoss(), reference="start"))
    own = {one["claim"]: one for one in verify(tmp_path).document["claims"]}
    assert own["gradient"]["status"] == "holds"
    other = {one["claim"]: one for one in verify(tmp_path, {"beta": 0.04}).document["claims"]}
    assert other["gradient"]["status"] == "broken"
    assert other["gradient"]["findings"][0]["brief"] == "KL left out"


def test_a_prompt_that_is_drawn_twice_in_a_step_is_two_groups(tmp_path: Path) -> None:
    """Of rollouts without an id of their group and settings that state no size: nothing of a sound run is broken."""
    draw = np.random.default_rng(0)
    rows = []
    for step in range(1, 7):
        for prompt in draw.integers(0, 12, 8).tolist():
            rewards = draw.integers(0, 2, 4).astype(float)
            advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
            each = zip(rewards.tolist(), advantages.tolist(), strict=True)
            rows += [{"step": step, "prompt": f"p{prompt}", "completion": f"{draw.random()}", "reward": reward,
                      "advantage": advantage} for reward, advantage in each]  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = verify(path)
    assert len({(row["step"], row["prompt"]) for row in rows}) < 48
    assert [claim["claim"] for claim in said.document["claims"] if claim["status"] == "broken"] == []
    assert "All 48 groups have 4 rollouts" in json.dumps(said.document["claims"])
