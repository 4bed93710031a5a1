import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import raw_batches
from topics.batches import split
from topics.records import Record

names = st.text(max_size=8).map(str.encode)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=8)), max_size=3)
rows = st.tuples(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=300), headers)


def at_offset(raw: bytes, base: int) -> bytes:
    """As a broker stores it: the producer's batch, with its place in the log."""
    return struct.pack(">q", base) + raw[8:]


def read(log: bytes, position: int = 0) -> tuple[list[Record], int]:
    records: list[Record] = []
    for batch in split("t", 1, position, log):
        found, position = batch.read()
        records += found
    return records, position


@pytest.mark.parametrize("codec", raw_batches.CODECS)
def test_every_codec_is_read(codec: str) -> None:
    records, after = read(at_offset(raw_batches.batch([(b"k", b"v" * 1_000, [])] * 3, codec), 7), 7)
    assert [(one.at.offset, one.key, one.value) for one in records] == [(7 + n, b"k", b"v" * 1_000) for n in range(3)]
    assert after == 10


@given(st.lists(rows, min_size=1, max_size=6), st.integers(0, 2**40), st.integers(0, 2**41))
def test_what_a_client_writes_comes_out_as_it_was(written: list[raw_batches.Row], base: int, timestamp_ms: int) -> None:
    records, after = read(at_offset(raw_batches.batch(written, timestamp_ms=timestamp_ms), base), base)
    assert after == base + len(written)
    for number, (record, (key, value, heads)) in enumerate(zip(records, written, strict=True)):
        assert (record.at.offset, record.timestamp_ms) == (base + number, timestamp_ms)
        assert (record.key, record.value, record.fault) == (key, value, "")
        assert list(record.headers) == [(name.decode(), content or b"") for name, content in heads]


def test_a_bad_header_name_marks_its_own_record_only() -> None:
    raw = raw_batches.batch([(None, b"a", []), (None, b"b", [(b"\xff", b"1"), (b"ok", None)]), (None, b"c", [])])
    records, after = read(raw)
    assert [(one.value, bool(one.fault)) for one in records] == [(b"a", False), (b"b", True), (b"c", False)]
    assert records[1].headers == (("\\xff", b"1"), ("ok", b"")) and after == 3


def test_records_before_the_position_are_left_out() -> None:
    records, after = read(raw_batches.batch([(None, b"x", [])] * 5), position=3)
    assert [one.at.offset for one in records] == [3, 4] and after == 5


def test_a_batch_that_is_cut_off_is_left_for_the_next_read() -> None:
    whole, cut = raw_batches.batch([(None, b"x", [])]), at_offset(raw_batches.batch([(None, b"y", [])]), 1)
    for length in (1, 11, 20, len(cut) - 1):
        records, after = read(whole + cut[:length])
        assert [one.value for one in records] == [b"x"] and after == 1


@given(st.binary(min_size=1, max_size=120), st.integers(0, 100))
def test_garbage_in_a_batch_becomes_one_record_with_its_bytes_and_reading_goes_on(
    garbage: bytes, position: int
) -> None:
    log = struct.pack(">qi", position, len(garbage)) + garbage
    records, after = read(log, position)
    assert after > position or not records
    for record in records:
        assert record.at.offset >= position


def test_a_batch_with_a_single_wrong_bit_is_kept_whole_and_stepped_over() -> None:
    raw = bytearray(raw_batches.batch([(None, b"x" * 50, [])] * 4))
    raw[100] ^= 1
    records, after = read(bytes(raw))
    assert [(one.at.offset, one.value) for one in records] == [(0, bytes(raw))]
    assert "batch" in records[0].fault and after == 4
