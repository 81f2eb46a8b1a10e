"""A record of format 2 as an earlier release wrote it (`grposcope train --steps 3 --group 4 --prompts 2`) is read."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import numpy as np
import pytest
from places import TESTS

from grposcope.logs import read
from grposcope.logs.native import schema
from grposcope.logs.native.schema import ModelInfo, StepRow

FIXTURE = TESTS / "fixtures" / "record_format2"


def test_its_tables_and_rollouts_are_read() -> None:
    run = read(FIXTURE)
    assert (run.meta.engine, run.meta.status, run.meta.notes) == ("grposcope", "finished", ())
    assert run.table["grad_norm"].tolist() == [0.3081248998641968, 0.32524144649505615, 0.36833158135414124]
    assert math.isnan(run.table["kl"][0])
    assert {f.name for f in fields(StepRow)} - {"reward_errors", "tokens_generated"} | {"time"} == set(
        run.table
    )  # written from format 3 on
    assert run.groups.problems[:2] == ("42+5-8+2=", "40-7+2-2=")
    assert run.groups.rewards.reshape(6, 4).sum(-1).tolist() == [0, 1, 0, 1, 1, 0]
    assert run.groups.truncated is not None
    assert not run.groups.truncated.any()
    accuracy = run.evaluations.of("pass@1")
    assert (accuracy.step.tolist(), accuracy.value.tolist(), accuracy.n.tolist()) == ([0, 2, 3], [0.375] * 3, [20] * 3)
    first = run.rollouts[1][0]
    assert (first.completion, first.tokens[-1], len(run.rollouts[1])) == ("43+2-2=45-2=43", "<eos>", 8)
    assert first.loss_weights is not None
    np.testing.assert_allclose(first.loss_weights, 0.00416583, rtol=1e-5)
    assert first.sampler[0] == pytest.approx(-0.25052312)


def test_its_documents_are_read() -> None:
    config = schema.read_config(FIXTURE)
    assert (config.format, config.engine, config.window, config.name) == (2, "grposcope", 1, "")
    assert config.settings["group"] == 4
    assert config.model == ModelInfo("tiny", "LlamaForCausalLM", 1287040)
    assert config.resolved["lr"] == 4e-4
    assert config.resolved["objective"]["name"] == "grpo"
    assert config.environment["torch"] == "2.13.0+cpu"
    phase, summary = schema.read_phase(FIXTURE), schema.read_summary(FIXTURE)
    assert phase is not None
    assert (phase.phase, phase.step, phase.steps) == ("finished", 3, 3)
    assert summary is not None
    assert (summary.steps, summary.interrupted, summary.content["tokens"]) == (3, False, 358)


def test_config_goes_through_the_schema_unchanged() -> None:
    assert schema.read_config(FIXTURE).document() == json.loads((FIXTURE / "config.json").read_text())
