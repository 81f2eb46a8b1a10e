"""Settings of public reports: what each says, and that the mended file says nothing. Numbers are made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from grposcope.core.settings import Dialect, Settings
from grposcope.faults.judge_settings import lint, word
from grposcope.instruments.lint.dialects import (
    MS_SWIFT,
    NEMO_RL,
    OPEN_INSTRUCT,
    OPENRLHF,
    ROLL,
    SKYRL,
    SLIME,
    TRL,
    VERL,
)
from grposcope.instruments.lint.read import read

FILTER = "algorithm.filter_groups."
ACTOR = "actor_rollout_ref.actor."


def present(given: Mapping[str, Any], dialect: Dialect) -> dict[str, str]:
    """Fault -> why, of the faults that are present."""
    settings = Settings(Path("settings"), "a file", dialect, dict(given))
    return {finding.fault: finding.because for finding in lint(settings) if finding.present}


REPORTS: list[tuple[str, Dialect, Mapping[str, Any], Mapping[str, Any], str]] = [
    ("kl against its penalty", VERL, {ACTOR + "use_kl_loss": True, ACTOR + "kl_loss_coef": -0.002},
     {ACTOR + "kl_loss_coef": 0.002}, "paid for leaving"),  # rllm #111
    ("kl against its penalty", SLIME, {"n_samples_per_prompt": 8, "kl_loss_coef": -0.01}, {"kl_loss_coef": 0.0},
     "-0.01"),
    ("kl against its penalty", OPENRLHF, {"algo.kl.init_coef": -1e-3}, {"algo.kl.init_coef": 1e-3}, "below 0"),
    ("accumulation not scaled", MS_SWIFT, {"loss_type": "cispo", "gradient_accumulation_steps": 6},
     {"gradient_accumulation_steps": 1}, "1/6"),  # ms-swift #10117
    ("accumulation not scaled", MS_SWIFT, {"loss_type": "dapo", "gradient_accumulation_steps": 6},
     {"loss_type": "grpo"},
     "divided by 6 on top"),
    ("idle filter", VERL, {"data.gen_batch_size": 512, "data.train_batch_size": 128}, {FILTER + "enable": True},
     "data.gen_batch_size has no effect"),  # verl #876
    ("idle filter", VERL, {FILTER + "max_num_gen_batches": 8}, {FILTER + "max_num_gen_batches": 0}, "has no effect"),
    ("idle filter", NEMO_RL, {"grpo.batch_multiplier": 3, "grpo.num_generations_per_prompt": 8},
     {"grpo.use_dynamic_sampling": True}, "grpo.batch_multiplier"),
    ("idle filter", MS_SWIFT, {"max_resample_times": 5}, {"dynamic_sample": True}, "dynamic_sample is not on"),
    ("filter of summed rewards", VERL, {"algorithm.adv_estimator": "gdpo", FILTER + "enable": True,
                                        FILTER + "metric": "seq_reward"}, {FILTER + "metric": "acc"}, "cancel"),
    ("best not measured", NEMO_RL, {"checkpointing.metric_name": "val:accuracy", "grpo.val_period": 0},
     {"grpo.val_at_end": True}, "most recent"),  # NeMo-RL #762
    ("float16 overflow", MS_SWIFT, {"torch_dtype": "float16"}, {"torch_dtype": "bfloat16"}, "65,504"),
    ("idle kl coefficient", ROLL, {"kl_loss_coef": 0.01}, {"use_kl_loss": True}, "use_kl_loss is off"),
    ("unused reference", ROLL, {"use_kl_loss": True}, {"kl_loss_coef": 0.01}, "coefficient of 0"),
    ("clip range not read", ROLL, {"pg_clip_high": 0.28}, {"use_pg_clip_range": True}, "pg_clip = 0.2"),
    ("truncated sampler", ROLL, {"actor_infer.generating_args.top_k": 100}, {"actor_infer.generating_args.top_k": -1},
     "top_k = 100"),
    ("group of two", ROLL, {"num_return_sequences_in_group": 2}, {"num_return_sequences_in_group": 16}, "two"),
    ("kl estimator without gradient", OPEN_INSTRUCT, {"beta": 0.03, "kl_estimator": "kl1"}, {"kl_estimator": "kl3"},
     ""),  # open-instruct #535
    ("kl estimator without gradient", OPEN_INSTRUCT, {"beta": 0.03, "kl_estimator": 0}, {"kl_estimator": 2}, ""),
    ("high learning rate", TRL, {"learning_rate": 2e-5}, {"use_peft": True}, "if all weights are"),  # open-r1 #436
]  # fmt: skip


@pytest.mark.parametrize(("fault", "dialect", "given", "mended", "says"), REPORTS)
def test_what_a_report_has_is_named_and_its_remedy_ends_it(
    fault: str, dialect: Dialect, given: Mapping[str, Any], mended: Mapping[str, Any], says: str
) -> None:
    assert says in present(given, dialect).get(fault, "nothing")
    assert fault not in present({**given, **mended}, dialect)


def test_a_filter_of_groups_by_the_sum_of_standardized_rewards_in_skyrl() -> None:
    given = {"trainer.algorithm.advantage_estimator": "gdpo", "trainer.algorithm.zero_variance_filter": True}
    assert "filter of summed rewards" in present(given, SKYRL)
    assert "filter of summed rewards" not in present({**given, "trainer.algorithm.advantage_estimator": "grpo"}, SKYRL)


def test_a_filter_that_a_command_line_may_switch_on_is_not_called_idle() -> None:
    settings = Settings(Path("x"), "a file", VERL, {"data.gen_batch_size": 512}, partial=True)
    assert not [finding for finding in lint(settings) if finding.present and finding.fault == "idle filter"]


def test_the_yaml_of_roll_is_read_as_such(tmp_path: Path) -> None:
    (tmp_path / "rlvr.yaml").write_text(
        "rollout_batch_size: 48\nnum_return_sequences_in_group: 2\nppo_epochs: 1\nresponse_length: 900\n"
        "adv_estimator: grpo\nuse_kl_loss: true\nkl_loss_coef: -0.003\n"
        "actor_train:\n  model_args:\n    lora_rank: 16\n  training_args:\n    learning_rate: 1.0e-6\n"
        "actor_infer:\n  generating_args:\n    temperature: 0.97\n    top_p: 0.9\n"
    )
    settings = read(tmp_path / "rlvr.yaml")
    assert settings.dialect.name == "roll"
    named = {finding.fault for finding in lint(settings) if finding.present}
    assert {"kl against its penalty", "group of two", "truncated sampler", "low learning rate"} <= named


def test_a_script_of_open_instruct_is_not_read_as_one_of_trl(tmp_path: Path) -> None:
    """Defaults of TRL, such as eight rollouts a prompt, are not those of Open Instruct."""
    (tmp_path / "run.sh").write_text(
        "uv run python open_instruct/grpo_fast.py --beta 0.02 --num_samples_per_prompt_rollout 12 "
        "--num_unique_prompts_rollout 24 --learning_rate 6e-7 --per_device_train_batch_size 1 --kl_estimator kl1 "
        "--temperature 1.0\n"
    )
    settings = read(tmp_path / "run.sh")
    assert settings.dialect.name == "open-instruct"
    findings = lint(settings)
    assert [finding.fault for finding in findings if finding.present] == ["kl estimator without gradient"]
    assert word(findings, settings) == "warning"
