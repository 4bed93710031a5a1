"""`POST /v1/chat/completions`: one request from decoded body to last byte."""

import asyncio
import logging
import uuid
from collections.abc import Mapping
from contextlib import closing

import msgspec
from litestar.types import Receive, Send

from gateway import admit, errors
from gateway.answer import Answer, Streamed, Whole
from gateway.errors import Headers
from gateway.exchange import RETRY_AFTER_S, Cause, Interrupt, Interrupted, OpenRequests, watch
from gateway.models import Served, ServedModels
from gateway.reply import Body, Chunks, ReplyHead
from gateway.trail import Trails
from infra.clock import Clock
from infra.metrics import Metrics
from infra.ports import Follower, Results, Subscription
from schemas.errors import Code, TriptychError
from schemas.events import Cancelled, Failed, Finished
from schemas.jobs import Head
from schemas.openai_request import ChatRequest
from topics import plan

log = logging.getLogger(__name__)

TIMEOUT_HEADER = "x-request-timeout-s"
# How long the last word about a request (its end, its cancellation) may take to reach Redis and come back.
LAST_WORD_S = 3.0

_LAST_WORDS: Mapping[Cause, tuple[Code, str]] = {
    "deadline": ("deadline_exceeded", "The request's deadline passed before its answer was complete."),
    "stopping": ("overloaded", "The gateway is shutting down; please try again."),
}


class Timeouts(msgspec.Struct, frozen=True):
    """How long a request may take: when its header does not say, and at most."""

    default_s: float
    most_s: float

    def read(self, header: str | None) -> float:
        """Raises TriptychError: invalid_request, when the header is no number of seconds in range."""
        if header is None:
            return self.default_s
        try:
            seconds = float(header)
        except ValueError:
            seconds = 0
        if not 0 < seconds <= self.most_s:
            raise TriptychError(
                "invalid_request",
                f"Invalid value for the header '{TIMEOUT_HEADER}': expected seconds, more than 0 and at most "
                f"{self.most_s:g}.",
                param=TIMEOUT_HEADER,
            )
        return seconds


class Caller(msgspec.Struct, frozen=True):
    """What the HTTP request says beside its body."""

    request_id: str  # the `x-request-id` of the response; ours for the work itself is the answer's id
    timeout_s: float
    traceparent: str = ""


class Chat:
    """Everything a chat completion needs; one per gateway."""

    def __init__(
        self,
        gateway_id: str,
        models: ServedModels,
        follower: Follower,
        results: Results,
        open_requests: OpenRequests,
        trails: Trails,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.gateway_id = gateway_id
        self.models = models
        self.follower = follower
        self.results = results
        self.trails = trails
        self.metrics = metrics
        self.clock = clock
        self._open = open_requests

    async def answer(self, request: ChatRequest, caller: Caller, receive: Receive, send: Send) -> None:
        """Answer it, whatever happens. Returns early when the client has gone; the work is cancelled then.

        Raises:
            TriptychError: rate_limited, model_not_found or a 400, before anything has been done or sent.
        """
        served = self.models.get(request.model)
        admit.check(request, served.manifest, served.renderer.vocab_size)
        interrupt = Interrupt(caller.timeout_s)
        with self._open.entered(interrupt):
            watcher = asyncio.create_task(watch(receive, interrupt))
            try:
                await _Exchange(self, served, request, caller, send).run(interrupt)
            finally:
                watcher.cancel()


class _Exchange:
    """One admitted request. Whatever ends it, its work ends too and the client is told, once."""

    def __init__(self, chat: Chat, served: Served, request: ChatRequest, caller: Caller, send: Send) -> None:
        self._chat = chat
        self._served = served
        self._request = request
        self._caller = caller
        self._began_s = chat.clock.monotonic()
        now = chat.clock.now()
        self._head = Head(
            request_id=f"chatcmpl-{uuid.uuid4().hex}",
            model=request.model,
            deadline_at=now + caller.timeout_s,
            created_at=now,
            reply_to=chat.gateway_id,
            streamed=request.streamed,
            traceparent=caller.traceparent,
        )
        self._sent = False  # the job may be on its topic
        self._trail = chat.trails.begin(self._head)
        self._answer = self._new_answer(send)

    def _new_answer(self, send: Send) -> Answer:
        engine = self._served.pool.engine
        fingerprint = f"triptych-{engine}" if engine else None  # made-up answers (stub, sim) say so of themselves
        head = ReplyHead(self._head.request_id, int(self._head.created_at), self._head.model, fingerprint)
        if self._request.streamed:
            return Streamed(send, Chunks(head, self._request.include_usage), self._first_token)
        return Whole(send, Body(head, self._request.n or 1), self._first_token, self._tell_route)

    async def run(self, interrupt: Interrupt) -> None:
        # Followed before it is produced, so that nothing can be missed; and until the very end, whoever writes it.
        with closing(self._chat.follower.follow(self._head.model, self._head.request_id)) as subscription:
            try:
                async with interrupt:
                    await self._work(subscription)
                outcome = self._told()
            except Interrupted as why:
                outcome = await self._interrupted(why.cause, subscription)
            except Exception as error:  # noqa: BLE001  # from_exception logs what is not a client's fault
                outcome = await self._failed(errors.from_exception(error))
        self._count(outcome)

    async def _work(self, subscription: Subscription) -> None:
        served, request = self._served, self._request
        prompt_ids = await served.renderer.render(request.messages, served.context_tokens)
        max_tokens = admit.room(request, len(prompt_ids), served.context_tokens)
        job = plan.build(self._head, request, prompt_ids, max_tokens)
        self._sent = True
        headers = [("x-request-id", self._caller.request_id.encode()), *plan.headers(request)]
        session = request.user or request.safety_identifier or ""
        async with served.pool.sent(job, headers, session) as placed:
            self._trail.placed(placed)
            await self._answer.pass_on(subscription)

    async def _interrupted(self, cause: Cause, subscription: Subscription) -> str:
        if cause == "gone":
            await self._cancel("the client has gone")
            return "client_gone"
        code, message = _LAST_WORDS[cause]
        error = TriptychError(code, message, retry_after_s=RETRY_AFTER_S if cause == "stopping" else None)
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await self._chat.results.end(self._head, Failed(0, 0, code, message))
                # Ours, or the worker's if that came first: the client hears the one that was stored.
                await self._answer.pass_on(subscription)
        except TriptychError as told:
            # Without a terminal event it only says that none came.
            error = told if self._answer.last else error
        except (ConnectionError, TimeoutError) as failure:
            log.warning("the last word about %s could not be stored: %s", self._head.request_id, failure)
        if isinstance(self._answer.last, Finished):
            return self._told()
        await self._tell(error)
        return error.code

    def _told(self) -> str:
        """How the work ended, as the terminal event says."""
        last = self._answer.last
        return errors.from_event(last).code if isinstance(last, Failed | Cancelled) else "finished"

    async def _failed(self, error: TriptychError) -> str:
        """Tell the client. If it is not the work's own end, end that too."""
        if error.fault.status >= 500:
            log.warning("%s failed: %s: %s", self._head.request_id, error.code, error.message)
        await self._tell(error)
        if self._answer.last is None:
            await self._cancel("the gateway gave up")
        return error.code

    async def _tell(self, error: TriptychError) -> None:
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await self._answer.fail(error)
        except TimeoutError:
            log.info("%s: the client does not read; its connection is closed", self._head.request_id)

    async def _cancel(self, reason: str) -> None:
        if not self._sent:
            return
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await self._chat.results.cancel(self._head.model, self._head.request_id, reason)
        except (ConnectionError, TimeoutError) as failure:
            # The worker stops at the deadline then.
            log.warning("%s could not be cancelled: %s", self._head.request_id, failure)

    def _first_token(self) -> None:
        self._trail.ttft_s = self._elapsed_s()
        self._chat.metrics.first_token_after(self._head.model, self._trail.ttft_s)

    def _elapsed_s(self) -> float:
        return self._chat.clock.monotonic() - self._began_s

    def _tell_route(self, last: Finished) -> Headers:
        return [
            (b"openai-processing-ms", b"%d" % (self._elapsed_s() * 1_000)),
            (b"x-triptych-worker", last.worker.encode("latin-1", "replace")),
            (b"x-triptych-partition", b"%d" % last.partition),
            (b"x-triptych-steering", self._trail.steering.encode()),
            (b"x-triptych-predicted-tokens", b"%d" % self._trail.predicted_cached_tokens),
            (b"x-triptych-cached-tokens", b"%d" % last.usage.cached),
        ]

    def _count(self, outcome: str) -> None:
        self._trail.outcome, self._trail.duration_s = outcome, self._elapsed_s()
        self._chat.metrics.request_ended(self._head.model, outcome)
        if isinstance(self._answer.last, Finished):
            usage = self._answer.last.usage
            self._trail.finished(self._answer.last)
            self._chat.metrics.tokens(
                self._head.model, prompt=usage.prompt, cached=usage.cached, completion=usage.completion
            )
            self._served.pool.answered(usage.completion)
