"""A JSON schema in the few words that fit into the cell of a table, with links to the types that it names."""

import json
from collections.abc import Iterable, Sequence

import msgspec

from gateway.asyncapi_types import Schema


class Piece(msgspec.Struct, frozen=True):
    text: str
    type: str = ""  # that the text names


def of(schema: Schema) -> list[Piece]:
    if schema.ref:
        return [Piece(schema.name, schema.name)]
    if schema.enum:
        return [Piece(" | ".join(json.dumps(one, ensure_ascii=False) for one in schema.enum))]
    if choices := schema.any_of or schema.one_of or schema.all_of:
        return _joined(choices, " or ")
    if schema.prefix_items:
        return [Piece("["), *_joined(schema.prefix_items, ", "), Piece("]")]
    if isinstance(schema.items, Schema):
        return [Piece("array of "), *of(schema.items)]
    if isinstance(schema.additional_properties, Schema):
        return [Piece("object of "), *of(schema.additional_properties)]
    return [Piece(_plain(schema))]


def _joined(schemas: Sequence[Schema], between: str) -> list[Piece]:
    pieces: Iterable[Piece] = [piece for one in schemas for piece in (Piece(between), *of(one))]
    return list(pieces)[1:]


def _plain(schema: Schema) -> str:
    name = "base64" if schema.content_encoding == "base64" else schema.type or "anything"
    match schema.minimum, schema.maximum:
        case None, None:
            return name
        case least, None:
            return f"{name} ≥ {least:g}"
        case None, most:
            return f"{name} ≤ {most:g}"
        case least, most:
            return f"{name}, {least:g} to {most:g}"
