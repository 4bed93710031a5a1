"""`GET /v1/requests/{id}`: what happened to a request and why (promise P9). Of this gateway's last requests."""

from collections import OrderedDict
from typing import Any, Self
from urllib.parse import quote

import msgspec
from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from gateway.request_ids import Ids
from gateway.siblings import Siblings
from infra.ports import Subscription
from schemas import codec
from schemas.errors import TriptychError
from schemas.events import Event, Finished, Steered
from schemas.jobs import Head
from schemas.steering import Alternative, Decision

KEPT = 10_000
MOST_ID_CHARS = 200


class RequestTrail(msgspec.Struct, omit_defaults=True):
    """One request. Times are seconds; token counts are of the prompt, except `completion_tokens`."""

    id: str
    model: str
    created_at: float  # unix seconds
    x_request_id: str = ""  # of the HTTP exchange
    outcome: str = "open"  # open, finished, client_gone or an error code
    streamed: bool = False
    steering: str = ""  # why this worker
    placed_worker: str = ""  # the one that steering chose
    worker: str = ""  # the one that ran it
    partition: int = -1
    attempts: int = 0
    queue_s: float | None = None  # accepted -> claimed by a worker
    ttft_s: float | None = None
    duration_s: float | None = None
    prompt_tokens: int = 0
    predicted_cached_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    media_items: int = 0  # in the messages
    media_encoded: int = 0  # of these, those that encoders had to be asked for; the others were known
    parts: int = 0  # of the answer, asked of decoders
    alternatives: list[Alternative] = []  # the nearest other workers, and what choosing them would have cost
    hops: int = 0  # how often a worker gave it back before this placement

    def placed(self, decision: Decision) -> None:
        """Of several, the last one holds: that of the attempt that runs."""
        self.steering = decision.reason
        self.placed_worker = decision.worker
        self.partition = decision.partition
        self.predicted_cached_tokens = decision.predicted_tokens
        self.alternatives = [Alternative(worker, cost) for worker, cost in decision.alternatives.items()]
        self.hops = decision.hops

    def finished(self, last: Finished) -> None:
        self.worker, self.partition = last.worker, last.partition
        self.attempts, self.queue_s = last.attempt, last.queue_s
        self.prompt_tokens, self.cached_tokens = last.usage.prompt, last.usage.cached
        self.completion_tokens = last.usage.completion


class Trailed:
    """A followed request without what is told for its trail, which goes there. Implements ports.Subscription."""

    def __init__(self, events: Subscription, trail: RequestTrail) -> None:
        self._events = events
        self._trail = trail

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while isinstance(event := await self._events.__anext__(), Steered):
            self._trail.placed(event.decision)
        return event

    def ready(self) -> list[Event]:
        found: list[Event] = []
        for event in self._events.ready():
            if isinstance(event, Steered):
                self._trail.placed(event.decision)
            else:
                found.append(event)
        return found

    def close(self) -> None:
        self._events.close()


class Trails:
    """The last KEPT requests, oldest out first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, RequestTrail] = OrderedDict()
        self._by_exchange: dict[str, str] = {}  # `x-request-id`, of our own making only -> the request's id

    def begin(self, head: Head, model: str, ids: Ids) -> RequestTrail:
        """`model` as the client calls it."""
        trail = RequestTrail(head.request_id, model, head.created_at, ids.request_id, streamed=head.streamed)
        self._kept[trail.id] = trail
        if not ids.chosen:
            self._by_exchange[ids.request_id] = trail.id
        if len(self._kept) > KEPT:
            _, oldest = self._kept.popitem(last=False)
            if self._by_exchange.get(oldest.x_request_id) == oldest.id:
                del self._by_exchange[oldest.x_request_id]
        return trail

    def get(self, request_id: str) -> RequestTrail:
        """By what only its own client knows: the id of its answer (`x-triptych-request-id`, which an error has, too),
        or an `x-request-id` that we have made up. What clients choose for one can be guessed, and used by another.

        Raises:
            TriptychError: not_found.
        """
        found = self._kept.get(request_id) or self._kept.get(self._by_exchange.get(request_id, ""))
        if found is None:
            known = f"this gateway knows its last {KEPT}"
            raise TriptychError("not_found", f"No request {request_id[:100]!r}: {known}.", param="id")
        return found


def routes(trails: Trails, siblings: Siblings) -> list[HTTPRouteHandler]:
    @get("/v1/requests/{request_id:str}")
    async def retrieve(request_id: FromPath[str], request: Request[Any, Any, Any]) -> Response[bytes]:
        try:
            told = codec.to_json(trails.get(request_id))
        except TriptychError:
            path = f"/v1/requests/{quote(request_id[:MOST_ID_CHARS], safe='')}"
            elsewhere = await siblings.first(path) if siblings.answer_for(request.scope) else None
            if elsewhere is None:
                raise
            told = elsewhere
        return Response(told, media_type="application/json")

    return [retrieve]
