"""`grposcope offpolicy`: what it says of rollouts, and bad input in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trainer_logs
from asked import asked, call, last_json

from grposcope.core.errors import UserError
from grposcope.maths.corrections import ALL


def rows(count: int = 64, spread: float = 0.02, seed: int = 0, group: int = 8) -> list[dict[str, Any]]:
    """Rollouts whose log ratios are normal with mean −spread²/2, so that the mean of ρ is 1."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        tokens = int(rng.integers(20, 200))
        sampler = -6 - rng.exponential(1, tokens)
        trainer = sampler + rng.normal(-(spread**2) / 2, spread, tokens)
        found.append({
            "logprobs": trainer.tolist(), "rollout_logprobs": sampler.tolist(), "reward": float(rng.random() < 0.5),
            "group": i // group,
        })  # fmt: skip
    return found


def written(path: Path, content: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in content))
    return path


def test_distance_and_weights_of_a_sampler_with_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("offpolicy", str(written(tmp_path / "r.jsonl", rows(400)))) == 0
    found, text = last_json(capsys)
    assert found["rollouts"] == 400
    far = found["distance"]
    assert far["k3"]["value"] == pytest.approx(0.02**2 / 2, rel=0.05)
    assert abs(far["k1"]["value"] - 0.02**2 / 2) < 4 * far["k1"]["se"]
    assert far["above"] == pytest.approx(0.5, abs=0.02)
    assert not far["processed"]
    assert list(found["corrections"]) == [one.name for one in ALL]
    assert "nats per token" in text
    assert "Cannot tell which correction is worth it from the ratios alone" in text
    assert "geometric_band:0.999,1.001 drops" in text


def test_equal_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = [{**row, "rollout_logprobs": row["logprobs"]} for row in rows()]
    assert call("offpolicy", str(written(tmp_path / "r.jsonl", content))) == 0
    text = last_json(capsys)[1]
    assert "there is nothing to correct" in text
    assert "sequence_cap" not in text.rsplit("\n", 2)[0]


def test_processed_log_probabilities_are_recognised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sampler's are those of the trainer over the mass that truncation keeps, 0.9 to 1."""
    rng, content = np.random.default_rng(0), []
    for row in rows():
        trainer = np.array(row["logprobs"])
        content.append({**row, "rollout_logprobs": (trainer - np.log(rng.uniform(0.9, 1, len(trainer)))).tolist()})
    assert call("offpolicy", str(written(tmp_path / "r.jsonl", content))) == 0
    found, text = last_json(capsys)
    assert found["distance"]["processed"]
    assert "top-k or top-p" in text
    assert "before processing" in text


def test_heavy_tails_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("offpolicy", str(written(tmp_path / "r.jsonl", rows(400, spread=0.8)))) == 0
    text = last_json(capsys)[1]
    assert "a few rollouts have most of the weight" in text
    assert "95% up to 0.0" in text
    assert "ESS/n may be anything below its upper end" in text


def test_versions_have_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = rows(32, 0.05, seed=1), rows(32, 0.001, seed=2)
    content = [{**row, "version": 3} for row in old] + [{**row, "version": 4} for row in new[:-1]] + new[-1:]
    assert call("offpolicy", str(written(tmp_path / "r.jsonl", content))) == 0
    lines = [line.split() for line in last_json(capsys)[1].splitlines()]
    by_version = {line[0]: float(line[2]) for line in lines if line[:2] in (["3", "32"], ["4", "31"])}
    assert by_version["3"] > 100 * by_version["4"]
    assert any("1 rollout has no version" in " ".join(line) for line in lines)


def test_nan_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = rows()
    content[0]["logprobs"][:2] = [None, "NaN"]
    assert call("offpolicy", str(written(tmp_path / "r.jsonl", content))) == 0
    found, text = last_json(capsys)
    assert found["absent"] == 2
    assert "counts as 1, as in TRL" in text


def test_a_gram_matrix_tells_which_correction_is_worth_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rewards that follow the scores, in rows that are not in the order of their groups."""
    rng, content = np.random.default_rng(1), rows(512, spread=0.01)
    scores = rng.normal(size=(512, 4))
    for row, score in zip(content, scores, strict=True):
        row["reward"] = float(score[0] + 0.3 * rng.normal() > 0)
    order = rng.permutation(512)
    path = written(tmp_path / "r.jsonl", [content[i] for i in order])
    np.save(tmp_path / "gram.npy", scores[order] @ scores[order].T)
    assert call("offpolicy", str(path), "--gram", str(tmp_path / "gram.npy")) == 0
    shuffled, text = last_json(capsys)
    np.save(tmp_path / "gram.npy", scores @ scores.T)
    _, straight = asked("offpolicy", written(tmp_path / "s.jsonl", content), "--gram", tmp_path / "gram.npy")
    assert shuffled["choice"]["name"]
    assert shuffled["errors"]["none"]["need"]["value"] == pytest.approx(straight["errors"]["none"]["need"]["value"])
    for name, one in straight["errors"].items():
        assert shuffled["errors"][name]["variance"]["value"] == pytest.approx(one["variance"]["value"]), name
    assert "Error of the gradient" in text
    assert "worth it" in text


def test_no_interval_of_a_bias_where_large_weights_were_not_drawn(tmp_path: Path) -> None:
    """A sampler that leaves out what the trainer draws has weights below 1 on the rest: their mean shows it."""
    rng, content = np.random.default_rng(2), rows(256, spread=0.01)
    scores = rng.normal(size=(256, 4))
    np.save(tmp_path / "gram.npy", scores @ scores.T)
    for lost, given in ((0.0, True), (0.5, False)):
        for row in content:
            row["logprobs"] = (np.array(row["logprobs"]) - lost / len(row["logprobs"])).tolist()
        path = written(tmp_path / f"{given}.jsonl", content)
        _, found = asked("offpolicy", path, "--gram", tmp_path / "gram.npy")
        assert isinstance(found["errors"]["none"]["interval"][1], float) == given
        assert isinstance(found["errors"]["none"]["variance"]["value"], float)


def test_gram_matrices_that_do_not_fit(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", rows(16))
    np.save(tmp_path / "gram.npy", np.eye(15))
    with pytest.raises(UserError, match=r"\(15, 15\).*\(16, 16\)"):
        asked("offpolicy", path, "--gram", tmp_path / "gram.npy")
    with pytest.raises(UserError, match="is not a NumPy array"):
        asked("offpolicy", path, "--gram", path)
    ungrouped = [{name: row[name] for name in ("logprobs", "rollout_logprobs")} for row in rows(16)]
    np.save(tmp_path / "gram.npy", np.eye(16))
    with pytest.raises(UserError, match="reward and a group"):
        asked("offpolicy", written(tmp_path / "u.jsonl", ungrouped), "--gram", tmp_path / "gram.npy")


def test_without_groups_and_rewards_it_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = [{"old_log_probs": row["logprobs"], "sampling_logprobs": row["rollout_logprobs"]} for row in rows()]
    assert call("offpolicy", str(written(tmp_path / "r.jsonl", content))) == 0
    found, text = last_json(capsys)
    assert "one_sided:0.2" not in found["corrections"]
    assert 'add a column "group"' in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"logprobs": [-1.0, -2.0], "rollout_logprobs": [-1.0]},
            r"line 2: columns .* differ in length \(sampler 1, current 2\)",
        ),
        (
            {"logprobs": [-1.0, "-inf"], "rollout_logprobs": [-1.0, -1.0]},
            "line 2: the trainer's log-probability of token 1 is -inf",
        ),
        ({"logprobs": [-1.0], "rollout_logprobs": [float("-inf")]}, "the sampler's log-probability of token 0 is -inf"),
        ({"logprobs": [0.5], "rollout_logprobs": [-1.0]}, "at most 0"),
        ({"logprobs": [], "rollout_logprobs": []}, "no tokens"),
        ({"logprobs": "abc"}, "not a list of numbers"),
        ({"logprobs": [[-1.0]]}, "not a list of numbers"),
        ({"logprobs": None}, "no log-probabilities of the trainer"),
        ({"rollout_logprobs": None}, "no log-probabilities of the sampler.*rollout_logprobs"),
        ({"reward": "good"}, "line 2: reward is good"),
    ],
)
def test_bad_rows_in_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    content = rows(3)
    content[1].update(change)
    with pytest.raises(UserError, match=message):
        asked("offpolicy", written(tmp_path / "r.jsonl", content))


def test_one_rollout_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="1 rollout; give at least 2"):
        asked("offpolicy", written(tmp_path / "r.jsonl", rows(1)))
    with pytest.raises(UserError, match="no such file"):
        asked("offpolicy", tmp_path / "none.jsonl")


def test_three_log_probabilities_split_mismatch_from_staleness(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old policy lies 0.02 nats above the sampler, and the current one where `rows` puts it."""
    content = [{**row, "old_per_token_logps": (np.array(row["rollout_logprobs"]) - 0.02).tolist()} for row in rows()]
    assert call("offpolicy", str(written(tmp_path / "r.jsonl", content))) == 0
    found, text = last_json(capsys)
    assert found["parts"]["mismatch"]["value"] == pytest.approx(0.02)
    total = found["parts"]["mismatch"]["value"] + found["parts"]["stale"]["value"]
    assert total == pytest.approx(found["distance"]["k1"]["value"])
    assert "part from staleness" in text
    short = [{**row, "old_per_token_logps": [-1.0]} for row in content]
    with pytest.raises(UserError, match=r"differ in length \(sampler \d+, old 1"):
        asked("offpolicy", written(tmp_path / "r.jsonl", short))


def test_old_log_probabilities_alone_are_the_trainers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As verl and TRL log them: old_log_probs beside rollout_log_probs."""
    content = [
        {"old_log_probs": row["logprobs"], "rollout_log_probs": row["rollout_logprobs"], "reward": row["reward"]}
        for row in rows()
    ]
    assert call("offpolicy", str(written(tmp_path / "r.jsonl", content))) == 0
    assert last_json(capsys)[0]["parts"] is None


def printed_by_trl(path: Path) -> Path:
    """What TRL prints: a dict a line, which begins as JSON does."""
    rows = [trainer_logs.trl_row(step, **{"sampling/sampling_logp_difference/mean": 0.01}) for step in range(1, 6)]
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def printed_by_verl(path: Path) -> Path:
    path.write_text("".join(trainer_logs.verl_line(step, trainer_logs.verl_row(step)) + "\n" for step in range(1, 6)))
    return path


def rows_of_verl(path: Path) -> Path:
    return written(path, [{"step": step, "data": trainer_logs.verl_row(step)} for step in range(1, 6)])


@pytest.mark.parametrize(
    ("write", "is_a"),
    [(printed_by_trl, "(TRL, 5 steps, with sampling/sampling_logp_difference/mean, which grposcope diagnose judges)"),
     (printed_by_verl, "(verl, 5 steps)"), (rows_of_verl, "(verl, 5 steps)")],
)  # fmt: skip
def test_a_log_without_rollouts_is_said_to_be_one(write: Callable[[Path], Path], is_a: str, tmp_path: Path) -> None:
    log = write(tmp_path / "out.log")
    with pytest.raises(UserError) as error:
        call("offpolicy", str(log))
    said = f"{log} is a log {is_a} and holds no rollouts; give a JSONL file with the log-probabilities of trainer"
    assert said in str(error.value)
    assert "delete" not in str(error.value)
