"""What the trainer refuses before the first step: one line that names the setting, the function or TRL's method."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("datasets")

from engines import tiny_trl
from grposcope.core.errors import UserError
from grposcope.engines.trl import GRPOscopeMixin, GRPOscopeTrainer, guard, probing, scored_batch
from grposcope.engines.trl.scored_batch import Scored
from grposcope.lab.credit import SOURCES, chosen


def steps(completions: list[str], **_: Any) -> list[list[tuple[int, float]]]:
    return [[(1, 1.0)] for _ in completions]


def refused(folder: Path, reward: Any = tiny_trl.reward_letters, kind: Any = GRPOscopeTrainer, **given: Any) -> str:
    names = ("probe_every", "probe_prompts", "credit", "advantage", "step_rewards")
    ours = {name: given.pop(name) for name in names if name in given}
    with pytest.raises(UserError) as said:
        tiny_trl.trainer(folder, [], reward, kind=kind, ours=ours, **given)
    assert "\n" not in str(said.value)
    return str(said.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"credit": "stpes"}, "did you mean steps?"),
        ({"credit": "steps"}, "give step_rewards"),
        (
            {"credit": "tree"},
            "credit tree needs more than a group of rollouts for each prompt, and engine trl does not generate them",
        ),
        ({"step_rewards": steps}, "credit outcome does not read it; leave it out, or use credit steps"),
        ({"credit": "steps", "step_rewards": steps, "advantage": "centered"}, "leave out advantage centered"),
        ({"advantage": "centred"}, "unknown advantage 'centred'"),
        ({"credit": "steps", "step_rewards": steps, "importance_sampling_level": "sequence"}, "not the token form"),
        ({"credit": "prefix", "off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold=0.5 keeps or drops"),
        ({"credit": "prefix", "loss_type": "vespo"}, "loss_type=vespo weighs a completion by the sign"),
        ({"advantage": "centered", "multi_objective_aggregation": "normalize_then_sum"}, "every reward function"),
        ({"probe_every": -1}, "probe_every -1 must be 0 or more"),
        ({"probe_every": 1, "probe_prompts": 0}, "probe_prompts 0"),
        ({"credit": "steps", "step_rewards": lambda completions: []}, "unexpected keyword argument 'prompts'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_do_not_go_together(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    assert words in refused(tmp_path, **given)


@pytest.mark.skipif("entropy" not in SOURCES, reason="there is no such source")
def test_credit_that_needs_what_trl_does_not_hand_over(tmp_path: Path) -> None:
    assert "the policy's entropy at every token" in refused(tmp_path, credit="entropy")


def test_rloo_weighs_whole_completions(tmp_path: Path) -> None:
    from trl import RLOOConfig, RLOOTrainer

    class Mine(GRPOscopeMixin, RLOOTrainer):
        """A trainer of one's own."""

    said = refused(tmp_path, kind=Mine, config=RLOOConfig, beta=0.0, credit="prefix")
    assert "RLOOTrainer's loss weighs whole completions" in said
    args = RLOOConfig(str(tmp_path), use_cpu=True, bf16=False)
    with pytest.raises(UserError, match="subtracts the divergence from the rewards"):
        guard.credit(chosen("outcome"), "centered", None, args)


def no_keywords(completions: list[str]) -> list[float]:
    return [0.0 for _ in completions]


def other_names(texts: list[str], **_: Any) -> list[float]:
    return [0.0 for _ in texts]


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (no_keywords, "got an unexpected keyword argument 'prompts'"),
        (other_names, "missing a required argument: 'texts'"),
    ],
)
def test_a_reward_function_that_cannot_take_what_trl_passes(tmp_path: Path, reward: Any, words: str) -> None:
    said = refused(tmp_path, reward)
    assert said.startswith(f"{reward.__name__}(")
    assert words in said
    assert "TRL passes prompts, completions, completion_ids" in said


def test_reward_functions_that_are_fine() -> None:
    class Graded:
        def __call__(self, prompts: Any, completions: Any, answer: Any, **more: Any) -> list[float]:
            return []

    guard.rewards([tiny_trl.reward_letters, Graded(), torch.nn.Linear(2, 1), "a/model"], ["prompt", "answer"])
    guard.rewards([lambda completions, completion_ids, prompts, trainer_state, log_extra, log_metric: []], None)
    with pytest.raises(UserError, match="'answer'"):
        guard.rewards([Graded()], ["prompt"])
    guard.rewards([Graded()], ["prompt"], further=True)  # which a rollout_func may return
    with pytest.raises(UserError, match="unexpected"):
        guard.rewards([no_keywords], ["prompt"], further=True)


def test_batches_of_whole_groups_in_equal_parts() -> None:
    args = SimpleNamespace(num_generations=4, generation_batch_size=16, per_device_train_batch_size=8, world_size=2)
    guard.batch(args)
    args.num_generations = 3
    with pytest.raises(UserError, match="num_generations 3 does not divide the batch of 16 rollouts"):
        guard.batch(args)
    args.num_generations, args.world_size = 4, 3
    with pytest.raises(UserError, match="cannot be shared by 3 processes"):
        guard.batch(args)


@pytest.mark.parametrize(
    ("deepspeed", "plugin", "words"),
    [
        (True, None, "DeepSpeed keeps the weights"),
        (False, {"fsdp_version": 1}, "FSDP1 .*set version 2 in fsdp_config"),
        (False, {"fsdp_version": 2, "cpu_offload": True}, "on the CPU.*leave cpu_offload out"),
        (False, {"fsdp_version": 2, "activation_checkpointing": True}, "use gradient_checkpointing instead"),
        (False, {"fsdp_version": 2}, ""),
        (False, None, ""),
    ],
)
def test_weights_that_a_probe_cannot_measure_are_refused(
    deepspeed: bool, plugin: dict[str, Any] | None, words: str
) -> None:
    from accelerate.utils import FullyShardedDataParallelPlugin

    made = None if plugin is None else FullyShardedDataParallelPlugin(**plugin)
    accelerator = SimpleNamespace(state=SimpleNamespace(fsdp_plugin=made))
    trainer = SimpleNamespace(is_deepspeed_enabled=deepspeed, accelerator=accelerator)
    with pytest.raises(UserError, match=words) if words else nullcontext():
        guard.processes(trainer)


def test_a_probe_has_a_rollout_for_every_process() -> None:
    args = SimpleNamespace(num_generations=4, generation_batch_size=16, world_size=16)
    guard.probed_rollouts(4, args)
    with pytest.raises(UserError, match=r"a probe of 12 rollouts .*by 16 processes; raise probe_prompts"):
        guard.probed_rollouts(3, args)


def test_a_model_without_a_matrix_to_train(tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    class Frozen(GRPOscopeTrainer):
        def __init__(self, model: LlamaForCausalLM, *given: Any, **more: Any) -> None:
            super().__init__(model.requires_grad_(False), *given, **more)

    assert "no trainable parameter to measure" in refused(tmp_path, kind=Frozen, probe_every=1)


@pytest.mark.parametrize("name", guard.METHODS)
def test_a_method_of_trl_that_has_changed_is_named(name: str) -> None:
    def renamed(self: Any, batch: Any) -> None: ...

    kept = {other: _like(expected) for other, expected in guard.METHODS.items()}
    guard.methods(type("GRPOTrainer", (), kept))
    with pytest.raises(UserError) as said:
        guard.methods(type("GRPOTrainer", (), {**kept, name: renamed}))
    assert f"GRPOTrainer.{name} takes (self, batch) instead of ({', '.join(guard.METHODS[name])})" in str(said.value)
    assert "TRL 1." in str(said.value)
    del kept[name]
    with pytest.raises(UserError, match=rf"GRPOTrainer\.{name} does not exist"):
        guard.methods(type("GRPOTrainer", (), kept))


def _like(parameters: tuple[str, ...]) -> Any:
    return eval(f"lambda {', '.join(parameters)}: None")


@pytest.mark.parametrize(
    ("every", "interval", "steps"),
    [(2, 1, [1, 3, 5]), (1, 1, [1, 2, 3, 4, 5, 6]), (4, 2, [1, 5]), (3, 2, [1, 3]), (10, 1, [1]), (0, 1, [])],
)
def test_when_a_probe_is_due(every: int, interval: int, steps: list[int]) -> None:
    """At the fresh batches in use at steps 1, 1 + K, …, as in `grposcope train --probe-every`."""
    asked = probing.Asked(every, 8)
    assert [step for step in range(1, 7) if (step - 1) % interval == 0 and asked.due(step, interval)] == steps


class Pieces:
    """A tokenizer of words, of which <e> ends a completion."""

    all_special_ids = (0,)
    words = ("<e>", "ab", "c\n", "def", "g")

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return "".join(self.words[i] for i in ids if not (skip_special_tokens and i == 0))


def own() -> Any:
    out = {
        "prompt_ids": torch.ones(2, 1, dtype=torch.long),
        "prompt_mask": torch.ones(2, 1, dtype=torch.long),
        "completion_ids": torch.tensor([[1, 2, 3, 0], [4, 4, 0, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    }
    batch = Scored(torch.ones(2, 1), [{"prompt": "x"}] * 2, ["x"] * 2, ["abc\ndef", "gg"], [[1, 2, 3, 0], [4, 4, 0]])
    return scored_batch.rollouts(out, torch.tensor([[1.0, 0.0]]).double(), batch, {0}), batch


def test_a_step_is_on_the_token_that_closes_it() -> None:
    """Ends count characters: within a token, at its end, behind the text, and several closed by one token."""

    def rated(completions: list[str], **_: Any) -> list[list[tuple[int, float]]]:
        return [[(4, 1.0), (5, 0.5), (7, 0.25)], [(3, 2.0)]]

    rollouts, batch = own()
    labelled = scored_batch.labelled(rollouts, batch, rated, Pieces())
    assert labelled.token_annotations["step_rewards"].tolist() == [[0, 1.0, 0.75, 0], [0, 0, 2.0, 0]]
    ends = labelled.token_annotations["step_ends"]
    assert ends.int().tolist() == [[0, 1, 1, 0], [0, 0, 1, 0]]
    assert labelled.truncated.tolist() == [False, False]
    chat = replace(batch, completions=[[{"role": "assistant", "content": text}] for text in batch.completions])
    assert torch.equal(scored_batch.labelled(rollouts, chat, rated, Pieces()).token_annotations["step_ends"], ends)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([[(1, 1.0)]], "wrong returned 1 lists for 2 completions"),
        ([[(1, 1.0)], [1.0]], "return a list of (end, reward)"),
        (3, "wrong returned int"),
    ],
)
def test_step_rewards_of_another_form_are_named(answer: Any, words: str) -> None:
    def wrong(**_: Any) -> Any:
        return answer

    rollouts, batch = own()
    with pytest.raises(UserError) as said:
        scored_batch.labelled(rollouts, batch, wrong, Pieces())
    assert words in str(said.value)


def test_a_message_that_is_not_the_text_is_refused() -> None:
    rollouts, batch = own()
    other = replace(batch, completions=[[{"role": "assistant", "content": "thought"}]] * 2)
    with pytest.raises(UserError, match="differs from the text that was sampled"):
        scored_batch.labelled(rollouts, other, lambda **_: [[(1, 1.0)]] * 2, Pieces())
    two = replace(batch, completions=[[{"role": "a", "content": "x"}] * 2] * 2)
    with pytest.raises(UserError, match="2 messages"):
        scored_batch.labelled(rollouts, two, lambda **_: [[(1, 1.0)]] * 2, Pieces())


def test_rewards_are_summed_as_trl_does() -> None:
    rewards = torch.tensor([[1.0, 2.0], [torch.nan, 2.0], [torch.nan, torch.nan], [0.0, 1.0]])
    total = Scored(rewards, [], [], [], []).total(torch.tensor([1.0, 0.5]), 2)
    torch.testing.assert_close(total, torch.tensor([[2.0, 1.0], [torch.nan, 0.5]]).double(), equal_nan=True)
