"""What all kinds of requests have in common: one exchange from admission to last byte, whatever ends it."""

import asyncio
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, closing, nullcontext
from typing import Any

import msgspec
from litestar import Request
from litestar.types import Receive, Scope

from gateway import errors
from gateway.answer import Answer, Stream
from gateway.errors import Headers
from gateway.exchange import Interrupt, Interrupted, OpenRequests, watch
from gateway.links import origin_of
from gateway.media_pools import MediaPools
from gateway.models import Served, ServedModels
from gateway.needs import Needs
from gateway.parts import Parts
from gateway.request_ids import Ids
from gateway.trail import Trailed, Trails
from infra.clock import Clock
from infra.faults import PortFault
from infra.metrics import Metrics
from infra.ports import Follower, Results, Subscription
from infra.tasks import watched
from schemas.errors import TriptychError
from schemas.events import Cancelled, Failed, Finished
from schemas.jobs import Head
from topics import headers as record_headers

log = logging.getLogger(__name__)

TIMEOUT_HEADER = "x-request-timeout-s"
# How long the last word about a request (its end, its cancellation) may take to reach Redis and come back.
LAST_WORD_S = 3.0


class Caller(msgspec.Struct, frozen=True):
    """What the HTTP request says beside its body."""

    ids: Ids
    timeout_s: float
    traceparent: str = ""
    tracestate: str = ""
    origin: str = ""  # where it has reached us: scheme, host and port

    @property
    def headers(self) -> record_headers.Headers:
        """Of the records of its work: what all that comes of them bears, too."""
        said = {"x-request-id": self.ids.request_id, "traceparent": self.traceparent, "tracestate": self.tracestate}
        return record_headers.passed_on((name, value.encode()) for name, value in said.items())


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

    def of(self, request: Request[Any, Any, Any]) -> Caller:
        """Raises TriptychError: as `read`."""
        return self.caller(request.headers, request.scope)

    def caller(self, headers: Mapping[str, str], scope: Scope) -> Caller:
        """Raises TriptychError: as `read`."""
        timeout_s = self.read(headers.get(TIMEOUT_HEADER))
        trace = headers.get("traceparent", ""), headers.get("tracestate", "")
        return Caller(scope["state"]["ids"], timeout_s, *trace, origin=origin_of(scope))


class Desk:
    """Everything an exchange needs; one per gateway."""

    def __init__(
        self,
        gateway_id: str,
        models: ServedModels,
        follower: Follower,
        results: Results,
        open_requests: OpenRequests,
        media_pools: MediaPools,
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
        self._media_pools = media_pools

    async def attend(self, exchange: "Exchange", receive: Receive) -> None:
        """See it through. Returns early when the client has gone; the work is cancelled then."""
        interrupt = Interrupt(exchange.caller.timeout_s)
        with self._open.entered(interrupt), self._media_pools.guarding(exchange.needs, interrupt):
            watcher = watched(watch(receive, interrupt), "watch for the client's leaving")
            try:
                await exchange.run(interrupt)
            finally:
                watcher.cancel()


class Exchange(ABC):
    """One admitted request. Whatever ends it, its work ends too and the client is told, once."""

    answer: Answer  # made by the kind of exchange, before it runs

    def __init__(self, desk: Desk, served: Served, caller: Caller, prefix: str, streamed: bool) -> None:
        self.desk = desk
        self.served = served
        self.caller = caller
        self.sent = False  # a job may be on its topic
        self._began_s = desk.clock.monotonic()
        now = desk.clock.now()
        self.head = Head(
            request_id=f"{prefix}-{secrets.token_hex(16)}",
            model=served.manifest.pool,
            deadline_at=now + caller.timeout_s,
            created_at=now,
            reply_to=desk.gateway_id,
            streamed=streamed,
            traceparent=caller.traceparent,
        )
        self.needs = Needs(self.head, desk.results)
        caller.ids.work_id = self.head.request_id
        self.trail = desk.trails.begin(self.head, served.manifest.id, caller.ids)

    @abstractmethod
    async def work(self, stream: Stream) -> None:
        """Plan, send (saying so in `sent` before) and pass the answer on."""

    def stream(self, main: Subscription) -> AbstractAsyncContextManager[Stream]:
        """What the answer is made of: the events of the request, unless it may have parts."""
        return nullcontext(main)

    async def run(self, interrupt: Interrupt) -> None:
        """The whole exchange; never fails."""
        # Followed before it is produced, so that nothing can be missed; and until the very end, whoever writes it.
        followed = self.desk.follower.follow(self.head.model, self.head.request_id)
        with closing(Trailed(followed, self.trail)) as main:
            async with self.stream(main) as stream:
                try:
                    async with interrupt:
                        await self.work(stream)
                    outcome = self._told()
                except Interrupted as why:
                    outcome = await self._interrupted(why, stream)
                except Exception as error:  # noqa: BLE001  # from_exception logs what is not a client's fault
                    outcome = await self._failed(errors.from_exception(error))
        self._count(outcome)

    async def _interrupted(self, why: Interrupted, stream: Stream) -> str:
        if why.cause == "gone":
            await self._cancel("the client has gone")
            return "client_gone"
        error = why.error
        last_word = Failed(0, 0, error.code, error.message)
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await self.desk.results.end(self.head, last_word)
                if isinstance(stream, Parts):
                    stream.cut(last_word)
                # Ours, or the worker's if that came first: the client hears the one that was stored.
                await self.answer.pass_on(stream)
        except TriptychError as told:
            # Without a terminal event it only says that none came; our own word comes back without its Retry-After.
            error = told if self.answer.last and told.code != error.code else error
        except (PortFault, TimeoutError) as failure:
            log.warning("the last word about %s could not be stored: %s", self.head.request_id, failure)
        if isinstance(self.answer.last, Finished):
            return self._told()
        await self._tell(error)
        return error.code

    def _told(self) -> str:
        """How the work ended, as the terminal event says."""
        last = self.answer.last
        return errors.from_event(last).code if isinstance(last, Failed | Cancelled) else "finished"

    async def _failed(self, error: TriptychError) -> str:
        """Tell the client. If it is not the work's own end, end that too."""
        if error.fault.status >= 500:
            log.warning("%s failed: %s: %s", self.head.request_id, error.code, error.message)
        await self._tell(error)
        if self.answer.last is None:
            await self._cancel("the gateway gave up")
        return error.code

    async def _tell(self, error: TriptychError) -> None:
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await self.answer.fail(error)
        except TimeoutError:
            log.info("%s: the client does not read; its connection is closed", self.head.request_id)

    async def _cancel(self, reason: str) -> None:
        if not self.sent:
            return
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await self.desk.results.cancel(self.head.model, self.head.request_id, reason)
        except (PortFault, TimeoutError) as failure:
            # The worker stops at the deadline then.
            log.warning("%s could not be cancelled: %s", self.head.request_id, failure)

    def first_told(self) -> None:
        """The first of the answer is about to be written."""
        self.trail.ttft_s = self._elapsed_s()
        self.desk.metrics.first_token_after(self.served.manifest.id, self.trail.ttft_s)

    def _elapsed_s(self) -> float:
        return self.desk.clock.monotonic() - self._began_s

    def route_of(self, last: Finished) -> Headers:
        """Headers that tell which way the work went."""
        return [
            (b"openai-processing-ms", b"%d" % (self._elapsed_s() * 1_000)),
            (b"x-triptych-worker", last.worker.encode("latin-1", "replace")),
            (b"x-triptych-partition", b"%d" % last.partition),
            (b"x-triptych-steering", self.trail.steering.encode()),
            (b"x-triptych-predicted-tokens", b"%d" % self.trail.predicted_cached_tokens),
            (b"x-triptych-cached-tokens", b"%d" % last.usage.cached),
        ]

    def _count(self, outcome: str) -> None:
        self.trail.outcome, self.trail.duration_s = outcome, self._elapsed_s()
        model = self.served.manifest.id
        self.desk.metrics.request_ended(model, outcome)
        if isinstance(self.answer.last, Finished):
            usage = self.answer.last.usage
            self.trail.finished(self.answer.last)
            self.desk.metrics.tokens(model, prompt=usage.prompt, cached=usage.cached, completion=usage.completion)
            if usage.completion:
                self.served.pool.answered(usage.completion)
