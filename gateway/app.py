"""The HTTP application: which route leads where, and what is true of all of them."""

from typing import Any

from litestar import Litestar, Request, post
from litestar.config.cors import CORSConfig
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from gateway import decode, docs, errors, files, health, images, models, trail, transcriptions
from gateway import speech as speaking
from gateway.chat import Chat
from gateway.desk import Timeouts
from gateway.files import Files
from gateway.health import Health
from gateway.images import Images
from gateway.request_ids import RequestIds
from gateway.speech import Speech
from gateway.transcriptions import Transcriptions
from infra.metrics import Metrics
from topics.intake.uploads import Uploads

EXPOSED_HEADERS = [
    "x-request-id",
    "openai-processing-ms",
    "retry-after",
    "x-triptych-worker",
    "x-triptych-partition",
    "x-triptych-steering",
    "x-triptych-predicted-tokens",
    "x-triptych-cached-tokens",
]


def build(
    chat: Chat,
    speech: Speech,
    uploads: Uploads,
    health_of: Health,
    metrics: Metrics,
    timeouts: Timeouts,
    max_body_bytes: int,
    cors_origins: list[str],
) -> ASGIApp:
    """The whole application, ready for an ASGI server that needs no lifespan."""
    handlers = [*chat_routes(chat, timeouts), *models.routes(chat.desk.models), *trail.routes(chat.desk.trails)]
    handlers += images.routes(Images(chat, uploads), timeouts)
    handlers += speaking.routes(speech, timeouts)
    handlers += transcriptions.routes(Transcriptions(chat.desk, chat.media, uploads), timeouts)
    handlers += files.routes(Files(uploads), uploads.limits.most_bytes)
    app = Litestar(
        [*handlers, *health.routes(health_of, metrics), *docs.routes()],
        exception_handlers={Exception: errors.handle},
        cors_config=CORSConfig(allow_origins=cors_origins, allow_headers=["*"], expose_headers=EXPOSED_HEADERS),
        request_max_body_size=max_body_bytes,
        openapi_config=None,  # gateway/openapi.py writes it, from the same types, with their ranges
        logging_config=None,  # errors.py logs what is worth it
    )
    return RequestIds(app)


def chat_routes(chat: Chat, timeouts: Timeouts) -> list[HTTPRouteHandler]:
    @post("/v1/chat/completions")
    async def create(request: Request[Any, Any, Any]) -> ASGIApp:
        asked = decode.chat_request(await request.body(), request.headers.get("content-type", ""))
        caller = timeouts.caller(request)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await chat.answer(asked, caller, receive, send)

        return answer

    return [create]
