"""Advice how to log something knows what the run's own settings have already; turns of verl are in its own terms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from grposcope.instruments.diagnosis import answer, diagnose
from grposcope.logs import read
from grposcope.logs.trainers import how_to_log

PRINTED = """(TaskRunner pid=1)  {'actor_rollout_ref': {'actor': {'calculate_entropy': False,
(TaskRunner pid=1)                 'rollout': {'calculate_log_probs': SET,
(TaskRunner pid=1)                 'rollout_data_dir': FOLDER,
"""


@pytest.mark.parametrize("on", [True, False])
def test_what_the_log_prints_as_set_is_not_advised(tmp_path: Path, on: bool) -> None:
    rng, lines = np.random.default_rng(0), []
    for step in range(1, 41):
        values = {"critic/score/mean": 0.3 + 0.02 * rng.normal(), "actor/pg_loss": 0.01 * rng.normal(),
                  "response_length/mean": 200 + 5 * rng.normal(), "num_turns/mean": 2.0}  # fmt: skip
        lines.append(f"step:{step} - " + " - ".join(f"{key}:{value}" for key, value in values.items()))
    path = tmp_path / "train.log"
    printed = PRINTED.replace("SET", str(on)).replace("FOLDER", "'/data/rollouts'" if on else "None")
    path.write_text(printed + "\n".join(lines) + "\n")
    run = read(path)
    findings = diagnose(run)
    tables = {table.title: table for table in answer.of_run(run, findings).tables}
    advised = {row[0]: row[1] for row in tables["How to log what is missing"].rows}
    assert (
        "calculate_log_probs=True is set already, and yet none of its metrics is in this log" in advised["mismatch"]
    ) == on
    assert ("trainer.rollout_data_dir is set already" in advised["dead_fraction"]) == on
    assert advised["entropy"] == "verl: actor_rollout_ref.actor.calculate_entropy=True"
    [looping] = [found.because for found in findings if found.fault == "looping"]
    assert (
        "the policy went from 1 to 1 turns per rollout (half of num_turns/mean, which counts the messages of "
        in looping
    )


def test_settings_that_are_off_are_advised() -> None:
    assert "set already" not in how_to_log(
        "evaluation", "verl", {"data": {"val_files": "x"}, "trainer": {"test_freq": -1}}
    )
    assert "are set already" in how_to_log(
        "evaluation", "verl", {"data": {"val_files": "x"}, "trainer": {"test_freq": 5}}
    )
    assert how_to_log("kl", "verl", {"actor_rollout_ref/actor/use_kl_loss": False}) == how_to_log("kl", "verl")
