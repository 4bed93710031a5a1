"""`POST /v1/images/generations` and `/v1/images/edits`: a chat of one message, and the pictures of its answer."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Send

from gateway import capabilities, decode, form
from gateway.answer import Answer, Streamed, Whole, answering
from gateway.capabilities import Item
from gateway.chat import Chat, ChatExchange
from gateway.desk import Caller, Timeouts
from gateway.errors import unsupported
from gateway.files import FORM_OVERHEAD_BYTES
from gateway.images_reply import ImagesBody, ImagesChunks, ImagesHead
from schemas.errors import TriptychError
from schemas.openai_images import UNSUPPORTED, ImageRequest
from schemas.openai_parts import FilePart, FileSource, MediaPart, TextPart
from schemas.openai_request import ChatRequest, ImageOut, UserMessage
from topics import plan
from topics.intake.faults import MediaFault
from topics.intake.sniff import MediaType, check_kind
from topics.intake.uploads import Uploads

MOST_IMAGES = 16
EDIT_FORM = form.Rules(("image", "image[]", "mask"), MOST_IMAGES, most_field_bytes=128 << 10)
# An edit's images are uploads that only this request knows of.
OWNER = "images.edits"
# OpenAI's words for how much work a picture is worth, in steps.
_STEPS: Mapping[str, int] = {"low": 10, "medium": 25, "standard": 25, "high": 50, "hd": 50}

_decoder = msgspec.json.Decoder(ImageRequest)


class Images:
    """Everything pictures need; one per gateway."""

    def __init__(self, chat: Chat, uploads: Uploads) -> None:
        self.chat = chat
        self.uploads = uploads

    async def receive(self, request: Request[Any, Any, Any]) -> tuple[ImageRequest, list[MediaPart]]:
        """The form of an edit, with its images in the store. Raises TriptychError: a 400, or rate_limited."""
        content_type = request.headers.get("content-type", "")
        async with self.uploads.receiving(), aclosing(request.stream()) as body:
            sent = await form.read(body, content_type, self.uploads.store, EDIT_FORM)
        asked = decode.texts(form.values(sent), ImageRequest)
        if any(one.field == "mask" for one in sent.files):
            raise unsupported("mask")
        if not sent.files:
            raise TriptychError("missing_parameter", "Missing required parameter: 'image'.", param="image")
        return asked, [await self._uploaded(one, number) for number, one in enumerate(sent.files)]

    async def _uploaded(self, file: form.Sent, number: int) -> FilePart:
        try:
            check_kind(MediaType(file.blob.media_type), "image")
        except MediaFault as fault:
            raise fault.at(f"image[{number}]") from fault
        ttl_s = self.uploads.limits.ttl_s
        record = await self.uploads.register(file.blob, file.filename, "vision", OWNER, ttl_s)
        return FilePart(FileSource(file_id=record.id))

    async def answer(
        self, request: ImageRequest, images: Sequence[MediaPart], caller: Caller, receive: Receive, send: Send
    ) -> None:
        """As Chat.answer."""
        manifest = self.chat.desk.models.get(request.model).manifest
        capabilities.need(manifest, "image_edit" if images else "image_out", "model")
        _check(request)
        items = [Item(one, f"image[{number}]") for number, one in enumerate(images)]
        chat_request = _as_chat(request, images)
        plan.image_options(chat_request, "size")
        exchange = self.chat.begin(chat_request, caller, "img", items)
        exchange.answer = _answer(exchange, request, bool(images), send)
        await self.chat.desk.attend(exchange, receive)


def _check(request: ImageRequest) -> None:
    """Raises TriptychError: a 400."""
    capabilities.refuse(request, UNSUPPORTED)
    if request.partial_images:
        raise unsupported("partial_images", "only 0 is possible")
    if request.background == "transparent":
        raise unsupported("background", "pictures are opaque")


def _as_chat(request: ImageRequest, images: Sequence[MediaPart]) -> ChatRequest:
    content: list[Any] = [*images, TextPart(request.prompt)]
    compression = request.output_compression
    return ChatRequest(
        model=request.model,
        messages=[UserMessage(content if images else request.prompt)],
        n=request.n,
        seed=request.seed,
        stream=request.stream,
        user=request.user,
        safety_identifier=request.safety_identifier,
        image=ImageOut(
            format=request.output_format,
            size=request.size,
            steps=request.steps or _STEPS.get(request.quality or ""),
            guidance=request.guidance,
            seed=request.seed,
            quality=None if compression is None else max(1, compression),
            response_format=request.response_format or "b64_json",
        ),
    )


def _answer(exchange: ChatExchange, request: ImageRequest, edits: bool, send: Send) -> Answer:
    created = int(exchange.head.created_at)
    head = ImagesHead(created, request.n or 1, edits, request.output_format or "png", request.quality or "auto")
    if request.stream:
        return Streamed(send, ImagesChunks(head), exchange.first_told)
    return Whole(send, ImagesBody(head), exchange.first_told, exchange.route_of)


def routes(images: Images, timeouts: Timeouts) -> list[HTTPRouteHandler]:
    @post("/v1/images/generations")
    async def generate(request: Request[Any, Any, Any]) -> ASGIApp:
        asked = decode.json_body(await decode.whole(request), request.headers.get("content-type", ""), _decoder)
        caller = timeouts.of(request)
        return answering(partial(images.answer, asked, (), caller))

    @post("/v1/images/edits", request_max_body_size=images.uploads.limits.most_bytes + FORM_OVERHEAD_BYTES)
    async def edit(request: Request[Any, Any, Any]) -> ASGIApp:
        caller = timeouts.of(request)
        asked, given = await images.receive(request)
        return answering(partial(images.answer, asked, given, caller))

    return [generate, edit]
