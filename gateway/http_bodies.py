"""Two kinds of HTTP exchanges whose bodies end in a way of their own; both wrap an application of one connection."""

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def until_close(cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
    """For HTTP/1.0: a body whose length the application does not say has no chunks, and ends with the connection."""

    async def unframed(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        framed = True

        async def send_unframed(message: ASGISendEvent) -> None:
            nonlocal framed
            if message["type"] == "http.response.start":
                framed = any(name == b"content-length" for name, _ in message["headers"])
                if not framed:
                    cycle.chunked_encoding = False
            elif message["type"] == "http.response.body" and not framed:
                cycle.expected_content_length = len(message["body"])  # all there is to come, as far as uvicorn knows
            await send(message)

        await app(scope, receive, send_unframed)

    return unframed


def asked_for(cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
    """For `Expect: 100-continue`: a body that was never asked for may not come, so that nothing can follow it."""

    async def asking(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async def send_last(message: ASGISendEvent) -> None:
            if cycle.waiting_for_100_continue:
                cycle.keep_alive = False
            await send(message)

        await app(scope, receive, send_last)

    return asking
