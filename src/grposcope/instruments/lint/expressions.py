"""Values of Python expressions that need no code to run: literals, names bound once to such values, and arithmetic."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class NotLiteralError(Exception):
    """An expression whose value only running the code would tell."""


def value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression; `names`: values of the names it may use. Raises NotLiteralError."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(value(node.operand, names))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        left_value, right = _number(value(node.left, names)), _number(value(node.right, names))
        try:
            return OPERATIONS[type(node.op)](left_value, right)
        except (ArithmeticError, ValueError):
            raise NotLiteralError from None
    if isinstance(node, ast.List | ast.Tuple):
        return [value(child, names) for child in node.elts]
    if isinstance(node, ast.Dict):
        if any(key is None for key in node.keys):
            raise NotLiteralError
        return {
            value(key, names): value(child, names) for key, child in zip(node.keys, node.values, strict=True) if key
        }
    raise NotLiteralError


def _number(content: Any) -> float:
    if isinstance(content, bool) or not isinstance(content, int | float):
        raise NotLiteralError
    return content


def constants(tree: ast.AST) -> dict[str, Any]:
    """Names that a module binds exactly once, and to a value that `value` can tell."""
    bound: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = bound.get(node.id, 0) + 1
        elif isinstance(node, ast.arg):
            bound[node.arg] = bound.get(node.arg, 0) + 1
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(node, ast.AnnAssign):
            target = node.target
        if (
            not isinstance(target, ast.Name)
            or bound[target.id] != 1
            or not isinstance(node, ast.Assign | ast.AnnAssign)
        ):
            continue
        if node.value is not None:
            try:
                names[target.id] = value(node.value, names)
            except (NotLiteralError, RecursionError):
                continue
    return names
