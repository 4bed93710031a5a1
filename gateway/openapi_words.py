"""How an OpenAPI document says things. Schemas come from the wire types by msgspec, with their ranges and tags."""

from collections.abc import Sequence
from typing import Any

import msgspec

from schemas.errors import FAULTS, ErrorBody

Words = dict[str, Any]


class Schemas:
    """The types of the document, by reference."""

    def __init__(self, types: Sequence[Any]) -> None:
        refs, self.components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        self._refs = dict(zip(types, refs, strict=True))

    def json(self, *kinds: Any) -> Words:
        """A body of one of these types."""
        return {"application/json": {"schema": self._one_of(kinds)}}

    def events(self, *kinds: Any) -> Words:
        """Server-sent events of these types."""
        return {"text/event-stream": {"schema": self._one_of(kinds)}}

    def _one_of(self, kinds: Sequence[Any]) -> Words:
        refs = [self._refs[kind] for kind in kinds]
        return refs[0] if len(refs) == 1 else {"oneOf": refs}

    def form(self, kind: Any, **files: Words) -> Words:
        """A form with the fields of this type, and files beside them."""
        of_files = {"type": "object", "required": list(files), "properties": files}
        return {"multipart/form-data": {"schema": {"allOf": [self._refs[kind], of_files]}}}

    def errors(self, *statuses: int) -> Words:
        return {
            str(status): {
                "description": "code: " + ", ".join(code for code, fault in FAULTS.items() if fault.status == status),
                "content": self.json(ErrorBody),
            }
            for status in statuses
        }


FILE: Words = {"type": "string", "format": "binary"}
FILES: Words = {"type": "array", "items": FILE, "minItems": 1}


def raw(*media_types: str) -> Words:
    """Bytes of these types."""
    return {one: {"schema": FILE} for one in media_types}


def text(*media_types: str) -> Words:
    return {one: {"schema": {"type": "string"}} for one in media_types}


def answer(description: str, content: Words) -> Words:
    return {"description": description, "content": content}


def parameter(name: str, where: str = "path", **schema: Any) -> Words:
    return {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"} | schema}


def operation(
    operation_id: str,
    tag: str,
    summary: str,
    ok: Words,
    *,
    errors: Words | None = None,
    body: Words | None = None,
    parameters: Sequence[Words] = (),
) -> Words:
    found: Words = {
        "operationId": operation_id,
        "tags": [tag],
        "summary": summary,
        "responses": {"200": ok, **(errors or {})},
    }
    if body is not None:
        found["requestBody"] = {"required": True, "content": body}
    if parameters:
        found["parameters"] = list(parameters)
    return found
