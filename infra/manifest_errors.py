"""msgspec's message about a manifest, led by the key and followed by what that key may hold."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect

from schemas.manifest import Manifest

_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `(?P<of_key>key` in `)?\$(?P<where>.*)`)?", re.DOTALL)
_ANY, _ENTRY = "[...]", "[*]"  # how msgspec writes the value of a dict, whichever it is; and how we do, without dots


def explain(message: str, table: dict[str, Any]) -> str:
    """`table` is what was read; it tells which entry of a table is meant."""
    match = _MESSAGE.fullmatch(message)
    assert match is not None  # the pattern takes anything
    keys = [key for key in (match["where"] or "").replace(_ANY, _ENTRY).split(".") if key]
    node = _node(keys)
    if match["of_key"] and isinstance(node, inspect.DictType):
        node = node.key_type
    allowed = _describe(node)
    place = ".".join(_named(keys, table))
    return f"{place + ': ' if place else ''}{match['what']}{f' (allowed: {allowed})' if allowed else ''}"


def _node(keys: Iterable[str]) -> inspect.Type:
    node: inspect.Type = inspect.type_info(Manifest)
    for key in keys:
        node = _step(node, key)
    return node


def _step(node: inspect.Type, key: str) -> inspect.Type:
    name, index, _ = key.partition("[")
    if isinstance(node, inspect.StructType):
        node = next(field.type for field in node.fields if field.name == name)
    match node:
        case inspect.VarTupleType(item_type=item) if index:
            return item
        case inspect.DictType(value_type=value) if index:
            return value
        case _:
            return node


def _named(keys: list[str], table: dict[str, Any]) -> list[str]:
    """The keys, with the name of the first faulty entry where msgspec has none."""
    named: list[str] = []
    at: Any = table
    for number, key in enumerate(keys):
        name, index, rest = key.partition("[")
        at = at[name]
        if key.endswith(_ENTRY):
            entry = _faulty(at, _node(keys[: number + 1]))
            named += [name, entry]
            at = at[entry]
        else:
            named.append(key)
            at = at[int(rest.rstrip("]"))] if index else at
    return named


def _faulty(entries: dict[str, Any], node: inspect.Type) -> str:
    kind = node.cls if isinstance(node, inspect.StructType) else str
    for name, value in entries.items():
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return name
    raise AssertionError("msgspec refused an entry that each for itself are good")


def _describe(node: inspect.Type) -> str:
    match node:
        case inspect.StructType(fields=fields):
            return "keys " + ", ".join(field.name for field in fields)
        case inspect.LiteralType(values=values):
            return ", ".join(str(value) for value in values)
        case inspect.VarTupleType(item_type=item):
            return f"a list of {_describe(item)}"
        case inspect.DictType(key_type=key):
            return f"a table of {_describe(key)}"
        case inspect.IntType():
            return "an integer" + _bounds(node)
        case inspect.FloatType():
            return "a number" + _bounds(node)
        case inspect.StrType(pattern=pattern):
            return f"text matching {pattern}" if pattern else "text"
        case _:
            return ""


def _bounds(node: inspect.IntType | inspect.FloatType) -> str:
    limits = {"at least": node.ge, "over": node.gt, "at most": node.le, "a multiple of": node.multiple_of}
    return "".join(f", {word} {limit}" for word, limit in limits.items() if limit is not None)
