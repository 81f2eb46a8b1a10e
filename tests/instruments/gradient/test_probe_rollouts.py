"""`grposcope probe --rollouts`: on what TRL and verl wrote, against a probe of the very same rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asked import asked
from places import TESTS

from grposcope import cli
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient.probe import probe
from grposcope.lab import policies
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.policies.load import TINY
from grposcope.lab.sampling.rollouts import Batch, collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.logs.native.schema import RunConfig
from grposcope.logs.native.writer import RunWriter

LIMIT = 16
LOGGED = {
    "loss_type": "dr_grpo", "scale_rewards": "none", "epsilon": 0.2, "max_completion_length": LIMIT,
    "gradient_accumulation_steps": 1, "reward_weights": [1.0, 0.25], "steps_per_generation": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policies.load("tiny")


@pytest.fixture(scope="module")
def batch(policy: Policy) -> Batch:
    task = Arithmetic()
    return collect(policy, task, task.problems("train"), recipes.GRPO, Sampling(LIMIT), (4, 4), 0, 0)


def parquet(batch: Batch, path: Path, step: int, shift: int = 0) -> None:
    """The batch as TRL writes it, with a second reward function; shift: completions are moved by so many groups."""
    path.parent.mkdir(exist_ok=True, parents=True)
    prompts = [p.prompt for p in batch.problems for _ in range(4)]
    correct = batch.rollouts.rewards.numpy()
    short = np.array([1 / (1 + len(text)) for text in batch.texts])
    total = correct + 0.25 * short.reshape(4, 4)
    table = {
        "step": [step] * 16, "prompt": prompts[4 * shift :] + prompts[: 4 * shift], "completion": list(batch.texts),
        "correct": correct.reshape(-1), "short": short, "advantage": (total - total.mean(1, keepdims=True)).reshape(-1),
    }  # fmt: skip
    pq.write_table(pa.table(table), path)


@pytest.fixture(scope="module")
def output(batch: Batch, policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder of TRL: checkpoint-5, the record of the callback, completions of steps 3, 6 and 9."""
    folder = tmp_path_factory.mktemp("out")
    for step in (3, 6, 9):
        parquet(batch, folder / "completions" / f"completions_{step:05d}.parquet", step, int(step == 9))
    policy.model.save_pretrained(folder / "checkpoint-5")
    policy.tokenizer.save_pretrained(folder / "checkpoint-5")
    (folder / "checkpoint-5" / "trainer_state.json").write_text(
        json.dumps({"log_history": [{"step": step, "reward": 0.5, "loss": 0.0} for step in range(1, 6)]})
    )
    settings = {"temperature": 1.0, "max_tokens": LIMIT, "group": 4, "trainer": "grpo"}
    config = RunConfig(engine="trl", settings=settings, resolved={"logged": {**LOGGED, "output_dir": str(folder)}})
    with RunWriter.create(folder / "grposcope", config) as record:
        for step in range(1, 10):
            length = float(batch.rollouts.lengths.double().mean())
            record.step(
                {"step": step, "reward": 0.5, "length": length, "component/correct": 0.5, "component/short": 0.1}
            )
    return folder


def called(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = cli.main(["probe", "--threads", "1", *map(str, words)])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.slow
def test_the_probe_is_that_of_the_rollouts_that_were_drawn(
    output: Path, batch: Batch, policy: Policy, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = called(capsys, output / "checkpoint-5", "--rollouts", output / "completions")
    assert status == 0, err
    record = probes.read(output / "grposcope" / "probes" / "step-000005")
    known = probe(policy.model, batch.rollouts, recipes.DR_GRPO)
    np.testing.assert_allclose(record.read_gram().gram, known.gram, rtol=1e-4, atol=1e-4 * np.abs(known.gram).max())
    source = record.source
    assert source is not None
    assert (source.engine, source.step, source.weights) == ("trl", 6, {"correct": 1.0, "short": 0.25})
    assert source.path == str(output / "completions" / "completions_00006.parquet")
    assert (source.changed_prompts, source.changed_completions, source.forms) == (0, 0, {"text": 4})
    assert source.truncated == int(batch.rollouts.truncated.sum())
    assert source.length == pytest.approx(source.length_logged)
    assert not source.foreign
    expected = batch.rollouts.rewards.mean() + 0.25 * np.mean([1 / (1 + len(text)) for text in batch.texts])
    assert record.solved == pytest.approx(float(expected))
    assert (record.recipe, record.task, record.step) == ("dr_grpo", "rollouts of trl, step 6", 5)
    flat = " ".join(out.split())
    assert "drawn from the weights after step 5 if every batch is used once" in flat
    assert "The rollouts are consistent with the model" in flat


def test_the_rollouts_of_another_model_or_of_other_prompts_are_refused(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = called(capsys, output / "checkpoint-5", "--rollouts", output / "completions", "--step", 9,
                              "--out", output / "none")  # fmt: skip
    assert status == 2
    assert not out
    (line,) = [line for line in err.splitlines() if line.startswith("grposcope: error")]
    assert "did not write" in line
    assert "nats per token less likely than the model's own" in line
    assert not (output / "none" / "probe.json").exists()


def test_a_colder_draw_is_flagged_in_the_record(
    batch: Batch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet(batch, tmp_path / "completions" / "completions_00001.parquet", 1)
    status, document = asked("probe", "--threads", "1", TINY, "--rollouts", tmp_path, "--max-tokens", LIMIT,
                             "--reward-weights", "1,0.25", "--temperature", 2.5)  # fmt: skip
    assert status == 0
    assert "CAUTION: these rollouts are likelier than the model's own" in " ".join(capsys.readouterr().out.split())
    assert document["rollouts_from"]["z"] > 5


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_what_verl_wrote(version: str, batch: Batch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files with the fields of verl's own, of texts that the model wrote, in another order than that of the prompts."""
    folder = TESTS / "fixtures" / "verl_rollouts" / version
    status, out, err = called(capsys, "tiny", "--rollouts", folder, "--max-tokens", LIMIT, "--out", tmp_path / "none")
    assert (status, out) == (2, "")
    assert f"tiny did not write {folder / '2.jsonl'}" in err
    form = json.loads((folder / "1.jsonl").read_text().splitlines()[0])
    rows = []
    for i, text in enumerate(batch.texts):
        known = {
            "input": batch.problems[i // 4].prompt,
            "output": text,
            "score": float(batch.rollouts.rewards[i // 4, i % 4]),
        }
        uid = {"uid": f"{i // 4:08}-0000_{i % 4}_0"} if "uid" in form else {}
        rows.append({**form, **known, **uid, "step": 7})
    (tmp_path / "dump").mkdir()
    lines = [json.dumps(rows[i]) + "\n" for i in (3, 0, 8, 4, 1, 2, 15, 9, 5, 6, 7, 10, 11, 12, 14, 13)]
    (tmp_path / "dump" / "7.jsonl").write_text("".join(lines))
    status, _, err = called(
        capsys, "tiny", "--rollouts", tmp_path / "dump", "--max-tokens", LIMIT, "--out", tmp_path / "p"
    )
    assert status == 0, err
    record = probes.read(tmp_path / "p")
    assert (record.prompts, record.group, record.solved) == (4, 4, pytest.approx(float(batch.rollouts.rewards.mean())))
    assert record.source is not None
    assert (record.source.engine, record.source.step, record.source.weights) == ("verl", 7, {"reward": 1.0})
    assert not record.source.foreign


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rollouts", "none"], "--rollouts none: there is no such file or folder"),
        (["--rollouts", "OUT/checkpoint-5"], "holds neither completions_N.parquet of TRL nor N.jsonl of verl"),
        (["--rollouts", "OUT/completions", "--step", 4], "has no rollouts of step 4; it has those of 3, 6, 9"),
        (["--rollouts", "OUT/completions"], "--rollouts needs --max-tokens"),
        (["--rollouts", "OUT/completions", "--reward-weights", "1"], "1 weights were given for 2 reward functions"),
        (["--rollouts", "OUT/completions", "--reward-weights", "x"], "--reward-weights x: write numbers such as 1,0.5"),
        (["--rollouts", "OUT/completions", "--group", 3], "do not divide into groups of 3"),
        (["--rollouts", "OUT/completions", "--prompts", 0], "--prompts 0 must be at least 1"),
        (["--rollouts", "OUT/completions", "--credit", "steps", "--max-tokens", 9], "have no labels of steps"),
        (["--step", 4], "--step chooses among the rollouts of a trainer; give --rollouts too"),
        (["--model", "tiny"], "both name a model; give only one"),
    ],
)
def test_what_cannot_work_is_one_line(
    words: list[Any], said: str, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(word).replace("OUT", str(output)) for word in words]
    status, out, err = called(capsys, "tiny", *given)
    assert (status, out) == (2, "")
    assert said in err
    assert len([line for line in err.splitlines() if line.startswith("grposcope: error")]) == 1
