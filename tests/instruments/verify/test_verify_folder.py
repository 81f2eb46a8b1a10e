"""`grposcope verify FOLDER` finds what lies below it, and says what it used."""

from __future__ import annotations

import json
from pathlib import Path

import pipelines
import pytest
from asked import asked
from pipelines import Pipeline

from grposcope import verify
from grposcope.instruments.verify import model_folders, read, row_file
from grposcope.signs.rollouts.evidence import Stated

PIPELINE = Pipeline(steps=2, prompts=4, group=4)
SETTINGS = {"num_generations": 4, "scale_rewards": "group", "ends": [9]}


def evidence_in(folder: Path, rows: pipelines.Rows) -> None:
    """The rows as a training writes them, with their settings and what was tested meanwhile."""
    found = read.of_rows(rows, SETTINGS)
    for step in (1, 2):
        row_file.write(folder, step, [row for row in found.rows if row.step == step])
    row_file.write_stated(folder, found.stated)
    row_file.append_claims(folder, {"step": 1, "claims": {"tokens": {"status": "holds"}}})


@pytest.mark.parametrize("below", ["", "grposcope", "runs/record"])
def test_evidence_is_found_below_a_folder(tmp_path: Path, below: str) -> None:
    evidence_in(tmp_path / below, PIPELINE.rows())
    said = verify(tmp_path)
    assert said.document["rollouts"] == 32
    claims = {one["claim"]: one["status"] for one in said.document["claims"]}
    assert claims["advantages"] == claims["groups"] == "holds"
    used = " ".join(said.document["used"])
    assert str(tmp_path / below / "verify") in used
    assert "tested while the run trained, at 1 step" in used
    assert f"Used: {said.document['used'][0]}" in " ".join(said.text)


def test_a_log_and_rollouts_in_folders_of_their_own(tmp_path: Path) -> None:
    rows = PIPELINE.rows()
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "logs").mkdir()
    metrics = [{"step": step, "reward": pipelines.metric("reward", [r for r in rows if r["step"] == step]),
                "loss": 0.1, "grad_norm": 1.0} for step in (1, 2)]  # fmt: skip
    (tmp_path / "logs" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    found = read.evidence(tmp_path)
    assert (len(found.rows), found.run is not None and found.run.steps) == (32, 2)
    assert [str(tmp_path / "logs") in found.used[0], str(tmp_path / "dumps") in found.used[1]] == [True, True]


def model_in(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"0" * 100)


@pytest.mark.parametrize(
    ("name", "step"),
    [("checkpoint-20", 20), ("ckpt_5", 5), ("checkpoints/step-000100/model", 100), ("7", 7),
     ("global_step_40/actor/huggingface", 40), ("smollm2", None), ("epoch_3", None), ("checkpoint-20-merged", None)],
)  # fmt: skip
def test_checkpoints_are_known_by_the_number_in_their_name(tmp_path: Path, name: str, step: int | None) -> None:
    model_in(tmp_path / name)
    assert model_folders.models(tmp_path) == ({} if step is None else {step: tmp_path / name})


def test_large_checkpoints_are_named_and_left_alone(tmp_path: Path) -> None:
    model_in(tmp_path / "ckpt_1")
    rows = read.of_rows(PIPELINE.rows(), {}).rows
    assert model_folders.unasked(tmp_path, rows) == (True, "")
    with (tmp_path / "ckpt_1" / "model.safetensors").open("r+b") as file:
        file.truncate(10**11)  # a hole: nothing is written
    wanted, note = model_folders.unasked(tmp_path, rows)
    assert not wanted
    assert "1 checkpoint in" in note
    assert "minutes on a CPU" in note
    assert model_folders.unasked(tmp_path / "ckpt_1", rows) == (False, "")


def test_checkpoints_that_do_not_load_are_a_note(tmp_path: Path) -> None:
    model_in(tmp_path / "ckpt_1")
    evidence_in(tmp_path, PIPELINE.rows())
    status, said = asked("verify", tmp_path)
    assert status == 0
    assert any("were not used" in note for note in said["notes"])


@pytest.mark.slow
def test_checkpoints_below_a_folder_are_used_without_being_asked(tmp_path: Path) -> None:
    """Their steps are those of their names: rollouts of step 1 are those of the weights before any training."""
    from test_verify_model import drawn, noisy

    for step in (0, 1, 2):
        policy = noisy(0.08 * step)
        policy.model.save_pretrained(tmp_path / f"ckpt_{step}")
        policy.tokenizer.save_pretrained(tmp_path / f"ckpt_{step}")
    for name, writers in (("sound", (0, 1, 2)), ("frozen", (0, 0, 0))):
        for k, j in enumerate(writers):
            row_file.write(tmp_path, k + 1, drawn(noisy(0.08 * j), k + 1, 16))
        row_file.write_stated(tmp_path, Stated(group=8, temperature=1.0))
        status, said = asked("verify", tmp_path)
        assert status == int(name == "frozen")
        assert said["checkpoints"] == ["step 0", "step 1", "step 2"]
        assert any("the checkpoints of steps 0, 1 and 2" in one for one in said["used"])
        first = {one["claim"]: one["findings"][0] for one in said["claims"]}["checkpoints"]
        assert (first["status"], first["fault"]) == (
            ("present", "weights never arrived") if name == "frozen" else ("excluded", first["fault"])
        )
    assert asked("verify", tmp_path, "--model", "none")[1]["checkpoints"] == []
