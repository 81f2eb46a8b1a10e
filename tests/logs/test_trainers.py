"""The tables of the trainers: all that is known of an engine stands in one file, and fits together."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from grposcope.core.metrics import LOGGED, METRICS
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.trainers import DEFECTS, TRAINERS
from grposcope.logs.trainers.generic import GENERIC
from grposcope.logs.trainers.trainer import Defect, Setting, Trainer
from grposcope.logs.trainers.trl import RLOO

EVERY = [*TRAINERS.values(), GENERIC, RLOO]

every_trainer = pytest.mark.parametrize("trainer", EVERY, ids=lambda trainer: trainer.title)


def test_trainers_stand_under_their_names() -> None:
    assert [trainer.name for trainer in TRAINERS.values()] == list(TRAINERS)
    assert all(trainer.leaves_files_of in {"", *TRAINERS} for trainer in TRAINERS.values())


@every_trainer
def test_keys_of_metrics(trainer: Trainer) -> None:
    """Each is a metric that is defined, and no key is two of them."""
    assert {*trainer.keys, *trainer.patterns, *(trainer.usual_keys or {})} <= {*METRICS, *LOGGED}
    keys = list(chain.from_iterable(trainer.keys.values()))
    assert all(isinstance(of_metric, tuple) and of_metric for of_metric in trainer.keys.values())
    assert all(isinstance(key, str) and key for key in keys)
    assert len(set(keys)) == len(keys)
    if trainer.component is not None:
        assert {"name", "what"} <= trainer.component.groupindex.keys()


@every_trainer
def test_settings(trainer: Trainer) -> None:
    """No key stands twice; levels are told by a dot; a default goes with the version that has it."""
    assert all(isinstance(setting, Setting) and re.fullmatch(r"[\w.]+", setting.key) for setting in trainer.settings)
    assert all(setting.name or setting.default is not None for setting in trainer.settings)
    assert all(re.fullmatch(r"[a-z0-9_]*", setting.name) for setting in trainer.settings)
    assert len({setting.key for setting in trainer.settings}) == len(trainer.settings)
    assert bool(trainer.version) >= bool(trainer.defaults)
    assert trainer.configured is None or not trainer.configured(())


@every_trainer
def test_kinds_of_files_and_advice(trainer: Trainer) -> None:
    assert all(isinstance(kind, LogKind) for kind in trainer.logs)
    assert all(isinstance(way, str) and way for way in trainer.how_to_log.values())


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: f"{defect.engine}, {defect.name}")
def test_defects_are_of_keys_that_are_known(defect: Defect) -> None:
    """Each is told of its own engine; where its key is left out of a metric, it is one of that metric's keys."""
    trainer = TRAINERS[defect.engine]
    assert defect in trainer.defects
    known = {key: metric for metric, keys in trainer.keys.items() for key in keys}
    reported = {"rollout_corr/rollout_is_seq_fraction_high", "train/ess_ratio"}  # of no metric of ours: only told of
    assert all(key in known or key in reported for key in defect.keys)


def test_no_defect_stands_with_two_engines() -> None:
    """An engine that takes over the keys of another has defects of its own."""
    assert len({(defect.engine, defect.name) for defect in DEFECTS}) == len(DEFECTS)
