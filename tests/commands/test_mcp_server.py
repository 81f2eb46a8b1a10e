"""The server for coding agents, asked by the client of its own package, over the pipes that an agent would use."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from grposcope import logs
from grposcope.commands import mcp_server
from grposcope.core.errors import UserError
from grposcope.instruments.diagnosis import answer
from grposcope.instruments.diagnosis.verdict import findings_of, verdict
from grposcope.render import document

mcp = pytest.importorskip("mcp")


def log(folder: Path, reward: Callable[[int], float], name: str = "log.jsonl") -> Path:
    path = folder / name
    alive = float(reward(1) != 0)
    rows = ({"step": k, "reward": reward(k), "reward_std": 0.4 * alive, "frac_reward_zero_std": 1 - 0.9 * alive,
             "grad_norm": 0.5 * alive, "loss": 0.01 * alive, "kl": 0.01 * k / 60} for k in range(1, 61))  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def learns(k: int) -> float:
    return 0.3 + 0.006 * k + 0.02 * ((k * 7919) % 11 - 5) / 5


def asked(root: Path, talk: Callable[[Any], Awaitable[Any]]) -> Any:
    """What a conversation with a server of this folder brings."""

    async def conversation() -> Any:
        line = [sys.executable, "-m", "grposcope", "mcp", "--root", str(root)]
        parameters = mcp.StdioServerParameters(command=line[0], args=line[1:], env=dict(os.environ))
        async with mcp.Client(mcp.stdio_client(parameters)) as client:
            return await talk(client)

    return asyncio.run(asyncio.wait_for(conversation(), 120))


@pytest.mark.slow
def test_an_agent_is_answered(tmp_path: Path) -> None:
    log(tmp_path, learns)
    log(tmp_path, lambda k: 0.0, "dead.jsonl")

    async def talk(client: Any) -> Any:
        tools = await client.list_tools()
        verdict = await client.call_tool("diagnose", {"path": "log.jsonl"})
        dead = await client.call_tool("diagnose", {"path": "dead.jsonl"})
        page = await client.call_tool("explain", {"fault": "never paid"})
        resource = await client.read_resource("run://log.jsonl")
        outside = await client.call_tool("diagnose", {"path": "../secret"})
        misnamed = await client.call_tool("diagnose", {"paths": ["log.jsonl"]})
        assert misnamed.is_error
        assert misnamed.content[0].text.startswith("diagnose: there is no argument 'paths'")
        differ = await client.call_tool("compare", {"paths": ["log.jsonl", "dead.jsonl"]})
        return tools, verdict, dead, page, resource, outside, differ

    tools, verdict, dead, page, resource, outside, differ = asked(tmp_path, talk)
    assert {tool.name for tool in tools.tools} == {
        "diagnose", "lint", "verify", "rewards", "texts", "plan", "compare", "explain"
    }  # fmt: skip
    assert all(tool.description and len(tool.description) < 400 for tool in tools.tools)
    answer = json.loads(verdict.content[0].text)
    assert answer["word"] == "healthy"
    assert json.loads(resource.contents[0].text)["sentence"] == answer["sentence"]
    bad = json.loads(dead.content[0].text)
    assert (bad["word"], bad["findings"][0]["fault"]) == ("failing", "never paid")
    assert bad["findings"][0]["decides"]
    assert max(len(each.content[0].text) for each in (verdict, dead, differ)) <= mcp_server.CHARACTERS
    assert json.loads(page.content[0].text)["fault"] == "never paid"
    assert outside.is_error
    assert "is not below the folder" in outside.content[0].text
    assert not differ.is_error


def test_only_what_lies_below_the_folder_is_read(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    inside = log(root, learns)
    outside = log(tmp_path, learns, "other.jsonl")
    (root / "link").symlink_to(outside)
    assert mcp_server._below(root.resolve(), "log.jsonl") == inside.resolve()
    for path in ("../other.jsonl", "link", str(outside), "/etc/passwd", "sub/../../other.jsonl"):
        with pytest.raises(UserError, match="not below the folder"):
            mcp_server._below(root.resolve(), path)
    with pytest.raises(UserError, match=r"there is no lag\.jsonl; beside it are link, log\.jsonl"):
        mcp_server._below(root.resolve(), "lag.jsonl")


def test_a_refusal_is_the_commands_own_line(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(UserError, match=r"empty\.jsonl is empty"):
        mcp_server._answer(tmp_path.resolve(), "diagnose", ["empty.jsonl"])


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("diagnose", {"paths": ["a"]}, "diagnose: there is no argument 'paths'; the argument 'path' is missing; its "
         "arguments: path (text), config (text, may be left out)"),
        ("explain", {}, "explain: the argument 'fault' is missing; its arguments: fault (text)"),
        ("lint", {"path": "a", "rate": 1}, "lint: there is no argument 'rate'; its arguments: path (text), "
         "success_rate (a number, may be left out)"),
        ("compare", {"paths": 3}, "compare: the argument 'paths' should be a list of texts, not 3; its arguments: "
         "paths (a list of texts)"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_one_line_with_the_right_ones(
    tool: str, arguments: dict[str, Any], said: str, tmp_path: Path
) -> None:
    server = mcp_server._server(tmp_path)
    with pytest.raises(Exception, match="its arguments") as refused:
        asyncio.run(server.call_tool(tool, arguments))
    assert str(refused.value) == said


@pytest.mark.parametrize("reward", [lambda k: 0.0, lambda k: 0.3 + 0.02 * ((k * 7919) % 11 - 5) / 5])
def test_advice_and_reason_are_those_of_the_command_line(reward: Callable[[int], float], tmp_path: Path) -> None:
    """Also of a flat run of which the log cannot tell why."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"step": k, "reward": reward(k)}) + "\n" for k in range(1, 201)))
    run = logs.read(path)
    judged = verdict(run, findings_of(run))
    told = mcp_server._small(document.of_answer(answer.of_run(run, findings_of(run))))
    assert (told["do"], told["because"]) == (judged.do, judged.because)
    assert told["do"]


def test_answers_are_cut_and_say_so() -> None:
    findings = [{"fault": f"f{k}", "status": "present" if k < 3 else "excluded", "because": "x" * 9000, "p": 0.1}
                for k in range(40)]  # fmt: skip
    document = {"sentence": "failing", "findings": findings, "notes": ["n" * 400] * 100, "present": [1]}
    cut = mcp_server._small(document)
    assert len(json.dumps(cut)) <= mcp_server.CHARACTERS
    assert [each["fault"] for each in cut["findings"]] == ["f0", "f1", "f2"]
    assert cut["rules that found nothing or cannot tell"] == 37
    assert "p" not in cut["findings"][0]
    assert cut["notes"][-1].endswith("more")
    assert mcp_server._small({"sentence": "healthy"}) == {"sentence": "healthy"}
