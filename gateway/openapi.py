"""The OpenAPI document: every route, every field."""

from typing import Any

from gateway.desk import TIMEOUT_HEADER
from gateway.health import Readiness
from gateway.openapi_words import FILE, FILES, Schemas, Words, answer, operation, parameter, raw, text
from gateway.trail import RequestTrail
from infra.sound_file import MEDIA_TYPES
from schemas.errors import ErrorBody
from schemas.files import FileDeleted, FileList, FileObject, UploadRequest
from schemas.openai_audio import (
    SpeechDelta,
    SpeechDone,
    SpeechRequest,
    TranscriptDelta,
    TranscriptDone,
    Transcription,
    TranscriptionRequest,
    TranscriptionVerbose,
)
from schemas.openai_images import ImageCompleted, ImageProgress, ImageRequest, ImagesReply
from schemas.openai_reply import ChatCompletion, ChatCompletionChunk, Model, ModelList
from schemas.openai_request import ChatRequest

VERSION = "0.1.0"
_TYPES: list[Any] = [
    ChatRequest,
    ChatCompletion,
    ChatCompletionChunk,
    ErrorBody,
    FileDeleted,
    FileList,
    FileObject,
    UploadRequest,
    ImageRequest,
    ImagesReply,
    ImageCompleted,
    ImageProgress,
    SpeechRequest,
    SpeechDelta,
    SpeechDone,
    TranscriptionRequest,
    Transcription,
    TranscriptionVerbose,
    TranscriptDelta,
    TranscriptDone,
    Model,
    ModelList,
    Readiness,
    RequestTrail,
]
_EXAMPLE = {
    "model": "smollm2-135m",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 64,
    "stream": False,
}
_SOUNDS = tuple(MEDIA_TYPES.values())
_STREAMED = "with `stream: true`, server-sent events. An error in the middle of a stream is an event that ends it"
_TIMEOUT = parameter(TIMEOUT_HEADER, "header", type="number", exclusiveMinimum=0) | {
    "description": "Seconds the whole answer may take."
}
_WORK = (400, 404, 408, 413, 415, 429, 500, 503, 504)


def document() -> Words:
    """OpenAPI 3.1, ready to be written as JSON."""
    schemas = Schemas(_TYPES)
    paths = (
        _chat(schemas) | _images(schemas) | _audio(schemas) | _files(schemas) | _models(schemas) | _operation(schemas)
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Triptych",
            "version": VERSION,
            "description": "OpenAI's API for text, pictures and sound over an event pipeline; any OpenAI SDK works.",
        },
        "externalDocs": {"description": "The topics behind it", "url": "/asyncapi"},
        "paths": paths,
        "components": {"schemas": schemas.components},
    }


def _chat(schemas: Schemas) -> Words:
    content = schemas.json(ChatCompletion) | schemas.events(ChatCompletionChunk)
    ok = answer(f"The answer; {_STREAMED}, and after which no `[DONE]` comes.", content)
    ok["headers"] = {name: {"schema": {"type": "string"}} for name in ("x-request-id", "x-triptych-request-id")}
    body = schemas.json(ChatRequest)
    body["application/json"]["example"] = _EXAMPLE
    create = operation(
        "createChatCompletion",
        "Chat",
        "Create a chat completion; media in its messages, and in its answer",
        ok,
        errors=schemas.errors(*_WORK),
        body=body,
        parameters=[_TIMEOUT],
    )
    return {"/v1/chat/completions": {"post": create}}


def _images(schemas: Schemas) -> Words:
    ok = answer(
        f"The pictures; {_STREAMED}.", schemas.json(ImagesReply) | schemas.events(ImageCompleted, ImageProgress)
    )
    rest: Words = {"errors": schemas.errors(*_WORK), "parameters": [_TIMEOUT]}
    create = operation("createImage", "Images", "Draw", ok, body=schemas.json(ImageRequest), **rest)
    form = schemas.form(ImageRequest, image=FILES)
    edit = operation("editImage", "Images", "Draw what becomes of pictures", ok, body=form, **rest)
    return {"/v1/images/generations": {"post": create}, "/v1/images/edits": {"post": edit}}


def _audio(schemas: Schemas) -> Words:
    rest: Words = {"errors": schemas.errors(*_WORK), "parameters": [_TIMEOUT]}
    sound = answer(
        "The sound as it is spoken, wav and flac when complete; with `stream_format: sse`, events.",
        raw(*_SOUNDS) | schemas.events(SpeechDelta, SpeechDone),
    )
    speak = operation("createSpeech", "Audio", "Speak a text", sound, body=schemas.json(SpeechRequest), **rest)
    forms = text("text/plain", "text/vtt", "application/x-subrip")
    heard = schemas.json(Transcription, TranscriptionVerbose) | forms
    words = answer(f"What was heard; {_STREAMED}.", heard | schemas.events(TranscriptDelta, TranscriptDone))
    form = schemas.form(TranscriptionRequest, file=FILE)
    hear = operation("createTranscription", "Audio", "Write down what is said", words, body=form, **rest)
    return {"/v1/audio/speech": {"post": speak}, "/v1/audio/transcriptions": {"post": hear}}


def _files(schemas: Schemas) -> Words:
    one = answer("The file", schemas.json(FileObject))
    listed = answer("Newest first", schemas.json(FileList))
    deleted = answer("It is gone", schemas.json(FileDeleted))
    content = answer("Its bytes", raw("application/octet-stream"))
    by_id: Words = {"errors": schemas.errors(404), "parameters": [parameter("file_id")]}
    body = schemas.json(UploadRequest) | {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file", "purpose"],
                "properties": {"file": FILE, "purpose": {"enum": ["user_data", "vision"]}},
            }
        }
    }
    summary = "Upload a file; announced as JSON, it goes straight to the object store"
    create = operation(
        "createFile", "Files", summary, one, errors=schemas.errors(400, 408, 413, 415, 429, 503), body=body
    )
    summary = "What was uploaded with your key; needs one of your own, not one that everybody has"
    listing = operation("listFiles", "Files", summary, listed, errors=schemas.errors(400, 401))
    return {
        "/v1/files": {"post": create, "get": listing},
        "/v1/files/{file_id}": {
            "get": operation("retrieveFile", "Files", "One of them", one, **by_id),
            "delete": operation("deleteFile", "Files", "Forget it", deleted, **by_id),
        },
        "/v1/files/{file_id}/content": {"get": operation("downloadFile", "Files", "Its bytes", content, **by_id)},
        **_links(schemas),
    }


def _links(schemas: Schemas) -> Words:
    """What the URLs in answers lead to. Clients take them whole."""
    given = [parameter("token")]
    output = answer("Its bytes", raw("application/octet-stream"))
    uploaded = answer("The file", schemas.json(FileObject))
    rest: Words = {"errors": schemas.errors(404, 503), "parameters": given}
    get = operation("openOutput", "Links", "What a link opens", output, **rest)
    head = operation("lookAtOutput", "Links", "Its headers", answer("It is there", {}), **rest)
    body = raw("application/octet-stream")
    put = operation(
        "fillUpload",
        "Links",
        "Exactly the bytes that were announced",
        uploaded,
        errors=schemas.errors(400, 404, 413, 429),
        parameters=given,
        body=body,
    )
    return {"/v1/outputs/{token}": {"get": get, "head": head}, "/v1/uploads/{token}": {"put": put}}


def _models(schemas: Schemas) -> Words:
    listed = answer("What can be asked for", schemas.json(ModelList))
    one = answer("What it can do", schemas.json(Model))
    by_name: Words = {"errors": schemas.errors(404), "parameters": [parameter("model")]}
    return {
        "/v1/models": {"get": operation("listModels", "Models", "The models served here", listed)},
        "/v1/models/{model}": {"get": operation("retrieveModel", "Models", "One of them", one, **by_name)},
    }


def _operation(schemas: Schemas) -> Words:
    tag = "Operation"
    alive = answer("It is", {"application/json": {"schema": {"type": "object"}}})
    ready = operation("readyz", tag, "Everything needed to serve is there", answer("It is", schemas.json(Readiness)))
    ready["responses"]["503"] = answer("Something is not; `checks` says what", schemas.json(Readiness))
    trail = operation(
        "retrieveRequest",
        tag,
        "What happened to a request, and why it went where it went",
        answer("Its way", schemas.json(RequestTrail)),
        errors=schemas.errors(404),
        parameters=[parameter("request_id")],
    )
    metrics = operation("metrics", tag, "Metrics", answer("Prometheus text format", text("text/plain")))
    return {
        "/v1/requests/{request_id}": {"get": trail},
        "/healthz": {"get": operation("healthz", tag, "The process is alive", alive)},
        "/readyz": {"get": ready},
        "/metrics": {"get": metrics},
    }
