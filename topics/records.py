"""One record as it was read from a topic, whatever it holds."""

import msgspec

from topics.bus import Position


class Record(msgspec.Struct, frozen=True):
    """`fault` says why the record cannot be a job whatever its value is; empty when nothing is known against it."""

    at: Position
    timestamp_ms: int  # when it was produced; never later than when it was fetched
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    fault: str = ""
