"""What lint says of settings of agents, in each trainer's own keys, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from grposcope.core.settings import Dialect, Settings
from grposcope.faults.judge_settings import lint
from grposcope.faults.known_task import Known
from grposcope.instruments.lint.dialects import SKYRL, SLIME, TRL, VERL

TURNS, LOSS = "actor_rollout_ref.rollout.multi_turn.", "actor_rollout_ref.actor.loss_agg_mode"
ON = {TURNS + "enable": True}
AGENTS = {
    "ends not counted", "weight by turns", "turn limit", "returns stop at tools", "turns retokenised",
    "baseline by rows", "turn rewards not read", "failures as zeros",
}  # fmt: skip


def found(dialect: Dialect, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fault of agents -> its finding."""
    findings = lint(Settings(Path("x"), "a file", dialect, given), Known())
    return {own.fault: own for own in findings if own.present and own.fault in AGENTS}


@pytest.mark.parametrize(
    ("dialect", "given", "fault", "key", "remedy"),
    [
        (TRL, {"max_tool_calling_iterations": 0}, "turn limit", "max_tool_calling_iterations", "twice"),
        (TRL, {"max_tool_calling_iterations": 4, "loss_type": "grpo"}, "weight by turns", "loss_type", "dr_grpo"),
        (VERL, {**ON, LOSS: "seq-mean-token-mean"}, "weight by turns", LOSS, "seq-mean-token-sum-norm"),
        (SKYRL, {"generator.max_turns": 4, "trainer.algorithm.loss_reduction": "sequence_mean"}, "weight by turns",
         "trainer.algorithm.loss_reduction", "token_mean"),
        (VERL, {**ON, TURNS + "tokenization_sanity_check_mode": "disable"}, "turns retokenised",
         TURNS + "tokenization_sanity_check_mode", "strict"),
        (SLIME, {"custom_generate_function_path": "a.b"}, "baseline by rows", "custom_generate_function_path",
         "custom_reward_post_process_path"),
    ],
)  # fmt: skip
def test_each_names_the_setting_and_the_remedy(
    dialect: Dialect, given: Mapping[str, Any], fault: str, key: str, remedy: str
) -> None:
    own = found(dialect, given)[fault]
    assert key in own.because
    assert remedy in own.remedy
    assert any(sign.what.startswith(f"{key} = ") for sign in own.evidence)


@pytest.mark.parametrize(
    ("dialect", "given"),
    [
        (TRL, {"mask_truncated_completions": True, "loss_type": "grpo"}),
        (TRL, {"max_tool_calling_iterations": 8, "loss_type": "dapo"}),
        (VERL, {LOSS: "seq-mean-token-mean", TURNS + "max_assistant_turns": 1,
                "algorithm.adv_estimator": "reinforce_plus_plus", TURNS + "tokenization_sanity_check_mode": "disable"}),
        (VERL, {**ON, TURNS + "max_assistant_turns": 5, LOSS: "token-mean", "algorithm.adv_estimator": "grpo"}),
        (VERL, {TURNS + "enable": False, TURNS + "use_inference_chat_template": True}),
        (SKYRL, {"generator.max_turns": 1, "trainer.algorithm.loss_reduction": "sequence_mean"}),
        (SLIME, {"advantage_estimator": "grpo", "n_samples_per_prompt": 8}),
    ],
)  # fmt: skip
def test_settings_of_one_turn_and_sound_agents_are_left_alone(dialect: Dialect, given: Mapping[str, Any]) -> None:
    assert found(dialect, given) == {}
