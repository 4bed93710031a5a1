"""What was said in spoken answers, so that a later turn can refer to one by its id, on any gateway."""

import logging
import re

import msgspec

from infra.clock import Clock
from infra.faults import Missing, Unavailable
from infra.hashing import sha256_of
from infra.ports import Blobs
from schemas import codec
from schemas.errors import TriptychError
from schemas.openai_request import AssistantMessage, ChatMessage
from schemas.refs import BlobRef

log = logging.getLogger(__name__)

# As long as OpenAI's, so that conversations of its examples work.
EXPIRES_S = 3_600
MOST_BYTES = 1 << 20
# The ids are unguessable; whoever knows one has heard the answer.
_ID = re.compile(r"audio_[0-9a-f]{32}(-[0-9]{1,4})?")


class Said(msgspec.Struct, frozen=True):
    transcript: str
    expires_at: int  # unix seconds


_said = msgspec.json.Decoder(Said)


class Transcripts:
    """Over the object store; one per gateway."""

    def __init__(self, blobs: Blobs, clock: Clock) -> None:
        self._blobs = blobs
        self._clock = clock

    async def keep(self, audio_id: str, said: Said) -> None:
        """Without it a later turn cannot refer to the answer; the answer itself is as good as ever."""
        data = codec.to_json(said)
        ref = BlobRef(_key(audio_id), await sha256_of(data), len(data), "application/json")
        try:
            await self._blobs.put(ref, data)
        except Unavailable as error:
            log.warning("the transcript of %s is not kept: %s", audio_id, error)

    async def put_in(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        """The messages, with the words of earlier spoken answers in the place of their ids.

        Raises:
            TriptychError: invalid_request, when an id is unknown or has expired.
        """
        return [
            msgspec.structs.replace(one, content=await self._find(one.audio.id, f"messages[{number}].audio.id"))
            if isinstance(one, AssistantMessage) and one.audio is not None
            else one
            for number, one in enumerate(messages)
        ]

    async def _find(self, audio_id: str, param: str) -> str:
        if not _ID.fullmatch(audio_id):
            raise _unknown(audio_id, param)
        try:
            said = _said.decode(await self._blobs.read(_key(audio_id), MOST_BYTES))
        except Missing as error:
            raise _unknown(audio_id, param) from error
        if said.expires_at < self._clock.now():
            raise _unknown(audio_id, param)
        return said.transcript


def refers(messages: list[ChatMessage]) -> bool:
    """Whether any of them refers to an earlier spoken answer."""
    return any(isinstance(one, AssistantMessage) and one.audio is not None for one in messages)


def _key(audio_id: str) -> str:
    return f"transcripts/{audio_id}"


def _unknown(audio_id: str, param: str) -> TriptychError:
    return TriptychError(
        "invalid_request",
        f"Invalid value for '{param}': {audio_id!r} is no spoken answer that is known here, or it has expired; give "
        "its transcript as 'content' instead.",
        param=param,
    )
