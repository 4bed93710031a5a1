"""Types by their bytes, on files that real encoders have written."""

import io
import wave
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image

from topics.intake.faults import MediaFault
from topics.intake.sniff import HEAD_BYTES, check_kind, sniff


def picture(format_: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (32, 24), "red").save(out, format_)
    return out.getvalue()


def container(format_: str, video: str = "", audio: str = "", rate: int = 48_000, **options: str) -> bytes:
    """Half a second of it."""
    out = io.BytesIO()
    with av.open(out, "w", format=format_, options=options) as file:
        pictures = file.add_stream(video, rate=10) if video else None
        sound = file.add_stream(audio, rate=rate, layout="mono") if audio else None
        if pictures:
            pictures.width, pictures.height, pictures.pix_fmt = 64, 48, "yuv420p"
        file.start_encoding()
        if pictures:
            for number in range(5):
                image = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8))
                image.pts, image.time_base = number, Fraction(1, 10)
                file.mux(pictures.encode(image))
            file.mux(pictures.encode())
        if sound:
            frame = av.AudioFrame.from_ndarray(np.zeros((1, rate // 2), np.int16), format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
            file.mux(sound.encode(frame))
            file.mux(sound.encode())
    return out.getvalue()


def wav() -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(3_200))
    return out.getvalue()


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        ("PNG", "image/png"),
        ("JPEG", "image/jpeg"),
        ("GIF", "image/gif"),
        ("WEBP", "image/webp"),
        ("BMP", "image/bmp"),
        ("TIFF", "image/tiff"),
        ("AVIF", "image/avif"),
        ("JPEG2000", "image/jp2"),
    ],
)
def test_pictures_are_told_apart(format_: str, expected: str) -> None:
    assert sniff(picture(format_)[:HEAD_BYTES]).name == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (wav(), "audio/wav"),
        (container("mp3", audio="mp3"), "audio/mpeg"),
        (container("mp3", audio="mp3", id3v2_version="0", write_xing="0"), "audio/mpeg"),
        (container("mp3", audio="mp3", rate=16_000, id3v2_version="0", write_xing="0"), "audio/mpeg"),
        (container("adts", audio="aac"), "audio/aac"),
        (container("ipod", audio="aac"), "audio/mp4"),
        (container("flac", audio="flac"), "audio/flac"),
        (container("ogg", audio="libopus"), "audio/ogg"),
        (container("aiff", audio="pcm_s16be"), "audio/aiff"),
        (container("au", audio="pcm_mulaw", rate=8_000), "audio/basic"),
        (container("caf", audio="pcm_s16le"), "audio/x-caf"),
        (container("w64", audio="pcm_s16le"), "audio/x-w64"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_sounds_are_told_apart(data: bytes, expected: str) -> None:
    found = sniff(data[:HEAD_BYTES])
    assert (found.name, found.kind) == (expected, "audio")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (container("mp4", video="mpeg4", audio="aac"), "video/mp4"),
        (container("mov", video="mpeg4"), "video/quicktime"),
        (container("webm", video="libvpx"), "video/webm"),
        (container("matroska", video="mpeg4"), "video/x-matroska"),
        (container("avi", video="mpeg4"), "video/x-msvideo"),
        (container("mpegts", video="mpeg2video"), "video/mp2t"),
        (container("flv", video="flv"), "video/x-flv"),
        (container("3gp", video="mpeg4"), "video/3gpp"),
        (container("asf", video="mpeg4"), "video/x-ms-asf"),
        (container("mp4", audio="aac"), "video/mp4"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_videos_are_told_apart(data: bytes, expected: str) -> None:
    found = sniff(data[:HEAD_BYTES])
    assert (found.name, found.kind) == (expected, "video")


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"<!doctype html>",
        b"%PDF-1.7\n",
        b"PK\x03\x04" + bytes(100),
        b"\x7fELF" + bytes(100),
        b"BM, the company",
        "\ufeffUTF-16 text, which begins with bytes like those of MP3".encode("utf-16-le") * 9,
        b"\xff" * 5_000,
        bytes(5_000),
        b"RIFF\0\0\0\0ACONanih",
        b"G" + bytes(500),
        b"\x00",
    ],
    ids=lambda data: repr(data[:8]),
)
def test_what_is_no_media_is_refused(data: bytes) -> None:
    with pytest.raises(MediaFault) as caught:
        sniff(data[:HEAD_BYTES])
    assert caught.value.code == "media_type_unsupported"


def test_sound_may_come_in_a_video_but_not_in_a_picture() -> None:
    check_kind(sniff(container("mp4", audio="aac")), "audio")
    check_kind(sniff(wav()), None)
    for data, expected in ((picture("PNG"), "audio"), (wav(), "image"), (wav(), "video"), (picture("GIF"), "video")):
        with pytest.raises(MediaFault, match=expected):
            check_kind(sniff(data), expected)  # type: ignore[arg-type]  # a Literal, from a tuple of texts
