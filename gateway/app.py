"""The HTTP application: which route leads where, and what is true of all of them."""

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from gateway import chat as chatting
from gateway import docs, errors, files, health, images, models, outputs, trail, transcriptions
from gateway import speech as speaking
from gateway.asyncapi_page import AsyncApiPage
from gateway.chat import Chat
from gateway.desk import Timeouts
from gateway.files import Files
from gateway.front import Front
from gateway.health import Health
from gateway.images import Images
from gateway.links import Links
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


def build(
    api: Api,
    health_of: Health,
    metrics: Metrics,
    topics: AsyncApiPage,
    timeouts: Timeouts,
    max_body_bytes: int,
    cors_origins: list[str],
) -> ASGIApp:
    """The whole application, ready for an ASGI server that needs no lifespan."""
    app = Litestar(
        [*api.routes(timeouts), *health.routes(health_of, metrics, api.siblings), *docs.routes(topics)],
        exception_handlers={Exception: errors.handle},
        cors_config=CORSConfig(allow_origins=cors_origins, allow_headers=["*"], expose_headers=EXPOSED_HEADERS),
        request_max_body_size=max_body_bytes,
        openapi_config=None,  # gateway/openapi.py writes it, from the same types, with their ranges
        logging_config=None,  # errors.py logs what is worth it
    )
    return RequestIds(Front(app, api.chat, timeouts, max_body_bytes))
