"""Settings in a shell script: overrides a.b=c as verl takes them, and flags with their values as TRL's scripts do.

The script is split into words, never run. Variables that are set to literals are put in, with their defaults
(${N:-8}) and whole-number arithmetic ($((A * B))); what a command, an argument or the environment would tell is opaque.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.instruments.lint.expressions import NotLiteralError, value

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.S)
_OVERRIDE = re.compile(r"[+~]{0,2}(?P<key>[A-Za-z_][\w/@-]*(?:\.[\w/@-]+)+)=(?P<value>.*)", re.S)
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?::?[-=](?P<default>[^{}$]*))?\}|(?P<bare>[A-Za-z_]\w*))")
_ARITHMETIC = re.compile(r"\$\(\((?P<inside>[^()$]*(?:\([^()$]*\)[^()$]*)*)\)\)")
_OPAQUE = "\x00"
_OPENS, _CLOSES = ("if", "case", "for", "while", "until"), ("fi", "esac", "done")
"""Words at the beginning of a command between which it may not be run, or more than once."""
_ENDS = frozenset((";", "&&", "||", "|", "\n", "&"))


@dataclass
class ShellSettings:
    """Settings found in a script, as in `Settings`; overrides and flags apart.

    unread: lines of the variables that may hold more settings and cannot be told, in commands that take overrides;
    unread_flags: the same in commands that take flags alone.
    """

    overrides: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    opaque: set[str] = field(default_factory=set)
    unread: list[int] = field(default_factory=list)
    unread_flags: list[int] = field(default_factory=list)


@dataclass
class _Command:
    """The command whose words go by: whether it takes overrides or flags, the word before, and what cannot be told."""

    overrides: bool = False
    flags: bool = False
    before: str = ""
    unread: list[int] = field(default_factory=list)

    def may_hold_settings(self, word: str, expanded: str) -> bool:
        """Whether a word is a variable that cannot be told and may hold settings: no program, no value of a flag."""
        is_value = self.before.startswith("--") and "=" not in self.before
        variable = re.fullmatch(r"\$(\w+|\{\w+\})", word) is not None
        return variable and _OPAQUE in expanded and bool(self.before) and not is_value

    def ends(self, script: ShellSettings) -> None:
        """Add what could not be told, where the command takes settings."""
        if self.overrides:
            script.unread += self.unread
        elif self.flags:
            script.unread_flags += self.unread


_LONGEST, _MOST = 100_000, 4_000_000
"""Characters of a command, and of all beginnings of commands, beyond which a text is no script."""


def read(path: Path, text: str) -> ShellSettings:
    """All overrides and flags of a script; of one that is given twice, the last. UserError where quotes do not end."""
    words = deque(_words(path, text))
    variables: dict[str, str] = {}
    changed: set[str] = set()
    script, command, depth = ShellSettings(), _Command(), 0
    while words:
        line, word = words.popleft()
        if word in _ENDS:
            command.ends(script)
            command = _Command()
            continue
        if not command.before:
            depth += (word in _OPENS) - (word in _CLOSES)
        expanded = _expand(word, variables)
        override, assignment = _OVERRIDE.fullmatch(expanded), _ASSIGNMENT.fullmatch(expanded)
        if assignment is not None:
            name, content = assignment["name"], assignment["value"]
            before = variables.get(name, content)
            added_to = depth == 0 and bool(before) and before in content and name not in changed
            if not added_to and (before != content or name in changed):
                changed.add(name)
                content = _OPAQUE
            variables[name] = content
        elif re.search(r"\s[+~]{0,2}[A-Za-z_]\w*(\.\w+)+=", f" {expanded}") and expanded.split() != [expanded]:
            inside = _split(expanded) or expanded.split()  # a variable with several words
            words.extendleft((line, word) for word in reversed(inside))
        elif override is not None:
            _take(script, script.overrides, override["key"].replace("/", "."), override["value"], line)
            command.overrides = True
        elif expanded.startswith("--") and len(expanded) > 2:
            _take_flag(script, expanded[2:], [_expand(w, variables) for _, w in islice(words, 40)], line)
            command.flags = True
        elif command.may_hold_settings(word, expanded):
            command.unread.append(line)
        command.before = word
    command.ends(script)
    return script


def parse(text: str) -> Any:
    """The value that a word stands for: number, true or false, null, list, else the text itself."""
    lowered = text.strip()
    if lowered.lower() in ("true", "false"):
        return lowered.lower() == "true"
    if lowered.lower() in ("null", "none"):
        return None
    try:
        return value(ast.parse(lowered, mode="eval").body, {})
    except (NotLiteralError, SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def _take(script: ShellSettings, kind: dict[str, Any], key: str, content: str, line: int) -> None:
    script.lines[key] = line
    script.opaque.discard(key)
    kind.pop(key, None)
    if _OPAQUE in content:
        script.opaque.add(key)
    else:
        kind[key] = parse(content)


def _take_flag(script: ShellSettings, flag: str, after: list[str], line: int) -> None:
    """One flag with its value, after "=" or as the words that follow; alone it is a switch."""
    name, equals, content = flag.partition("=")
    name = name.replace("-", "_")
    if not re.fullmatch(r"[A-Za-z]\w*(?:\.\w+)*", name):
        return None
    if equals:
        return _take(script, script.flags, name, content, line)
    values = []
    for word in after:
        if word.startswith("--") or word in _ENDS:
            break
        values.append(word)
    if any(_OPAQUE in word for word in values[:1]):
        return _take(script, script.flags, name, _OPAQUE, line)
    script.lines[name] = line
    script.flags[name] = True if not values else parse(values[0]) if len(values) == 1 else [parse(v) for v in values]
    return None


def _words(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """(line, word) of a script, with "\\n" for an end of a command; comments are left out."""
    joined, number, looked_at = "", 0, 0
    start = 1
    for number, raw in enumerate(text.splitlines(), 1):
        if not joined:
            start = number
        bare = raw.strip()
        if bare.startswith("#"):
            continue
        joined += bare.removesuffix("\\") + " "
        looked_at += len(joined)
        if len(joined) > _LONGEST or looked_at > _MOST:
            raise UserError(f"{path}, line {start}: this is no command that ends; give the script that starts the run")
        if bare.endswith("\\"):
            yield from ((number, word) for word in _split(joined) or ())
            joined = "" if _split(joined) is not None else joined
            continue
        words = _split(joined)
        if words is None:  # a quote that goes on in the next line
            continue
        yield from ((number, word) for word in words)
        yield number, "\n"
        joined = ""
    if joined.strip():
        raise UserError(f"{path}, line {start}: a quote is opened there and not closed; correct the script")


def _split(text: str) -> list[str] | None:
    """Words of a text; None where a quote does not end. Names and brackets of arrays are left out, their words stay."""
    text = re.sub(r"\$\((?!\()[^()]*\)|`[^`]*`", _OPAQUE, text)
    text = _ARITHMETIC.sub(lambda match: "".join(match[0].split()), text)  # one word, in spite of its blanks
    try:
        words = shlex.split(re.sub(r"(^|\s)\w+\+?=\(", r"\1", text), comments=True)
    except ValueError:
        return None
    closed = (word.removesuffix(")") if word.count(")") > word.count("(") else word for word in words)
    return [word for word in closed if word]


def _expand(word: str, variables: Mapping[str, str]) -> str:
    """A word with variables and arithmetic put in; what cannot be told becomes the mark of an opaque value."""

    def put_in(match: re.Match[str]) -> str:
        name = match["braced"] or match["bare"]
        default = match["default"]
        return variables.get(name, _OPAQUE if default is None else default.strip("'\""))

    for _ in range(5):
        word, before = _VARIABLE.sub(put_in, word), word
        if word == before:
            break
    word = _ARITHMETIC.sub(lambda match: _calculated(match["inside"], variables), word)
    return re.sub(r"\$[\d@*#?]|\$\{[^}]*\}|\$\(\(.*?\)\)", _OPAQUE, word)


def _calculated(inside: str, variables: Mapping[str, str]) -> str:
    names = {name: parse(content) for name, content in variables.items()}
    try:
        result = value(ast.parse(inside.strip(), mode="eval").body, names)
    except (NotLiteralError, SyntaxError, ValueError, RecursionError):
        return _OPAQUE
    return str(int(result)) if isinstance(result, int | float) else _OPAQUE
