"""The HTTP application: which route leads where, and what is true of all of them."""

from collections.abc import Sequence

import msgspec
from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from gateway import chat as chatting
from gateway import docs, errors, files, health, images, models, outputs, trail, transcriptions
from gateway import speech as speaking
from gateway.admission import Admission, BodyRoom
from gateway.asyncapi_page import AsyncApiPage
from gateway.chat import Chat
from gateway.desk import Timeouts
from gateway.exchange import OpenRequests
from gateway.files import Files
from gateway.front import Front
from gateway.head_requests import HeadRequests
from gateway.health import Health
from gateway.images import Images
from gateway.links import OUTPUTS, UPLOADS, Links
from gateway.outputs import Outputs
from gateway.request_ids import RequestIds
from gateway.siblings import Siblings
from gateway.speech import Speech
from gateway.transcriptions import Transcriptions
from infra.metrics import Metrics
from infra.ports import Blobs
from topics.intake.uploads import Uploads

EXPOSED_HEADERS = [
    "x-request-id",
    "x-triptych-request-id",
    "openai-processing-ms",
    "retry-after",
    "x-triptych-worker",
    "x-triptych-partition",
    "x-triptych-steering",
    "x-triptych-predicted-tokens",
    "x-triptych-cached-tokens",
]

# Where forms are read piece by piece, and their files stored meanwhile; below UPLOADS, a body is one file.
FORMS = ("/v1/files", "/v1/images/edits", "/v1/audio/transcriptions")


class Api:
    """What answers requests: one object for each noun of OpenAI's. `links` are None where clients can reach the store,
    `blobs`."""

    def __init__(
        self,
        chat: Chat,
        speech: Speech,
        uploads: Uploads,
        blobs: Blobs,
        links: Links | None,
        siblings: Siblings | None = None,
    ) -> None:
        self.chat = chat
        self._speech = speech
        self._uploads = uploads
        self._blobs = blobs
        self._links = links
        self.siblings = siblings or Siblings()

    def routes(self, timeouts: Timeouts) -> list[HTTPRouteHandler]:
        chat, desk, uploads = self.chat, self.chat.desk, self._uploads
        return [
            *chatting.routes(chat, timeouts),
            *images.routes(Images(chat, uploads), timeouts),
            *speaking.routes(self._speech, timeouts),
            *transcriptions.routes(Transcriptions(desk, chat.media, uploads), timeouts),
            *files.routes(Files(uploads, self._links), uploads.limits.most_bytes),
            *([] if self._links is None else outputs.routes(Outputs(self._links, self._blobs, uploads))),
            *models.routes(desk.models),
            *trail.routes(desk.trails, self.siblings),
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
        [*api.routes(timeouts), *health.routes(health_of, metrics, api.siblings), *docs.routes(topics)],
        exception_handlers={Exception: errors.handle},
        cors_config=edge.cors,
        request_max_body_size=edge.max_body_bytes,
        openapi_config=None,  # gateway/openapi.py writes it, from the same types, with their ranges
        logging_config=None,  # errors.py logs what is worth it
    )
    front = Front(app, api.chat, timeouts, edge.max_body_bytes)
    admission = Admission(front, edge.open_requests, edge.room, FORMS, UPLOADS)
    return RequestIds(HeadRequests(admission, own=OUTPUTS))
