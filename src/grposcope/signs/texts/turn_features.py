"""Turns of a rollout: what the policy wrote in each, and the tools that it called with which arguments.

Turns are the assistant's messages, else the runs of tokens of one turn, else the whole text is one turn. Calls are the
`tool_calls` of messages, and those that a text writes out between <tool_call> and </tool_call> as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grposcope.core.rollouts import Rollout, plain_text
from grposcope.core.text import visible

WRITTEN_OUT = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)

LONGEST = 4000
"""Characters of the arguments of a call that are read."""


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool: its name, and its arguments as one line of JSON with sorted keys, or as they were written."""

    name: str
    arguments: str


@dataclass(frozen=True)
class TextTurn:
    """What the policy wrote in a turn, and the calls that it made."""

    text: str
    calls: tuple[ToolCall, ...] = ()


def of_rollout(row: Rollout) -> tuple[TextTurn, ...]:
    """The turns of a rollout, of which there is one at least."""
    if isinstance(row.completion, list):
        own = [message for message in row.messages if message.get("role") == "assistant"]
        turns = [_of_message(message) for message in own or row.messages]
        return tuple(turns) or (TextTurn(""),)
    if row.turns is not None and len(row.tokens) == len(row.turns):
        drawn = row.turns >= 0 if row.written is None else (row.turns >= 0) & row.written
        texts = ["".join(row.tokens[index] for index in np.flatnonzero(drawn & (row.turns == turn)))
                 for turn in range(int(row.turns.max(initial=0)) + 1)]  # fmt: skip
        return tuple(TextTurn(text, _written_out(text)) for text in texts)
    text = row.completion or ""
    return (TextTurn(text, _written_out(text)),)


def _of_message(message: dict[str, Any]) -> TextTurn:
    text = plain_text([message])
    asked = message.get("tool_calls")
    calls = tuple(_call(call) for call in asked if isinstance(call, dict)) if isinstance(asked, list) else ()
    return TextTurn(text, calls or _written_out(text))


def _call(call: dict[str, Any]) -> ToolCall:
    own = call.get("function")
    own = own if isinstance(own, dict) else call
    return ToolCall(str(own.get("name", "")), _one_line(own.get("arguments", "")))


def _written_out(text: str) -> tuple[ToolCall, ...]:
    """The calls that a text writes out; those that are no JSON have no name."""
    if "<tool_call>" not in text:
        return ()
    calls = []
    for match in WRITTEN_OUT.finditer(text):
        try:
            call = json.loads(match[1])
        except (ValueError, RecursionError):
            call = {"arguments": match[1]}
        calls.append(_call(call))
    return tuple(calls)


def _one_line(arguments: Any) -> str:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return str(arguments)[:LONGEST]
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)[:LONGEST]


def shown(call: ToolCall) -> str:
    """The feature of a text that makes this call."""
    return visible(f"calls “{call.name}” with {call.arguments}", 80)


def arguments(turns: Sequence[Sequence[TextTurn]]) -> list[str]:
    """All arguments of the calls of each rollout, a line each."""
    return ["\n".join(call.arguments for turn in own for call in turn.calls) for own in turns]
