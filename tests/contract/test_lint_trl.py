"""What lint says that TRL refuses, TRL refuses, and nothing else: its own GRPOConfig is asked, over a grid of sizes."""

from __future__ import annotations

import dataclasses
from itertools import product
from pathlib import Path

import pytest

from grposcope.core.settings import Settings
from grposcope.faults.judge_settings import lint, word
from grposcope.faults.known_task import Known
from grposcope.faults.pipeline import misspelt_setting
from grposcope.instruments.lint.dialects import RLOO, TRL

trl = pytest.importorskip("trl", reason="needs TRL")

SIZES = {
    "per_device_train_batch_size": (1, 2, 6),
    "gradient_accumulation_steps": (1, 4),
    "num_generations": (1, 2, 3, 8),
    "generation_batch_size": (None, 8, 12),
    "steps_per_generation": (None, 3),
    "eval_strategy": ("no", "steps"),
}


def test_batches_are_refused_where_trl_refuses_them(tmp_path: Path) -> None:
    refused = 0
    for values in product(*SIZES.values()):
        given = {key: value for key, value in zip(SIZES, values, strict=True) if value is not None}
        try:
            trl.GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], eval_steps=1, **given)
            refuses = False
        except ValueError:
            refuses = True
        settings = Settings(Path("x.py"), "a call", TRL, given)
        assert (word(lint(settings, Known(world=1)), settings) == "failing") is refuses, given
        refused += refuses
    assert 0 < refused < len(list(product(*SIZES.values())))


@pytest.mark.parametrize(("dialect", "config"), [(TRL, "GRPOConfig"), (RLOO, "RLOOConfig")])
def test_defaults_are_those_of_trl(dialect: object, config: str, tmp_path: Path) -> None:
    """Where TRL is as new as the version that lint names."""
    if tuple(int(part) for part in trl.__version__.split(".")[:2]) < (1, 16):
        pytest.skip(f"TRL {trl.__version__} is older than the 1.16 whose defaults these are")
    args = getattr(trl, config)(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[])
    for key, value in dialect.defaults.items():  # type: ignore[attr-defined]
        theirs = getattr(args, key)
        assert getattr(theirs, "value", theirs) == value, key


def test_no_setting_of_trl_is_taken_for_a_misspelt_one() -> None:
    names = {field.name for config in (trl.GRPOConfig, trl.RLOOConfig) for field in dataclasses.fields(config)}
    for dialect in (TRL, RLOO):
        settings = Settings(Path("x.py"), "a call", dialect, dict.fromkeys(names, 1))
        assert not list(misspelt_setting.FAULT.settings.check(settings, Known()))
    assert names & misspelt_setting.FURTHER
