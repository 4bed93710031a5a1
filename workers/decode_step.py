"""What makers of pictures and speech yield on their way, and what the pool asks of a maker."""

from collections.abc import AsyncGenerator
from typing import Protocol

import msgspec

from schemas.jobs import DecodeJob
from schemas.media import DecoderKind


class Going(msgspec.Struct, frozen=True):
    """`done` of `total` steps are behind us."""

    done: int
    total: int


class Product(msgspec.Struct, frozen=True):
    """A finished file; the fields below are as in events.Made."""

    data: bytes
    media_type: str
    suffix: str
    duration_s: float = 0.0
    width: int = 0
    height: int = 0
    text: str = ""


Step = Going | Product


class Maker(Protocol):
    """Makes what the jobs of one kind ask for. Knows nothing of Kafka, Redis or the object store."""

    kind: DecoderKind
    slots: int  # jobs it wants at once, for its next batch to be ready when this one is done

    def make(self, job: DecodeJob, skip: int) -> AsyncGenerator[Step]:
        """Closing the generator gives the job up. The first `skip` products are there already and are not yielded.

        Raises:
            TriptychError: model_not_found, invalid_request or decoder_failed; the message is for the client.
        """
        ...
