"""Settings in a Python file or notebook: the call GRPOConfig(…), or a dict. The code is parsed, never run or
imported.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.instruments.lint.dialects import recognise
from grposcope.instruments.lint.expressions import NotLiteralError, constants, value

CONFIGS = re.compile(r"\w*(?:GRPO|RLOO)Config")
"""Names of the classes whose calls hold settings, those of subclasses included."""

_SAVED_ADAPTERS = re.compile(r"(?:Auto)?PeftModel\w*")
"""Classes of PEFT whose from_pretrained loads adapters, frozen unless is_trainable is true."""

_THAWS = {"merge_and_unload", "get_peft_model", "requires_grad_", "set_adapter"}
"""Calls after which other parameters may be trained than those that were loaded."""

LOADS = "load_dataset"
"""The function of Hugging Face datasets that loads data by its name."""

_OF_ROLLOUTS = ("rollout_func", "tools", "environment_factory")
"""Arguments of the trainer by which rollouts have turns, or are drawn by a function of one's own."""


@dataclass
class _PythonSettings:
    """Settings found in a piece of Python. line: where they begin; call: name of the class that is called, empty for a
    dict; the rest as in `Settings`.
    """

    line: int
    form: str
    call: str = ""
    given: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    opaque: set[str] = field(default_factory=set)
    partial: bool = False
    notes: list[str] = field(default_factory=list)
    reward_functions: int | None = None
    adapters: bool | None = None
    script: dict[str, int] | None = None


def read(path: Path, text: str) -> list[_PythonSettings]:
    """All settings in a file, in order; UserError for one that is no Python."""
    source = notebook_source(path, text) if path.suffix == ".ipynb" else text
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UserError(f"{path}{line}: not valid Python; give the file that creates the GRPOConfig") from None
    names = constants(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and CONFIGS.fullmatch(_name(node.func))]
    found = [_of_call(node, names) for node in calls]
    if not found:
        found = [_of_dict(node, names) for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        found = [settings for settings in found if recognise(settings.given.keys() | settings.opaque)]
    _add_trainer(tree, names, found)
    return sorted(found, key=lambda settings: settings.line)


def notebook_source(path: Path, text: str) -> str:
    """The code cells of a notebook as one module, without the lines that are no Python (%, !)."""
    try:
        cells = json.loads(text)["cells"]
        code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path}: not a notebook of format 4; save it again in Jupyter") from None
    distinct = []
    for cell in code:
        lines = (cell if isinstance(cell, str) else "".join(map(str, cell))).split("\n")
        if any(line.startswith("%%") for line in lines):
            continue
        lines = [re.sub(r"^(\s*)[%!].*", r"\1pass", line) for line in lines]
        try:
            ast.parse("\n".join(lines))
        except (SyntaxError, ValueError):
            continue
        distinct += lines
    return "\n".join(distinct)


def _of_call(node: ast.Call, names: Mapping[str, Any]) -> _PythonSettings:
    name = _name(node.func)
    settings = _PythonSettings(node.lineno, f"the call {name}(…) in line {node.lineno}", name)
    for keyword in node.keywords:
        if keyword.arg is None:
            try:
                settings.given.update(value(keyword.value, names))
            except (NotLiteralError, TypeError, ValueError):
                settings.partial = True
                settings.notes.append(f"line {node.lineno}: the contents of ** are unknown, so no default is assumed")
            continue
        _take(settings, keyword.arg, keyword.value, names)
    if node.args:
        settings.partial = True
        settings.notes.append(f"line {node.lineno}: positional arguments are ignored, so no default is assumed")
    return settings


def _of_dict(node: ast.Dict, names: Mapping[str, Any]) -> _PythonSettings:
    settings = _PythonSettings(node.lineno, f"the dict in line {node.lineno}")
    for key, child in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            _take(settings, key.value, child, names)
    return settings


def _take(settings: _PythonSettings, key: str, node: ast.expr, names: Mapping[str, Any]) -> None:
    """Take one setting over, as an opaque one where it is no literal."""
    settings.lines[key] = node.lineno
    try:
        settings.given[key] = value(node, names)
    except (NotLiteralError, RecursionError):
        settings.opaque.add(key)


def _add_trainer(tree: ast.AST, names: Mapping[str, Any], calls: list[_PythonSettings]) -> None:
    """What the call of the trainer tells beside its config, where there is one such call: rewards and adapters."""
    trainers = [
        n for n in ast.walk(tree) if isinstance(n, ast.Call) and re.search("(?:GRPO|RLOO)Trainer$", _name(n.func))
    ]
    if len(trainers) != 1 or len(calls) != 1:
        return
    (settings,), keywords = calls, {keyword.arg: keyword.value for keyword in trainers[0].keywords}
    lists = {t.id: n.value for n in ast.walk(tree) if isinstance(n, ast.Assign) and isinstance(n.value, ast.List)
             for t in n.targets if isinstance(t, ast.Name)}  # fmt: skip
    functions = keywords.get("reward_funcs")
    if isinstance(functions, ast.Name):
        functions = lists.get(functions.id, functions)
    if isinstance(functions, ast.List) and not any(isinstance(element, ast.Starred) for element in functions.elts):
        settings.reward_functions = len(functions.elts)
    elif isinstance(functions, ast.Attribute | ast.Constant | ast.Lambda):
        settings.reward_functions = 1
    called = {_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    settings.script = _beside(tree, trainers[0], called)
    if "peft_config" in keywords:
        settings.adapters = not (
            isinstance(keywords["peft_config"], ast.Constant) and keywords["peft_config"].value is None
        )
    elif called & {"get_peft_model", "LoraConfig"} or "trained adapters" in settings.script:
        settings.adapters = True


def _beside(tree: ast.AST, trainer: ast.Call, called: set[str]) -> dict[str, int]:
    """What a script has beside its settings -> its line: "unsloth", imported; "env_mask", a key of what its rollouts
    return; arguments of its trainer, of _OF_ROLLOUTS; "load_dataset NAME", of data that it loads by a name; "frozen
    adapters" or "trained adapters", loaded as the model of the trainer; and "adapter dropout", of a LoraConfig."""
    keywords = {keyword.arg: keyword.value for keyword in trainer.keywords}
    told = {name: keywords[name].lineno for name in _OF_ROLLOUTS
            if name in keywords and not _is_none(keywords[name])}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if any(module.partition(".")[0] == "unsloth" for module in modules):
                told.setdefault("unsloth", node.lineno)
        elif isinstance(node, ast.Constant) and node.value == "env_mask":
            told.setdefault("env_mask", node.lineno)
    told |= _dropout_of_adapters(tree)
    model = keywords.get("model", trainer.args[0] if trainer.args else None)
    loaded = _loaded_adapters(tree, model)
    if loaded is not None and not called & _THAWS and _is_none(keywords.get("peft_config")) and not _sets_grad(tree):
        given = {keyword.arg: keyword.value for keyword in loaded.keywords}
        trainable = given.get("is_trainable", ast.Constant(False))
        if isinstance(trainable, ast.Constant) and None not in given and len(loaded.args) < 4:  # it is the fourth
            told["trained adapters" if trainable.value else "frozen adapters"] = loaded.lineno
    return {**_loaded_data(tree), **told}


def _loaded_data(tree: ast.AST) -> dict[str, int]:
    """ "load_dataset NAME" of each data set that is loaded by a name -> its line."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == LOADS and node.args]
    names = [(node.args[0].value, node.lineno) for node in calls if isinstance(node.args[0], ast.Constant)]
    return {f"{LOADS} {name}": line for name, line in names if isinstance(name, str)}


def _loaded_adapters(tree: ast.AST, model: ast.expr | None) -> ast.Call | None:
    """The call by which the model of a trainer is loaded as adapters."""
    if isinstance(model, ast.Name):
        made = [n.value for n in ast.walk(tree) if isinstance(n, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == model.id for t in n.targets)]  # fmt: skip
        model = max(made, key=lambda value: value.lineno, default=None)
    if not isinstance(model, ast.Call) or not isinstance(model.func, ast.Attribute):
        return None
    if model.func.attr != "from_pretrained" or not _SAVED_ADAPTERS.fullmatch(_name(model.func.value)):
        return None
    return model


def _sets_grad(tree: ast.AST) -> bool:
    """Whether something says by hand which parameters are trained."""
    return any(isinstance(n, ast.Attribute) and n.attr == "requires_grad" and isinstance(n.ctx, ast.Store)
               for n in ast.walk(tree))  # fmt: skip


def _dropout_of_adapters(tree: ast.AST) -> dict[str, int]:
    """The first line with a dropout above 0 of a LoraConfig, as _beside has it; empty without one."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "LoraConfig"]
    keywords = [keyword for node in calls for keyword in node.keywords if keyword.arg == "lora_dropout"]
    lines = [keyword.value.lineno for keyword in keywords if _is_above_0(keyword)]
    return {"adapter dropout": min(lines)} if lines else {}


def _is_above_0(keyword: ast.keyword) -> bool:
    """Whether the value of an argument is a number above 0."""
    number = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    return isinstance(number, int | float) and number > 0


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _name(node: ast.expr) -> str:
    """Last part of a dotted name; empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
