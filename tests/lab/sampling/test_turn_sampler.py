"""Rollouts of several turns: what the environment says is read, not trained on, and fails its rollout alone."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.logprobs import token_logprobs
from grposcope.lab.sampling.rollouts import collect, recorded
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.sampling.turn_sampler import of_turns, sample_turns
from grposcope.lab.tasks import load
from grposcope.lab.tasks.base import Problem, Task, Turn

PROBLEMS = [Problem("one", "1+2="), Problem("two", "3+4=")]
SAMPLING = Sampling(24)


class Echo(Task):
    """Answers each turn with two characters and pays its number; ends after `most` turns; the call `broken` fails."""

    name, max_turns, turn_end, max_tokens = "echo", 3, "7", 24

    def __init__(self, most: int = 9, broken: int | None = None, slow: bool = False):
        self.most, self.broken, self.slow = most, broken, slow
        self.calls = 0

    def start(self, problem: Problem, seed: int) -> dict[str, Any]:
        return {"turn": 0, "seed": seed}

    def step(self, problem: Problem, state: dict[str, Any], said: str) -> Turn:
        state["turn"] += 1
        self.calls += 1
        if self.calls == self.broken:
            if self.slow:
                time.sleep(5)
            raise RuntimeError("no table")
        if said[-1:] != self.turn_end:
            return Turn(reward=0.5)
        return Turn("ab", float(state["turn"]), state["turn"] >= self.most)

    def anchor(self, state: dict[str, Any]) -> str:
        return f"{state['seed']}/{state['turn']}"

    def reward(self, problem: Problem, completion: str) -> float:
        raise AssertionError("turns are paid by step")


def draw(policy: Policy, task: Task, seed: int = 0, **more: Any) -> Any:
    return sample_turns(policy, task, PROBLEMS, 8, DrawSettings(SAMPLING, **more), torch.Generator().manual_seed(seed))


def test_turns_and_observations(policy: Policy) -> None:
    found = draw(policy, Echo(most=2))
    end, heard = policy.tokenizer("7").input_ids[0], policy.tokenizer("ab").input_ids
    assert found.turns.max() == 1
    for row in range(16):
        turns, mask = found.turns[row], found.completions.mask[row]
        ids = found.completions.tokens[row]
        own = ids[(turns == 0) & mask].tolist()
        if 1 in turns.tolist():
            assert own[-1] == end
            assert ids[(turns == 0) & ~mask].tolist() == heard
            assert len(found.turn_rewards[row]) == 2
        assert found.anchors[row][0] == found.anchors[row // 8 * 8][0]  # siblings begin in one state
        assert found.stops[row] in ("environment", "eos", "length")
        assert found.rewards[row] == sum(found.turn_rewards[row])
    assert len({found.anchors[0][0], found.anchors[8][0]}) == 2


def test_log_probabilities_are_those_of_the_whole_sequence(policy: Policy) -> None:
    batch = collect(policy, Echo(), PROBLEMS, recipes.GRPO, SAMPLING, (2, 8), 3, 0)
    rollouts = batch.rollouts
    assert rollouts.has_holes
    logp, _ = token_logprobs(policy.model, rollouts, torch.arange(16))
    torch.testing.assert_close(logp, rollouts.logp[:, : logp.shape[1]], atol=2e-5, rtol=1e-4)
    paid = rollouts.token_annotations["step_rewards"].sum(-1).reshape(2, 8)
    torch.testing.assert_close(paid, rollouts.rewards)
    assert batch.tokens == int(rollouts.mask.sum())
    turns = rollouts.token_annotations["turns"].amax(-1) + 1
    logged = of_turns(rollouts)
    assert (logged["agent/turns"], logged["agent/turns_max"]) == (float(turns.double().mean()), float(turns.max()))
    assert logged["agent/environment_tokens"] == int((rollouts.attended & ~rollouts.mask).sum()) / 16
    assert of_turns(replace(rollouts, token_annotations={})) == {}
    rows = recorded(policy, recipes.GRPO, batch, torch.zeros(rollouts.mask.shape), None, 2)
    several = next(row for row in rows if row.written is not None)
    assert several.written is not None
    assert several.sampler is not None
    assert (several.turn_count or 0) >= 2
    assert not several.written.all()
    assert (several.sampler[several.written] < 0).all()


def test_a_draw_is_a_function_of_the_generator(policy: Policy) -> None:
    one, other = draw(policy, Echo(), 5), draw(policy, Echo(), 5)
    assert torch.equal(one.completions.tokens, other.completions.tokens)
    assert one.stops == other.stops


def test_a_limit_on_turns(policy: Policy) -> None:
    found = draw(policy, Echo())
    assert {*found.stops} <= {"turns", "environment", "eos", "length"}
    assert max(len(rewards) for rewards in found.turn_rewards) <= 3
    assert all(
        len(rewards) == 3 for rewards, stop in zip(found.turn_rewards, found.stops, strict=True) if stop == "turns"
    )


@pytest.mark.parametrize(("errors", "reward"), [("zero", 0.0), ("drop", float("nan"))])
def test_an_environment_that_raises_fails_its_rollout_alone(policy: Policy, errors: Any, reward: float) -> None:
    found = draw(policy, Echo(broken=2), reward_errors=errors)
    assert found.rewards[found.stops.index("error")] == pytest.approx(reward, nan_ok=True)
    assert len(found.failed) == 1
    assert "RuntimeError: no table" in found.failed[0]
    assert ", turn 1)" in found.failed[0]
    assert found.stops.count("error") == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Turn(done=True, why="won"), "ended an episode for the reason 'won'; use one of eos, length"),
        (Turn(observation=5), "answered with the observation 5, which is no text"),  # type: ignore[arg-type]
        (Turn(reward=float("nan")), "no Turn with a finite reward"),
        ("a text", "'a text', which is no Turn"),
        (SystemExit(2), "raised SystemExit: 2"),
    ],
)
def test_what_an_environment_may_not_answer(policy: Policy, answer: Any, said: str) -> None:
    """A line that names the task, the problem and the turn; the other rollouts go on where errors are passed over."""

    class Wrong(Echo):
        def step(self, problem: Problem, state: dict[str, Any], said: str) -> Turn:
            right = super().step(problem, state, said)
            if self.calls != 3:
                return right
            if isinstance(answer, SystemExit):
                raise answer
            return answer

    with pytest.raises(UserError, match=f"the environment of task echo .*{re.escape(said)}.*problem two, turn 1"):
        draw(policy, Wrong())
    assert draw(policy, Wrong(), reward_errors="zero").stops.count("error") == 1


@pytest.mark.parametrize("anchor", [5, RuntimeError("no key")])
def test_an_anchor_that_cannot_be_had(policy: Policy, anchor: Any) -> None:
    class Wrong(Echo):
        def anchor(self, state: dict[str, Any]) -> str:
            if isinstance(anchor, Exception):
                raise anchor
            return anchor

    with pytest.raises(UserError, match=r"the anchor of a state of task echo cannot be had: .*problem one"):
        draw(policy, Wrong())


def test_a_state_that_cannot_be_copied(policy: Policy) -> None:
    class Locked(Echo):
        def start(self, problem: Problem, seed: int) -> dict[str, Any]:
            return {**super().start(problem, seed), "lock": threading.Lock()}

    with pytest.raises(
        UserError, match=r"the state of task echo cannot be copied: TypeError: .*; write its method branch"
    ):
        draw(policy, Locked(), turn_values=2)


def test_by_default_it_ends_the_run_with_a_line(policy: Policy) -> None:
    with pytest.raises(UserError, match=r"the environment of task echo raised RuntimeError: no table.*, turn 1"):
        draw(policy, Echo(broken=2))


def test_an_environment_that_hangs(policy: Policy) -> None:
    began = time.monotonic()
    found = draw(policy, Echo(broken=2, slow=True), reward_timeout=0.2, reward_errors="zero")
    assert time.monotonic() - began < 4
    assert found.stops.count("error") == 1
    assert found.failed[0].startswith("took longer than 0.2 s")


def test_an_end_of_turns_that_is_no_token(policy: Policy) -> None:
    task = Echo()
    task.turn_end = "77"
    with pytest.raises(UserError, match="ends turns with '77', which is not one token"):
        draw(policy, task)


def test_the_hidden_table() -> None:
    task = load("hidden_table:letters=2,cost=0.1,size=50")
    problem = replace(task.problems("train")[0], prompt="b+d=")
    state, again = task.start(problem, 4), task.start(problem, 4)
    total = state.numbers["b"] + state.numbers["d"]
    assert again.numbers == state.numbers
    assert task.value(problem, state) == pytest.approx(0.8)  # type: ignore[attr-defined]
    assert task.step(problem, state, "?b;") == Turn(str(state.numbers["b"]), -0.1)
    assert (task.anchor(state), task.anchor(again)) == ("?b", "?")
    task.step(problem, state, "?d;")
    assert task.value(problem, state) == pytest.approx(1.0)  # type: ignore[attr-defined]
    assert task.step(problem, state, f"{total};") == Turn(reward=1.0, done=True)
    assert task.step(problem, state, f"{total + 1};") == Turn(reward=0.0, done=True)
    assert task.step(problem, state, "what").done
    assert len(task.problems("train")) == 50
    for wrong in ("letters=9", "cost=2", "size=0", "other=1", "letters=x"):
        with pytest.raises(UserError, match="hidden_table"):
            load(f"hidden_table:{wrong}")
