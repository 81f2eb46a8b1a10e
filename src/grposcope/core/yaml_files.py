"""YAML as data: the safe subset, with the line of every key.

Only mappings, lists and scalars are made, never objects. Two traps of plain PyYAML are closed: `1e-6` is a number, as
in YAML 1.2 and OmegaConf (YAML 1.1 takes it for text), and a key that is written twice is an error instead of the last
one winning silently.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from grposcope.core.errors import UserError
from grposcope.core.files import read_whole, unreadable

_LARGEST = 4_000_000
"""Bytes of a file beyond which it is no file of settings."""


_MOST = 500_000
"""Values of a file, its aliases written out, beyond which it is no file of settings."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's safe loader with floats as in YAML 1.2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)


@dataclass(frozen=True)
class _YamlFile:
    """Content of a YAML file. lines: path of keys, joined by ".", -> its line, from 1."""

    path: Path
    content: Any
    lines: Mapping[str, int] = field(default_factory=dict)

    def where(self, key: str) -> str:
        """File and line of a key, such as "sweep.yaml, line 3"."""
        return f"{self.path}, line {self.lines[key]}" if key in self.lines else str(self.path)


def read(path: Path) -> _YamlFile:
    """The one document of a YAML file; UserError, with file and line, for one that cannot be read."""
    try:
        if path.stat().st_size > _LARGEST:
            raise UserError(f"{path} has more than {_LARGEST:,} bytes; give a file of settings")
        text = read_whole(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"there is no {path}; give the path of a YAML file") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give the path of a YAML file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise unreadable(path, error) from None
    return parse(text, path)


def parse(text: str, path: Path) -> _YamlFile:
    """The one document of a text; `path` is named in messages."""
    if len(text) > _LARGEST:
        raise UserError(f"{path} has more than {_LARGEST:,} characters; give a file of settings")
    loader: Any = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if _size(node, {}) > _MOST:
            raise UserError(f"{path}: its aliases stand for over {_MOST:,} values; use fewer of them")
        lines: dict[str, int] = {}
        if node is not None:
            _check_keys(node, "", lines, path, set())
        return _YamlFile(path, None if node is None else loader.construct_document(node), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise UserError(f"{path}{line}: not valid YAML ({error.problem or error.context}); correct that line") from None
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: not valid YAML ({reason}); correct the file") from None
    finally:
        if loader is not None:
            loader.dispose()


def _size(node: Any, sizes: dict[int, float]) -> float:
    """Values that a node stands for with its aliases written out, infinite for one that contains itself."""
    if id(node) not in sizes:
        sizes[id(node)] = math.inf
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = (part for child in children for part in (child if isinstance(child, tuple) else (child,)))
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[id(node)]


def _check_keys(node: Any, prefix: str, lines: dict[str, int], path: Path, seen: set[int]) -> None:
    """Note the line of every key below a node; UserError for one that is written twice in one mapping."""
    if id(node) in seen:  # an alias of what was looked at before
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _check_keys(child, f"{prefix}{index}.", lines, path, seen)
    if not isinstance(node, yaml.MappingNode):
        return
    before: dict[Hashable, int] = {}
    for key, child in node.value:
        line = key.start_mark.line + 1
        name = key.value if isinstance(key, yaml.ScalarNode) else None
        if name is not None and name != "<<":
            if name in before:
                raise UserError(
                    f"{path}, line {line}: {name} is given twice, first in line {before[name]}; delete one of the two"
                )
            before[name] = line
            lines[f"{prefix}{name}"] = line
            _check_keys(child, f"{prefix}{name}.", lines, path, seen)
        else:
            _check_keys(child, prefix, lines, path, seen)
