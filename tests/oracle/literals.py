"""Python's literals as scripts write them: `Heartbeat(group_id=G, members=[{member_id: 'm'}])`.

A name stands for itself, unless `name` knows better, so that structs need no quotes. A call of an API is its request.

House rule: nothing is evaluated; an expression has only the forms below.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, cast

from protocol.messages import API_KEYS
from tests.support.requests import request

PARSING = Lock()
"""Before Python 3.11.5 all threads share the parser's depth, so that two that parse at once get a SystemError. It takes
a garbage collection in the midst of one, with a callback: Hypothesis has one.
"""


def parsed(arguments: str) -> ast.Call:
    """A call with these arguments."""
    with PARSING:
        return cast("ast.Call", ast.parse(f"_({arguments})", mode="eval").body)


class Literals:
    """Reads expressions. functions: those that an expression may call."""

    functions: dict[str, Callable[..., Any]]

    def name(self, name: str) -> Any:
        """What a name stands for."""
        return name

    def text(self, text: str) -> str:
        """What a text stands for."""
        return text

    def attribute(self, name: str, attribute: str) -> Any:
        """What `name.attribute` stands for."""
        raise ValueError(f"{name}.{attribute}")

    def called(self, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        """What a call stands for."""
        return request(name, **named) if name in API_KEYS else self.functions[name](*arguments, **named)

    def named(self, call: ast.Call) -> dict[str, Any]:
        """The named arguments of a call."""
        return {str(each.arg): self.value(each.value) for each in call.keywords}

    def value(self, node: ast.expr) -> Any:
        """What an expression stands for."""
        match node:
            case ast.Name(name):
                return self.name(name)
            case ast.Constant(str(text)):
                return self.text(text)
            case ast.List(entries):
                return [self.value(entry) for entry in entries]
            case ast.Tuple(entries):
                return tuple(self.value(entry) for entry in entries)
            case ast.Dict(keys, values):
                return {
                    self.value(cast("ast.expr", key)): self.value(value)
                    for key, value in zip(keys, values, strict=True)
                }
            case ast.BinOp(left, ast.Mult(), right):
                return self.value(left) * self.value(right)
            case ast.BinOp(left, ast.Add(), right):
                return self.value(left) + self.value(right)
            case ast.Attribute(ast.Name(name), attribute):
                return self.attribute(name, attribute)
            case ast.Call(ast.Name(name)):
                return self.called(name, [self.value(each) for each in node.args], self.named(node))
        return ast.literal_eval(node)
