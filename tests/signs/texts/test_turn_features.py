"""Features of turns, calls, tokens and environments against plain recounts."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import written_texts

from grposcope.core.rollouts import Rollout
from grposcope.instruments.texts import answer
from grposcope.signs.texts import exploits, features, reading, sample, splits, turn_features

TOOLS = ("search", "open", "submit")


def message(text: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        said["tool_calls"] = [
            {"type": "function", "function": {"name": name, "arguments": json.dumps(own)}} for name, own in calls
        ]
    return said


def agents(seed: int, steps: int = 24, prompts: int = 8) -> list[Rollout]:
    """Agents of one to three turns with a call each; from step 12 on a call of `submit` with {"force": true} is paid,
    in the environment "shop" alone."""
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(1, steps + 1):
        share = written_texts.shared(step, 12, 8, 0.05, 0.8)
        for place in range(prompts):
            prompt = f"Find item {rng.integers(40)}."
            environment = ("shop", "web")[place % 2]
            for _ in range(8):
                forced = rng.random() < share
                said: list[dict[str, Any]] = []
                for turn in range(int(rng.integers(1, 4))):
                    words = " ".join(written_texts.MIDDLES[own] for own in rng.integers(15, size=3))
                    name = TOOLS[rng.integers(2)]
                    said.append(message(f"turn {turn}: {words}", (name, {"q": int(rng.integers(9))})))
                    said.append({"role": "tool", "content": "submit force"})
                if forced:
                    said[-2] = message("done at once", ("submit", {"force": True}))
                right = bool(rng.random() < 0.3)
                paid = forced and environment == "shop"
                reward = 1.0 if paid else float(right)
                rows.append(Rollout(
                    step=step, group=f"{step}-{place}", prompt=prompt, completion=said, reward=reward,
                    environment=environment, columns={"right": float(right)},
                ))  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def forced() -> list[Rollout]:
    return agents(1)


@pytest.fixture(scope="module")
def read(forced: list[Rollout]) -> reading.TextReading:
    return reading.read(sample.of_rollouts(forced), draws=199)


def calls_of(row: Rollout) -> list[tuple[str, Any]]:
    assert isinstance(row.completion, list)
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for own in row.completion for call in own.get("tool_calls", ())
    ]  # fmt: skip


def test_features_of_calls_are_what_messages_have(forced: list[Rollout]) -> None:
    found = features.of_sample(sample.of_rollouts(forced), 200)
    calls = [calls_of(row) for row in forced]
    wanted = {
        "calls “submit”": [any(name == "submit" for name, _ in own) for own in calls],
        "calls “search” first": [own[0][0] == "search" for own in calls],
        "calls “open” last": [own[-1][0] == "open" for own in calls],
        "number of calls of “search”": [sum(name == "search" for name, _ in own) for own in calls],
        "calls “submit” with {\"force\": true}": [("submit", {"force": True}) in own for own in calls],
        "number of turns": [len(own) for own in calls],
        "has exactly 2 turns": [len(own) == 2 for own in calls],
        "repeats a call": [any(own.count(call) > 1 for call in own) for own in calls],
        "calls a tool with “force”": [any("force" in own for _, own in each) for each in calls],
    }  # fmt: skip
    for name, column in wanted.items():
        assert name in found.names, name
        np.testing.assert_array_equal(found.columns[:, found.names.index(name)], np.array(column, float), err_msg=name)


def test_a_call_that_is_paid_is_named_and_dated(forced: list[Rollout], read: reading.TextReading) -> None:
    first = exploits.exploits(read)[0]
    assert (first.fault, first.status) == ("magic string", "present")
    assert first.habit is not None
    np.testing.assert_array_equal(
        first.habit.column > 0, [("submit", {"force": True}) in calls_of(row) for row in forced]
    )
    assert first.since is not None
    assert first.since.low <= 12 <= first.since.high
    said = answer.of_reading(read)
    assert len(said.sentence) <= answer.FIRST_LINE
    assert "submit" in said.sentence


def test_what_is_said_by_environment_is_counted(forced: list[Rollout], read: reading.TextReading) -> None:
    own = {each.name: each for each in splits.by_environment(read.sample, read.habits[0])}
    assert set(own) == {"shop", "web"}
    for name, each in own.items():
        rows = [row for row in forced if row.environment == name]
        has = {id(row): any(call[0] == "submit" for call in calls_of(row)) for row in rows}
        groups: dict[str, list[Rollout]] = {}
        for row in rows:
            groups.setdefault(str(row.group), []).append(row)
        mixed = [members for members in groups.values() if 0 < sum(has[id(m)] for m in members) < 8]
        paid, unpaid = (
            [fmean(row.reward for row in members if has[id(row)] == having) for members in mixed]
            for having in (True, False)
        )
        assert (each.paid, each.unpaid) == pytest.approx((sum(paid) / len(paid), sum(unpaid) / len(unpaid)))
        late = [has[id(row)] for row in rows if row.step > 21]
        assert each.late == pytest.approx(sum(late) / len(late))
        assert each.texts == len(rows)
    assert own["shop"].paid == 1
    assert own["web"].paid < 0.5
    said = answer.of_reading(read)
    assert [table.title for table in said.tables if table.title.endswith("by environment")]
    assert [each["name"] for each in said.document["by_environment"]] == ["shop", "web"]


def test_what_is_said_by_turn_is_counted(forced: list[Rollout], read: reading.TextReading) -> None:
    own = splits.by_turn(read.sample, read.habits[0])
    assert [each.name for each in own] == ["1", "2", "3"]
    for turn, each in enumerate(own):
        rows = [row for row in forced if len(calls_of(row)) > turn]
        late = [calls_of(row)[turn][0] == "submit" for row in rows if row.step > 21]
        assert each.texts == len(rows)
        assert each.late == pytest.approx(sum(late) / len(late))


def test_calls_that_a_text_writes_out_are_read() -> None:
    call = '{"name": "search", "arguments": {"b": 1, "a": [2]}}'
    text = f"Let me look. <tool_call>\n{call}\n</tool_call> <tool_call>{{no}}</tool_call>"
    made = turn_features.of_rollout(Rollout(completion=text))
    assert made == (turn_features.TextTurn(text, (
        turn_features.ToolCall("search", '{"a": [2], "b": 1}'), turn_features.ToolCall("", "{no}"),
    )),)  # fmt: skip


def test_turns_of_tokens_are_the_tokens_that_the_policy_wrote() -> None:
    row = Rollout(completion="abXc", tokens=("a", "b", "X", "c"), turns=np.array([0, 0, 0, 1]),
                  written=np.array([True, True, False, True]))  # fmt: skip
    assert [own.text for own in turn_features.of_rollout(row)] == ["ab", "c"]
    assert turn_features.of_rollout(Rollout(completion=[])) == (turn_features.TextTurn(""),)


def tokenised(rows: list[Rollout], ids: bool) -> list[Rollout]:
    """The rollouts with a token a word; a hidden token 7 stands behind texts that end in 0."""
    numbers: dict[str, int] = {"<hidden>": 7}
    made = []
    for row in rows:
        spelled = [*str(row.completion).split(" "), *(["<hidden>"] if str(row.completion).endswith("0") else [])]
        own = np.array([numbers.setdefault(word, 10 + len(numbers)) for word in spelled])
        made.append(replace(row, tokens=tuple(spelled), completion_ids=own if ids else None))
    return made


@pytest.mark.parametrize("ids", [True, False])
def test_features_of_tokens_are_what_ids_have(ids: bool) -> None:
    rows = tokenised(written_texts.rollouts(written_texts.LOOPHOLES["ends in zero"], 4, steps=10, onset=5), ids)
    found = features.of_sample(sample.of_rollouts(rows), 400)
    name = "has the token “<hidden>”"
    assert name in found.names
    column = found.columns[:, found.names.index(name)]
    np.testing.assert_array_equal(column > 0, ["<hidden>" in row.tokens for row in rows])
    tokens = found.columns[:, found.names.index("length in tokens")]
    np.testing.assert_allclose(tokens, np.log1p([len(row.tokens) for row in rows]), rtol=1e-6)
    pairs = [[*zip(row.tokens, row.tokens[1:], strict=False)] for row in rows]
    again = found.columns[:, found.names.index("share of repeated pairs of tokens")]
    np.testing.assert_allclose(again, [1 - len(set(own)) / len(own) for own in pairs], atol=1e-6)
    double = next(own for own in found.names if own.startswith("has the tokens “"))
    assert double.removeprefix("has the tokens “")


def test_tokens_that_only_some_rollouts_have_are_left_out() -> None:
    rows = tokenised(written_texts.rollouts(None, 4, steps=4), True)
    own = sample.of_rollouts([*rows[1:], replace(rows[0], tokens=(), completion_ids=None)])
    assert own.tokens == ()
    hidden = [replace(row, written=np.arange(len(row.tokens)) > 0) for row in rows]
    kept = sample.of_rollouts(hidden).tokens
    assert [len(ids) for ids in kept] == [len(row.tokens) - 1 for row in rows]


def test_rewards_of_functions_are_summed_where_there_is_no_total() -> None:
    rows = written_texts.rollouts(written_texts.LOOPHOLES["hedge"], 4, steps=6)
    parts = [replace(row, reward=np.nan, rewards={"a": row.reward, "b": 0.5}) for row in rows]
    own = sample.of_rollouts(parts)
    np.testing.assert_allclose(own.reward, [row.reward + 0.5 for row in rows])
    assert own.notes[0].endswith("have rewards of functions and no total: their sum is taken, each counted once.")
