"""The HTTP application: which route leads where, and what is true of all of them."""

from collections.abc import Sequence

import msgspec
from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from gateway import chat as chatting
from gateway import docs, errors, files, health, images, models, trail, transcriptions
from gateway import speech as speaking
from gateway.admission import Admission, BodyRoom
from gateway.asyncapi_page import AsyncApiPage
from gateway.chat import Chat
from gateway.desk import Timeouts
from gateway.exchange import OpenRequests
from gateway.files import Files
from gateway.head_requests import HeadRequests
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

# Where forms are read piece by piece, and their files stored meanwhile.
STREAMED = ("/v1/files", "/v1/images/edits", "/v1/audio/transcriptions")


class Api:
    """What answers requests: one object for each noun of OpenAI's."""

    def __init__(self, chat: Chat, speech: Speech, uploads: Uploads) -> None:
        self._chat = chat
        self._speech = speech
        self._uploads = uploads

    def routes(self, timeouts: Timeouts) -> list[HTTPRouteHandler]:
        chat, desk, uploads = self._chat, self._chat.desk, self._uploads
        return [
            *chatting.routes(chat, timeouts),
            *images.routes(Images(chat, uploads), timeouts),
            *speaking.routes(self._speech, timeouts),
            *transcriptions.routes(Transcriptions(desk, chat.media, uploads), timeouts),
            *files.routes(Files(uploads), uploads.limits.most_bytes),
            *models.routes(desk.models),
            *trail.routes(desk.trails),
        ]


class Edge(msgspec.Struct, frozen=True):
    """What holds for all requests, whatever they ask for. `cors_origins`: none = pages of this gateway's own only."""

    max_body_bytes: int
    open_requests: OpenRequests
    room: BodyRoom
    cors_origins: Sequence[str] = ()

    @property
    def cors(self) -> CORSConfig | None:
        if not self.cors_origins:
            return None
        return CORSConfig(allow_origins=list(self.cors_origins), allow_headers=["*"], expose_headers=EXPOSED_HEADERS)


def build(
    api: Api, health_of: Health, metrics: Metrics, topics: AsyncApiPage, timeouts: Timeouts, edge: Edge
) -> ASGIApp:
    """The whole application, ready for an ASGI server that needs no lifespan."""
    app = Litestar(
        [*api.routes(timeouts), *health.routes(health_of, metrics), *docs.routes(topics)],
        exception_handlers={Exception: errors.handle},
        cors_config=edge.cors,
        request_max_body_size=edge.max_body_bytes,
        openapi_config=None,  # gateway/openapi.py writes it, from the same types, with their ranges
        logging_config=None,  # errors.py logs what is worth it
    )
    return RequestIds(HeadRequests(Admission(app, edge.open_requests, edge.room, STREAMED)))
