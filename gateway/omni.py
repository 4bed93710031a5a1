"""What following the parts of a chat's answer takes: the result path, the object store, the words that are spoken."""

from collections import defaultdict

from gateway.delivery import Delivery, Piece
from gateway.desk import Desk
from gateway.omni_reply import Speech
from gateway.trail import RequestTrail
from gateway.transcripts import Said, Transcripts
from infra.ports import Subscription
from schemas.events import Event, Finished, Made, Part, Restarted, Token
from schemas.jobs import Head


class ChatBacking:
    """parts.Backing of one answer. `speech` when it is spoken. Pictures are given as URLs, to a client that has reached
    us at `urls_from`, or as bytes when that is None."""

    def __init__(
        self,
        desk: Desk,
        delivery: Delivery,
        spoken: Transcripts,
        head: Head,
        trail: RequestTrail,
        speech: Speech | None,
        urls_from: str | None,
    ) -> None:
        self._desk = desk
        self._delivery = delivery
        self._spoken = spoken
        self._head = head
        self._trail = trail
        self._speech = speech
        self._urls_from = urls_from
        self._words: defaultdict[int, list[str]] = defaultdict(list)  # by choice

    def follow(self, part: Part) -> Subscription:
        # Its decoder may have been faster than the news of it.
        return self._desk.follower.follow(self._head.model, part.request_id, begun=True)

    async def deliver(self, part: Part, made: Made) -> Piece:
        if made.kind == "image" and self._urls_from is not None:
            return Piece(part, made, url=await self._delivery.url(made.ref, self._urls_from))
        return Piece(part, made, data=await self._delivery.data(made.ref))

    async def cancel(self, request_id: str, reason: str) -> None:
        await self._desk.results.cancel(self._head.model, request_id, reason)

    async def heard(self, event: Event) -> None:
        match event:
            case Token() if self._speech is not None:
                self._words[event.index].append(event.text)
            case Part():
                self._trail.parts += 1
            case Restarted():
                self._words.clear()
            case Finished() if self._speech is not None:
                for index, texts in self._words.items():
                    said = Said("".join(texts), self._speech.expires_at)
                    await self._spoken.keep(self._speech.id_of(index), said)
            case _:
                pass
