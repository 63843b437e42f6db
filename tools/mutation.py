"""Small edits of the syntax tree that `mutants` breaks the code by: each compiles.

Texts, annotations, messages of errors and logs are left alone: no test should fail of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SWAPS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGS = ("_log", "logging", "logger", "warnings")


@dataclass(frozen=True, slots=True)
class Mutant:
    """An edit: the bytes ``start`` to ``end`` of a file become ``new``."""

    file: str
    line: int
    kind: str
    old: str
    new: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """The edit for a reader; the same when lines before it come or go."""
        old, new = (_short(text) for text in (self.old, self.new))
        return f"`{self.file.removeprefix('shared/turnlog/')}` | {self.kind} | `{old}` | `{new}`"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, in order of the source."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for kind, node, new in _edits(ast.parse(source)):
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: S101 - of parsed source
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        old = source.encode()[start:end].decode()
        yield Mutant(file, node.lineno, kind, old, f"({new})" if isinstance(node, ast.expr) else new, start, end)


def _edits(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_left_alone(child):
                if isinstance(child, ast.stmt):
                    yield from _of_statement(child)
                elif isinstance(child, ast.expr):
                    yield from _of_expression(child)
                if not isinstance(child, ast.Raise):
                    yield from _edits(child)


def _is_left_alone(node: ast.AST) -> bool:
    """Return whether a node is text, a type, an import or a log line, of which no test should fail."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert() | ast.alias():
            return True
        case ast.AnnAssign(annotation=ast.Name("TypeAlias")) | ast.If(test=ast.Name("TYPE_CHECKING")):
            return True
        case ast.Expr(ast.Constant()):
            return True
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(owner)))):
            return owner in _LOGS
        case ast.Call(ast.Name("TypeVar" | "cast")) | ast.FunctionDef(name="__repr__"):
            return True
    return False


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    match node:
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "returns None", node, "return None"
        case ast.Raise():
            yield "raise removed", node, "pass"
        case ast.Expr(ast.Call()):
            yield "call removed", node, "pass"
        case ast.AugAssign():
            yield "change removed", node, "pass"
        case ast.Continue():
            yield "continue removed", node, "pass"
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            if not isinstance(test, ast.Constant):
                yield "condition turned", test, f"not ({ast.unparse(test)})"


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    match node:
        case ast.Compare(left, [operator], [right]):
            yield "comparison", node, ast.unparse(ast.Compare(left, [_FLIPS[type(operator)]()], [right]))
        case ast.BoolOp(operator, values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and, or", node, ast.unparse(ast.BoolOp(other, values))
            yield "condition dropped", node, ast.unparse(ast.BoolOp(operator, values[:-1]) if values[2:] else values[0])
        case ast.UnaryOp(ast.Not(), operand):
            yield "not removed", node, ast.unparse(operand)
        case ast.Constant(bool() as value):
            yield "constant", node, str(not value)
        case ast.Constant(int() as number):
            yield "constant", node, str(number + 1)
        case ast.BinOp(left, ast.Add() | ast.Sub() as operator, right) if _is_arithmetic(operator, left, right):
            other_sign = ast.Sub() if isinstance(operator, ast.Add) else ast.Add()
            yield "arithmetic", node, ast.unparse(ast.BinOp(left, other_sign, right))
        case ast.BinOp(left, ast.BitOr() as operator, right):
            yield "operand dropped", node, ast.unparse(left)
        case ast.IfExp(test, body, orelse):
            yield "condition turned", node, ast.unparse(ast.IfExp(test, orelse, body))
        case ast.Call():
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    if isinstance(node.func, ast.Name) and node.func.id in _SWAPS:
        yield "function", node.func, _SWAPS[node.func.id]
    names = [arg for arg in node.args if isinstance(arg, ast.Name | ast.Attribute)]
    if len(names) == len(node.args) == 2:
        yield "arguments swapped", node, ast.unparse(ast.Call(node.func, node.args[::-1], node.keywords))
    for at, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            rest = [*node.keywords[:at], *node.keywords[at + 1 :]]
            yield "keyword dropped", node, ast.unparse(ast.Call(node.func, node.args, rest))


def _is_arithmetic(operator: ast.operator, *operands: ast.expr) -> bool:
    """Return whether it is about numbers: sums may be of texts and lists, whose difference every test would see."""
    return isinstance(operator, ast.Sub) or any(
        isinstance(operand, ast.Constant) and isinstance(operand.value, int) for operand in operands
    )


def _short(text: str) -> str:
    line = re.sub(r"\s+", " ", text).replace("|", "\\|").replace("`", "'")
    return line if len(line) <= 90 else f"{line[:60]} ... {line[-25:]}"
