"""`POST /v1/chat/completions`: what is asked of the pools, and how the answer is told."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Send

from gateway import admit, capabilities, decode, transcripts
from gateway.answer import Answer, Stream, Streamed, Whole, answering
from gateway.capabilities import Item
from gateway.delivery import Delivery
from gateway.desk import Caller, Desk, Exchange, Timeouts
from gateway.media import Media
from gateway.models import Served
from gateway.omni import ChatBacking
from gateway.omni_reply import OmniBody, OmniChunks, Speech
from gateway.parts import Parts
from gateway.reply import Body, Chunks, ReplyHead
from gateway.transcripts import Transcripts
from infra.ports import Subscription
from schemas.jobs import GenerateJob
from schemas.media import Output
from schemas.openai_request import ChatRequest
from topics import names, plan
from topics.headers import Headers

PATH = "/v1/chat/completions"


class Chat:
    """Everything a chat completion needs; one per gateway."""

    def __init__(self, desk: Desk, media: Media, delivery: Delivery, spoken: Transcripts) -> None:
        self.desk = desk
        self.media = media
        self.delivery = delivery
        self.spoken = spoken

    async def answer(self, request: ChatRequest, caller: Caller, receive: Receive, send: Send) -> None:
        """Answer it, whatever happens. Returns early when the client has gone; the work is cancelled then.

        Raises:
            TriptychError: model_not_found or a 400, before anything has been done or sent.
        """
        exchange = self.begin(request, caller, "chatcmpl")
        exchange.answer = _answer(exchange, send)
        await self.desk.attend(exchange, receive)

    def begin(
        self, request: ChatRequest, caller: Caller, prefix: str, items: Sequence[Item] | None = None
    ) -> "ChatExchange":
        """`items`: the media of the messages, where they have other names than their places in these.

        Raises:
            TriptychError: model_not_found or a 400.
        """
        served = self.desk.models.get(request.model)
        admit.check(request, served.manifest, served.renderer.vocab_size)
        if items is None:
            items = capabilities.items_of(request.messages)
        capabilities.check(request, items, served.manifest)
        return ChatExchange(self, served, request, items, caller, prefix)


class ChatExchange(Exchange):
    """One admitted chat completion, or what comes down to one."""

    def __init__(
        self, chat: Chat, served: Served, request: ChatRequest, items: Sequence[Item], caller: Caller, prefix: str
    ) -> None:
        super().__init__(chat.desk, served, caller, prefix, request.streamed)
        self.request = request
        self._chat = chat
        self._items = items
        self._outputs: Sequence[Output] = ()
        self.speech: Speech | None = None
        if served.codes or request.speaks:
            self._plan_outputs()

    @property
    def has_parts(self) -> bool:
        """Its answer may have pictures in it, or be spoken."""
        return bool(self._outputs)

    def _plan_outputs(self) -> None:
        request, manifest = self.request, self.served.manifest
        voice = capabilities.voice_of(manifest, request.voice, "audio.voice") if request.speaks else ""
        self._outputs = plan.outputs(request, manifest, self.served.codes, voice)
        if request.speaks:
            audio_id = "audio_" + self.head.request_id.rpartition("-")[2]
            self.speech = Speech(audio_id, int(self.head.created_at) + transcripts.EXPIRES_S)

    def stream(self, main: Subscription) -> AbstractAsyncContextManager[Stream]:
        if not self.has_parts:
            return nullcontext(main)
        chat, image = self._chat, self.request.image
        urls_from = None if image is not None and image.response_format == "b64_json" else self.caller.origin
        backing = ChatBacking(chat.desk, chat.delivery, chat.spoken, self.head, self.trail, self.speech, urls_from)
        parts = Parts(self.head.request_id, main, backing)
        self.needs.follow(parts)
        return parts

    async def work(self, stream: Stream) -> None:
        if transcripts.refers(self.request.messages):
            messages = await self._chat.spoken.put_in(self.request.messages)
            self.request = msgspec.structs.replace(self.request, messages=messages)
        headers = [*self.caller.headers, *plan.headers(self.request)]
        job = await self._with_media(headers) if self._items else await self._of_text()
        if job is None:
            await self.answer.pass_on(stream)
            return
        self.sent = True
        session = self.request.user or self.request.safety_identifier or ""
        async with self.served.pool.sent(job, headers, session) as placed:
            self.trail.prompt_tokens = len(job.prompt_ids)
            self.trail.placed(placed.decision)
            await self.answer.pass_on(stream)

    async def _of_text(self) -> GenerateJob:
        served, request = self.served, self.request
        prompt_ids = await served.renderer.render(request.messages, served.context_tokens)
        max_tokens = admit.room(request, len(prompt_ids), served.context_tokens)
        return plan.build(self.head, request, prompt_ids, max_tokens, self._outputs, served.manifest.sampling)

    async def _with_media(self, headers: Headers) -> GenerateJob | None:
        """The job; None when encoders have been asked, and the last of them sends it."""
        media = self._chat.media
        self.trail.media_items = len(self._items)
        prepared = await media.prepare(self.head, self.served, self.request, self._items, self._outputs)
        self.trail.media_encoded = len({job.slot.param for job in prepared.missing})  # a video may be two jobs
        if prepared.ready is None:
            self.sent = True
            for pool in {job.slot.pool for job in prepared.missing}:
                slots = [job.slot for job in prepared.missing if job.slot.pool == pool]
                self.needs.ask(names.encode(pool), partial(media.lacks, slots))
            await media.send(prepared.missing, headers)
        return prepared.ready


def reply_head(exchange: Exchange) -> ReplyHead:
    """What all parts of the answer repeat."""
    engine = exchange.served.pool.engine
    fingerprint = f"triptych-{engine}" if engine else None  # made-up answers (stub, sim) say so of themselves
    head = exchange.head
    return ReplyHead(head.request_id, int(head.created_at), exchange.served.manifest.id, fingerprint)


def _answer(exchange: ChatExchange, send: Send) -> Answer:
    head, request = reply_head(exchange), exchange.request
    if request.streamed:
        chunks = (
            OmniChunks(head, request.include_usage, exchange.speech)
            if exchange.has_parts
            else Chunks(head, request.include_usage)
        )
        return Streamed(send, chunks, exchange.first_told)
    n = request.n or 1
    body = OmniBody(head, n, exchange.speech) if exchange.has_parts else Body(head, n)
    return Whole(send, body, exchange.first_told, exchange.route_of)


def routes(chat: Chat, timeouts: Timeouts) -> list[HTTPRouteHandler]:
    @post(PATH)
    async def create(request: Request[Any, Any, Any]) -> ASGIApp:
        asked = decode.chat_request(await decode.whole(request), request.headers.get("content-type", ""))
        caller = timeouts.of(request)
        return answering(partial(chat.answer, asked, caller))

    return [create]
