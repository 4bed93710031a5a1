"""An intake under test, and what every refusal of it must be."""

import functools
import re
import ssl
from collections.abc import Mapping, Sequence

import pytest

from infra.clock import ManualClock
from infra.file_records import MemoryFileRecords
from infra.memory_blobs import MemoryBlobs
from schemas.errors import FAULTS, TriptychError
from schemas.manifest import MediaLimits
from schemas.media import MediaKind
from tests.unit.topics.intake.servers import Names
from topics.intake.fetch import Fetcher, FetchLimits
from topics.intake.intake import Intake, Item, Link, Source, Taken
from topics.intake.places import Places
from topics.intake.uploads import UploadLimits, Uploads

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
WAV = b"RIFF\0\0\0\0WAVEfmt " + bytes(100)
PARAM = "messages[3].content[1].image_url"
LIMITS = MediaLimits(items=4, item_bytes=200_000)
TIMEOUT_S = 0.6
OK = b"HTTP/1.1 200 OK\r\n"

# What none of our words may hold: addresses, ports, paths, names of ours and of the libraries we use, their errors.
TELLTALE = re.compile(
    r"\d+\.\d+\.\d+\.\d+|::|:\d{2,}|(?<!image)(?<!audio)/\w|Traceback|Errno|aiohttp|yarl|Error\b|0x|secret|\.test\b|"
    r"media/|staging|object store"
)


@functools.cache
def trusting_the_usual() -> ssl.SSLContext:
    """As the settings make it; reading all the certificates takes 0.1 s."""
    return ssl.create_default_context()


class Desk:
    """An intake that may go to one local server, and its parts."""

    def __init__(
        self, allowed: Sequence[str], names: Mapping[str, Sequence[Sequence[str]]] | None = None, slots: int = 8
    ) -> None:
        clock = ManualClock()
        self.blobs = MemoryBlobs()
        self.names = Names(names or {})
        self.uploads = Uploads(self.blobs, MemoryFileRecords(clock), clock, UploadLimits(100_000, 60, 5, 8))
        limits = FetchLimits(TIMEOUT_S, max_redirects=3, concurrency=slots)
        self.fetcher = Fetcher(Places(True, allowed), self.names, limits, trusting_the_usual())
        self.intake = Intake(self.blobs, self.fetcher, self.uploads)

    async def take(self, source: Source | str, kind: MediaKind | None = "image") -> Taken:
        source = Link(source) if isinstance(source, str) else source
        [taken] = await self.intake.take([Item(kind, source, PARAM)], LIMITS)
        return taken

    async def refusal(self, source: Source | str, kind: MediaKind | None = "image") -> TriptychError:
        """The refusal, checked for what every one of them must be; nothing may have been stored."""
        with pytest.raises(TriptychError) as caught:
            await self.take(source, kind)
        error = caught.value
        assert FAULTS[error.code].status in (400, 404)
        assert error.param == PARAM
        assert PARAM in error.message
        assert not TELLTALE.search(error.message.replace(PARAM, "")), error.message
        assert self.blobs._objects == {}
        return error
