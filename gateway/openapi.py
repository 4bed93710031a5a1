"""The OpenAPI document. Schemas come from the wire types by msgspec itself, which keeps their ranges and tags."""

from typing import Any

import msgspec

from gateway.desk import TIMEOUT_HEADER
from gateway.health import Readiness
from gateway.trail import RequestTrail
from schemas.errors import FAULTS, ErrorBody
from schemas.openai_reply import ChatCompletion, ChatCompletionChunk, Model, ModelList
from schemas.openai_request import ChatRequest

VERSION = "0.1.0"
_TYPES = (ChatRequest, ChatCompletion, ChatCompletionChunk, ErrorBody, Model, ModelList, Readiness, RequestTrail)

_EXAMPLE = {
    "model": "smollm2-135m",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 64,
    "stream": False,
}


def document() -> dict[str, Any]:
    """OpenAPI 3.1, ready to be written as JSON."""
    refs, components = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    ref = dict(zip((one.__name__ for one in _TYPES), refs, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Triptych",
            "version": VERSION,
            "description": "OpenAI's chat completions over an event pipeline; any OpenAI SDK works.",
        },
        "paths": {
            "/v1/chat/completions": {"post": _chat(ref)},
            "/v1/models": {"get": _simple("listModels", "Models", "The models served here", ref["ModelList"])},
            "/v1/models/{model}": {"get": _model(ref)},
            "/v1/requests/{request_id}": {"get": _trail(ref)},
            "/healthz": {"get": _simple("healthz", "Operation", "The process is alive", {"type": "object"})},
            "/readyz": {"get": _ready(ref)},
            "/metrics": {"get": _metrics()},
        },
        "components": {"schemas": components},
    }


def _chat(ref: dict[str, Any]) -> dict[str, Any]:
    answer = {
        "description": "The answer; with `stream: true`, server-sent events, each a chunk, then `[DONE]`. "
        "An error in the middle of a stream is an event that holds `error`, and ends it.",
        "headers": {"x-request-id": {"schema": {"type": "string"}}},
        "content": {
            "application/json": {"schema": ref["ChatCompletion"]},
            "text/event-stream": {"schema": ref["ChatCompletionChunk"]},
        },
    }
    return {
        "operationId": "createChatCompletion",
        "tags": ["Chat"],
        "summary": "Create a chat completion",
        "parameters": [
            {
                "name": TIMEOUT_HEADER,
                "in": "header",
                "description": "Seconds the whole answer may take.",
                "schema": {"type": "number", "exclusiveMinimum": 0},
            }
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ref["ChatRequest"], "example": _EXAMPLE}},
        },
        "responses": {"200": answer, **_errors(ref, 400, 404, 413, 415, 429, 500, 503, 504)},
    }


def _trail(ref: dict[str, Any]) -> dict[str, Any]:
    summary = "What happened to a request, and why it went where it went"
    operation = _simple("retrieveRequest", "Operation", summary, ref["RequestTrail"])
    operation["parameters"] = [{"name": "request_id", "in": "path", "required": True, "schema": {"type": "string"}}]
    operation["responses"] |= _errors(ref, 404)
    return operation


def _model(ref: dict[str, Any]) -> dict[str, Any]:
    operation = _simple("retrieveModel", "Models", "One of them", ref["Model"])
    operation["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
    operation["responses"] |= _errors(ref, 404)
    return operation


def _ready(ref: dict[str, Any]) -> dict[str, Any]:
    operation = _simple("readyz", "Operation", "Everything needed to serve is there", ref["Readiness"])
    operation["responses"]["503"] = _json("Something is not; `checks` says what", ref["Readiness"])
    return operation


def _metrics() -> dict[str, Any]:
    page = {"description": "Prometheus text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {"operationId": "metrics", "tags": ["Operation"], "summary": "Metrics", "responses": {"200": page}}


def _simple(operation_id: str, tag: str, summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "tags": [tag],
        "summary": summary,
        "responses": {"200": _json("OK", schema)},
    }


def _errors(ref: dict[str, Any], *statuses: int) -> dict[str, Any]:
    return {
        str(status): _json(
            "code: " + ", ".join(code for code, fault in FAULTS.items() if fault.status == status), ref["ErrorBody"]
        )
        for status in statuses
    }


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
