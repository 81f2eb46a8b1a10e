"""Rollouts that engines write, as groups, evidence and rows of a probe.

The files were written by the engines' own code: traces by `Episode.to_record` of verifiers 0.4.0, as prime-rl's monitor
calls it (four groups of four at steps 12 and 13, some with a tool, some with a judge, advantages reward − mean of the
group), trajectories and history by ART 0.5.18.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import ROOT

from grposcope.core.errors import UserError
from grposcope.instruments.offpolicy import read as offpolicy
from grposcope.instruments.verify import judge
from grposcope.instruments.verify.read import evidence
from grposcope.logs import read
from grposcope.logs.logged_rollouts import advantages as advantages_of
from grposcope.logs.logged_rollouts import grouped
from grposcope.logs.trainers import art_trajectories, rollout_files, traces

FIXTURES = ROOT / "tests" / "fixtures"
TRACES = FIXTURES / "prime_rl" / "rollouts"
EFFECTIVE = TRACES / "step_12" / "train" / "effective" / "traces.jsonl"
ALL = TRACES / "step_12" / "train" / "all" / "traces.jsonl"
ART = FIXTURES / "art"
BEFORE = FIXTURES / "art_before" / "0003.jsonl"


def test_traces_are_groups() -> None:
    """The judge is not trained and no rollout; reward = right + format ÷ 4."""
    run = read(TRACES)
    assert (run.meta.engine, run.table["step"].tolist()) == ("prime-rl", [12, 13])
    assert run.groups.rewards.reshape(4, 4).tolist() == [[1.0, 0.25, 0.0, 1.25], [0.0] * 4] * 2
    assert run.groups.components["format"][:4].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert run.groups.truncated is not None
    assert run.groups.truncated.reshape(4, 4).tolist() == [[False, False, True, False]] * 4
    assert run.groups.lengths is not None
    assert run.groups.lengths[:4].tolist() == [2, 3, 2, 3]  # sampled tokens, not the tool's
    assert run.table["dead_fraction"].tolist() == [0.5, 0.5]
    assert [one.completion for one in run.rollouts[12][:2]] == ["3", "1\nok\ndone"]


def test_tokens_of_a_trace() -> None:
    """A sequence with a tool in it: ids of all messages, the prompt up to the first sampled token."""
    row = json.loads(EFFECTIVE.read_text().splitlines()[1])
    one = list(traces.rollouts(EFFECTIVE))[1]
    assert one.prompt_ids is not None
    assert one.completion_ids is not None
    assert one.mask is not None
    ids = [token for node in row["traces"][0]["nodes"] for token in node["token_ids"]]
    assert [*one.prompt_ids.tolist(), *one.completion_ids.tolist()] == ids
    assert one.mask.tolist() == [True, True, False, False, False, True]
    assert one.sampler is not None
    assert one.advantages is not None
    given = [value for node in row["traces"][0]["nodes"] for value in node["logprobs"]]
    assert one.sampler[one.mask].tolist() == given
    assert np.isnan(one.sampler[~one.mask]).all()
    np.testing.assert_allclose(one.advantages, np.where(one.mask, 0.25 - 0.625, 0.0))
    assert (one.version, one.environment, one.group, one.step) == (11.0, "math", "g24", 12)


def test_a_failed_rollout_has_no_reward() -> None:
    """Of `all`, which is read by itself; in rollouts/ the files of what was trained on count."""
    _, failed = traces.rollouts(ALL)
    assert (failed.failed, math.isnan(failed.reward)) == ("TimeoutError", True)
    assert any("1 rollout has no reward" in note for note in read(ALL).meta.notes)


@pytest.mark.parametrize("place", [TRACES, FIXTURES / "prime_rl", EFFECTIVE])
def test_what_holds_of_traces(place: Path) -> None:
    found = {one.claim.name: one for one in judge.judge(evidence(place))}
    assert found["advantages"].told
    assert found["groups"].told
    assert any("write tool_mask" in one for one in found["tokens"].untested)  # the mask is all that says who wrote
    assert not [name for name, one in found.items() if one.status == "broken"]


def changed(path: Path, line: int, change: Callable[[dict[str, Any]], Any], to: Path) -> Path:
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    change(rows[line - 1])
    to.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return to


def test_an_advantage_that_is_not_that_of_its_group(tmp_path: Path) -> None:
    """Of one rollout of one group."""

    def swap(row: dict[str, Any]) -> None:
        for node in row["traces"][0]["nodes"]:
            if node.get("advantages"):
                node["advantages"] = [value + 0.3 for value in node["advantages"]]

    path = changed(EFFECTIVE, 2, swap, tmp_path / "traces.jsonl")
    found = {one.claim.name: one.status for one in judge.judge(evidence(path))}
    assert found["advantages"] == "broken"


@pytest.mark.parametrize(("change", "words"), [
    (lambda t: t["nodes"][1].update(mask=[True]), "line 3: node 1 has 3 token_ids and 1 flags in mask"),
    (lambda t: t["nodes"][1].update(logprobs=[-1.0]), "line 3: node 1 has 1 value as logprobs and 2 sampled tokens"),
    (lambda t: t["nodes"][1].update(parent=7), "line 3: parent of node 1 is 7"),
    (lambda t: t.update(nodes="x"), "line 3: nodes is x"),
    (lambda t: t["rewards"].update(right={"score": "high"}), "line 3: rewards/right is high"),
    (lambda t: t["nodes"][0].update(message="hi"), "line 3: message is"),
])  # fmt: skip
def test_bad_traces(tmp_path: Path, change: Callable[[dict[str, Any]], Any], words: str) -> None:
    path = changed(EFFECTIVE, 3, lambda row: change(row["traces"][0]), tmp_path / "traces.jsonl")
    with pytest.raises(UserError, match=words):
        list(traces.rollouts(path))


def test_a_line_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text(EFFECTIVE.read_text()[:-40])
    assert len(list(traces.rollouts(path))) == 7
    path.write_text(EFFECTIVE.read_text().replace("\n", "x\n", 3))
    with pytest.raises(UserError, match="line 1: not valid JSON"):
        list(traces.rollouts(path))


def test_an_evaluation_of_verifiers(tmp_path: Path) -> None:
    """traces.jsonl without groups: rollouts of one task are one; results.jsonl before 0.2: those of one example."""
    episodes = [json.loads(line) for line in EFFECTIVE.read_text().splitlines()]
    (tmp_path / "traces.jsonl").write_text("".join(
        json.dumps({name: value for name, value in row.items() if name not in ("group", "run")}) + "\n"
        for row in episodes
    ))  # fmt: skip
    run = read(tmp_path)
    assert (run.meta.engine, run.groups.sizes.tolist(), run.table["step"].tolist()) == ("verifiers", [4, 4], [0])
    old = tmp_path / "old" / "results.jsonl"
    old.parent.mkdir()
    rows = [
        {"example_id": k // 2, "prompt": [{"role": "user", "content": "1+1="}], "completion": [
            {"role": "assistant", "content": str(k)}], "reward": k / 4, "metrics": {"right": k / 4, "style": None},
         "is_truncated": False, "error": None, "timing": {}, "is_completed": True}
        for k in range(4)
    ]  # fmt: skip
    old.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read(old.parent)
    assert run.groups.rewards.tolist() == [0.0, 0.25, 0.5, 0.75]
    assert len(run.groups) == 2
    assert [row.group for row in evidence(old).rows] == ["0", "0", "1", "1"]


def test_art_by_its_folder() -> None:
    """History and groups; the row of an evaluation counts rollouts of its own and contradicts no other."""
    run = read(ART)
    assert (run.meta.engine, run.table["step"].tolist()) == ("art", [3, 4])
    history = [json.loads(line) for line in (ART / "history.jsonl").read_text().splitlines()]
    assert run.table["reward"].tolist() == [row["train/reward"] for row in history if "train/reward" in row]
    assert run.table["grad_norm"][1] == 0.5
    assert run.table["dead_fraction"].tolist() == [0.5, 0.5]
    assert run.evaluations.of("reward").value.tolist() == [pytest.approx(1.1 / 6)]
    assert run.groups.rewards.reshape(4, 3).tolist() == [[1.0, 0.1, 0.0], [0.0] * 3] * 2
    assert run.groups.components["turns"][:3].tolist() == [2, 1, 1]
    np.testing.assert_allclose([run.groups.rewards[:6].mean(), run.groups.rewards[6:].mean()], run.table["reward"])


@pytest.mark.parametrize("place", [ART / "trajectories" / "train" / "0003.parquet", BEFORE])
def test_art_of_both_formats(place: Path) -> None:
    """A conversation is divided where the policy first wrote; the versions before write JSON, with what ended it."""
    first, second, *_ = art_trajectories.rollouts(place)
    assert (first.step, first.group != "", first.reward) == (3, True, 1.0)
    assert first.prompt == [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+2="}]
    assert [one["content"] for one in first.completion if isinstance(one, dict)] == ["3", "ok", "done"]
    assert second.truncated == (True if place is BEFORE else None)
    assert read(place).groups.rewards.tolist() == [1.0, 0.1, 0.0, 0.0, 0.0, 0.0]


def test_bad_trajectories(tmp_path: Path) -> None:
    path = changed(BEFORE, 2, lambda row: row["trajectories"][1].update(reward="x"), tmp_path / "0003.jsonl")
    with pytest.raises(UserError, match="line 2, trajectory 2: reward is x"):
        read(path)
    path = changed(BEFORE, 2, lambda row: row.update(trajectories=3), path)
    with pytest.raises(UserError, match="line 2: trajectories is 3"):
        list(art_trajectories.rollouts(path))
    table = pq.read_table(ART / "trajectories" / "train" / "0003.parquet")
    broken = table.set_column(table.column_names.index("metrics"), "metrics", pa.array(["{"] * len(table)))
    pq.write_table(broken, tmp_path / "0004.parquet")
    with pytest.raises(UserError, match=r"0004.parquet, row 1: metrics is not valid JSON"):
        list(art_trajectories.rollouts(tmp_path / "0004.parquet"))


def test_rows_for_a_probe() -> None:
    for place, step, shape in ((TRACES, 13, (2, 4)), (ART, 4, (2, 3)), (FIXTURES / "ms_swift", 9, (2, 4))):
        found = rollout_files.find(place)
        assert found is not None
        made = grouped(found.logged(step), None, None)
        assert made.group_rewards.shape == shape
    found = rollout_files.find(TRACES)
    assert found is not None
    advantages = advantages_of(found.logged(12))
    assert advantages is not None
    np.testing.assert_allclose(advantages[:4], np.array([1.0, 0.25, 0.0, 1.25]) - 0.625)


def test_token_exports_have_both_log_probabilities(tmp_path: Path) -> None:
    """Log-probabilities of trained tokens alone; rollouts with one prompt in a step are one group."""
    rows = [
        {"token_ids": [1, 2, 9, k], "loss_mask": [False, False, True, True], "env_name": "ab"[k % 2],
         "inference_logprobs": [0.0, 0.0, -1.0, -0.5], "trainer_logprobs": [-7.0, -7.0, -1.1, -0.5]}
        for k in range(4)
    ]  # fmt: skip
    path = tmp_path / "token_exports" / "step_5" / "rank_0.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = offpolicy.read(tmp_path / "token_exports")
    np.testing.assert_allclose(np.array(found.log_ratios), [[-0.1, 0.0]] * 4, atol=1e-12)
    assert found.prompts.tolist() == [0] * 4
    assert found.environments == ["a", "b", "a", "b"]
    rows[2]["trainer_logprobs"] = [-1.0]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="line 3: trainer_logprobs has no value for each of 4 tokens"):
        offpolicy.read(tmp_path)


def test_others_are_left_alone(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "ms_swift" / "logging.jsonl", tmp_path / "0001.jsonl")
    assert rollout_files.find(tmp_path) is None
    assert rollout_files.find(tmp_path / "0001.jsonl") is None
