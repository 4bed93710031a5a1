"""Record batches (format 2) read tolerantly: what the client's own decoder refuses becomes a record with a fault. Pure.

The client raises on a header name that is not UTF-8, and then reads the same batch again, for ever. Here every record
of such a batch comes out, the odd one with its fault, so that the partition can move on and nothing else is lost.
"""

import struct
from collections.abc import Callable, Iterator

from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.record.util import calc_crc32c

from topics.bus import Position
from topics.records import Record

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, first and last timestamp, producer id,
# producer epoch, base sequence, number of records
_HEADER = struct.Struct(">qiibIhiqqqhii")
_OVERHEAD_BYTES = 12  # base offset and length, which the length does not count
_CHECKED_FROM = 21  # the checksum covers what follows it
_MAGIC = 2
_CODEC_MASK, _CONTROL = 0x07, 0x20
_CODECS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: gzip_decode,
    2: snappy_decode,
    3: lz4_decode,
    4: zstd_decode,
}


class Batch:
    """One batch of a partition's log: its records from `position` on, and where the next batch begins."""

    def __init__(self, topic: str, partition: int, position: int, raw: bytes) -> None:
        self._topic = topic
        self._partition = partition
        self._position = position
        self._raw = raw

    def read(self) -> tuple[list[Record], int]:
        """Never raises: a batch that makes no sense at all becomes one record with its bytes."""
        try:
            header = _HEADER.unpack_from(self._raw)
            if header[3] != _MAGIC:
                raise ValueError(f"record format {header[3]}")
            if header[4] != calc_crc32c(self._raw[_CHECKED_FROM:]):
                raise ValueError("the checksum does not match")
            records = [one for one in self._records(header) if one.at.offset >= self._position]
            return records, header[0] + header[6] + 1
        except Exception as error:  # noqa: BLE001 - five codecs raise as they please; whatever it is, this is no record
            return [
                self._record(self._position, 0, None, self._raw, (), f"batch: {type(error).__name__}: {error}")
            ], self._after()

    def _after(self) -> int:
        """As far as the header can be trusted."""
        if len(self._raw) < _HEADER.size:
            return self._position + 1
        first, last_delta = struct.unpack_from(">q", self._raw)[0], struct.unpack_from(">i", self._raw, 23)[0]
        return max(self._position, int(first + max(last_delta, 0))) + 1

    def _records(self, header: tuple[int, ...]) -> Iterator[Record]:
        if header[5] & _CONTROL:
            return
        cursor = _Cursor(_CODECS[header[5] & _CODEC_MASK](self._raw[_HEADER.size :]))
        for _ in range(header[12]):
            cursor.varint()  # length
            cursor.take(1)  # attributes
            timestamp_ms, offset = header[7] + cursor.varint(), header[0] + cursor.varint()
            key, value = cursor.optional(), cursor.optional()
            names = [(cursor.optional() or b"", cursor.optional() or b"") for _ in range(cursor.varint())]
            fault = next((f"header name {name[:80]!r} is not UTF-8" for name, _ in names if not _is_utf8(name)), "")
            headers = tuple((name.decode(errors="backslashreplace"), content) for name, content in names)
            yield self._record(offset, timestamp_ms, key, value, headers, fault)

    def _record(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes], ...],
        fault: str,
    ) -> Record:
        at = Position(self._topic, self._partition, offset)
        return Record(at, timestamp_ms, key, value, headers, fault)


def split(topic: str, partition: int, position: int, log: bytes) -> Iterator[Batch]:
    """The whole batches in a fetched piece of log; a cut one at its end is left out."""
    begin = 0
    while begin + _OVERHEAD_BYTES <= len(log):
        (length,) = struct.unpack_from(">i", log, begin + 8)
        end = begin + _OVERHEAD_BYTES + length
        if length < 0 or end > len(log):
            return
        yield Batch(topic, partition, position, log[begin:end])
        begin = end


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._data):
            raise ValueError("a length points beyond the batch")
        self._at += count
        return self._data[self._at - count : self._at]

    def varint(self) -> int:
        """Zigzag, as in Protocol Buffers."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def optional(self) -> bytes | None:
        length = self.varint()
        return None if length < 0 else self.take(length)


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
