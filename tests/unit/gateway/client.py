"""Both ends of an answer: the client it is written to, and the events it is made of."""

import asyncio
from typing import Any

from infra.subscription import Followed
from schemas.events import Event


class Client:
    """The other end; while it is `stuck`, a send does not return."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.stuck = False

    async def send(self, message: Any) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.written.append(message)

    @property
    def bytes(self) -> bytes:
        return b"".join(one.get("body", b"") for one in self.written)

    @property
    def body(self) -> str:
        return self.bytes.decode()


def followed(*events: Event) -> Followed:
    one = Followed("m", "chatcmpl-1", 0, on_room=lambda _: None, on_close=lambda _: None)
    if events:
        one.feed(events)
    return one
