"""Bytes made to do harm: each is refused in words for the client, soon, and in little memory."""

import io
import re
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from schemas.manifest import MediaLimits
from schemas.media import EncoderKind, MediaKind
from tests.unit.workers.media.pictures import png, png_chunk, saved, scene
from tests.unit.workers.media.recordings import moov_first, sound, tone, video, wav
from workers.encoder import MediaFault
from workers.media import decode

LIMITS = MediaLimits(audio_s=60, video_s=60)


def _webp(width: int, height: int) -> bytes:
    """A bomb: 100 bytes that promise hundreds of millions of pixels."""
    bits = (width - 1) | (height - 1) << 14
    body = b"WEBPVP8L" + struct.pack("<IBI", 60, 0x2F, bits) + bytes(55)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _webp_animation(width: int, height: int) -> bytes:
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + struct.pack("<I", width - 1)[:3]
    body += struct.pack("<I", height - 1)[:3] + b"ANIM" + struct.pack("<IIH", 6, 0, 0)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _gif(width: int, height: int) -> bytes:
    frame = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02L\x01\0;"
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + frame


def _bmp(width: int, height: int) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 100, 0, 0, 54) + header


def _jpeg(width: int, height: int) -> bytes:
    plain = bytearray(saved(Image.fromarray(scene()), "JPEG"))
    at = plain.index(b"\xff\xc0")
    struct.pack_into(">HH", plain, at + 5, height, width)
    return bytes(plain)


def _tiff(width: int, height: int) -> bytes:
    plain = saved(Image.fromarray(scene()), "TIFF")
    return plain.replace(struct.pack("<HHII", 256, 4, 1, 48), struct.pack("<HHII", 256, 4, 1, width)).replace(
        struct.pack("<HHII", 257, 4, 1, 32), struct.pack("<HHII", 257, 4, 1, height)
    )


def _avif(width: int, height: int) -> bytes:
    plain = saved(Image.fromarray(scene()), "AVIF")
    at = plain.index(b"ispe") + 8
    return plain[:at] + struct.pack(">II", width, height) + plain[at + 8 :]


TINY = np.zeros((1, 1), np.uint8)
PICTURES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "media_unreadable"),
    "text": (b"hello, I am a picture" * 50, "media_type_unsupported"),
    "html": (b"<html><img src='file:///etc/passwd'></html>", "media_type_unsupported"),
    "svg that names a file": (b"<svg><image href='file:///etc/passwd'/></svg>", "media_type_unsupported"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd)run\n", "media_type_unsupported"),
    "pdf": (b"%PDF-1.7\n", "media_type_unsupported"),
    "photoshop": (b"8BPS\0\x01" + bytes(100), "media_type_unsupported"),
    "windows metafile": (b"\xd7\xcd\xc6\x9a" + bytes(100), "media_type_unsupported"),
    "a sound": (wav(bytes(100)), "media_type_unsupported"),
    "png of 40,000 x 40,000": (png(TINY, 8, 2, size=(40_000, 40_000)), "media_too_large"),
    "png of 2^31": (png(TINY, 8, 2, size=(0x7FFFFFFF, 0x7FFFFFFF)), "media_too_large"),
    "png of no size": (png(TINY, 8, 2, size=(0, 0)), "media_unreadable"),
    "png of unknown depth": (png(TINY, 8, 2)[:24] + b"\x63" + png(TINY, 8, 2)[25:], "media_unreadable"),
    "png without pixels": (png(TINY, 8, 2, size=(500, 500)), "media_unreadable"),
    "png with a false checksum": (png(TINY, 8, 0).replace(b"IDAT", b"IDAT\xff"), "media_unreadable"),
    "png header alone": (png(TINY, 8, 0)[:20], "media_unreadable"),
    "webp bomb": (_webp(16_384, 16_384), "media_too_large"),
    "animated webp bomb": (_webp_animation(1 << 24, 1 << 24), "media_too_large"),
    "gif bomb": (_gif(65_535, 65_535), "media_too_large"),
    "bmp bomb": (_bmp(60_000, 60_000), "media_too_large"),
    "bmp of negative size": (_bmp(-5, -(1 << 31)), "media_too_large"),
    "jpeg bomb": (_jpeg(65_500, 65_500), "media_too_large"),
    "tiff bomb": (_tiff(60_000, 60_000), "media_too_large"),
    "avif bomb": (_avif(60_000, 60_000), "media_unreadable"),
    "tiff whose directory points at itself": (b"II*\0\x08\0\0\0\x01\0" + bytes(12) + b"\x08\0\0\0", "media_unreadable"),
    "jpeg of markers alone": (b"\xff\xd8" + b"\xff\xe1\0\x02" * 1000, "media_unreadable"),
}

HLS = b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
RECORDINGS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "media_unreadable"),
    "text": (b"hello, I am a sound" * 50, "media_type_unsupported"),
    "noise": (np.random.default_rng(1).bytes(100_000), "media_type_unsupported"),
    "playlist that names a file": (HLS, "media_type_unsupported"),
    "concat script that names a file": (b"ffconcat version 1.0\nfile /etc/passwd\n", "media_type_unsupported"),
    "session description": (b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 9 RTP/AVP 96\n",
                            "media_type_unsupported"),
    "dash manifest": (b"<?xml?><MPD><BaseURL>file:///etc/passwd</BaseURL></MPD>", "media_type_unsupported"),
    "subtitles": (b"1\n00:00:00,000 --> 00:00:01,000\nhello\n" * 20, "media_type_unsupported"),
    "a picture": (saved(Image.fromarray(scene()), "PNG"), "media_type_unsupported"),
    "wav header alone": (wav(b"")[:30], "media_unreadable"),
    "wav of no sound": (wav(b""), "media_unreadable"),
    "wav of 4 GHz": (wav(bytes(4_000), rate=0xFFFFFFF0), "media_unreadable"),
    "wav of 1 Hz": (wav(bytes(4_000), rate=1), "media_unreadable"),
    "wav of 60,000 channels": (wav(bytes(240_000), channels=60_000), "media_unreadable"),
    "wav of no channels": (wav(bytes(4_000), channels=0), "media_unreadable"),
    "wav of an unknown codec": (wav(bytes(4_000), tag=0x1234), "media_type_unsupported"),
    "two hours": (wav(bytes(2 * 3_600 * 1_000), bits=8, rate=1_000), "media_too_long"),
    "two hours of a few packets": (sound("ogg", "libopus", tone(1, 48_000), 48_000), "media_too_long"),
    "half an mp4": (moov_first(video())[:3_000], "media_unreadable"),
    "mp4 header alone": (b"\0\0\0\x18ftypisom\0\0\0\0isomiso2", "media_unreadable"),
    "ogg page alone": (sound("ogg", "libopus", tone(1, 48_000), 48_000)[:60], "media_unreadable"),
    "matroska header alone": (video("matroska")[:60], "media_unreadable"),
    "flac header alone": (b"fLaC\0\0\0\x22" + bytes(34), "media_unreadable"),
    "id3 of 256 MB": (b"ID3\4\0\0\x7f\x7f\x7f\x7f" + bytes(1_000), "media_unreadable"),
}  # fmt: skip
_LATE = bytearray(RECORDINGS["two hours of a few packets"][0])


def _reaching_two_hours(ogg: bytes) -> bytes:
    """The last page says that it ends after two hours; its checksum is right."""
    data, last = bytearray(ogg), ogg.rindex(b"OggS")
    struct.pack_into("<q", data, last + 6, 2 * 3_600 * 48_000)
    struct.pack_into("<I", data, last + 22, 0)
    crc = 0
    for byte in data[last:]:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ 0x04C11DB7) & 0xFFFFFFFF if crc & 0x80000000 else crc << 1
    struct.pack_into("<I", data, last + 22, crc)
    return bytes(data)


RECORDINGS["two hours of a few packets"] = (_reaching_two_hours(bytes(_LATE)), "media_too_long")

INTERNALS = re.compile(r"errno|traceback|pillow|PIL|ffmpeg|libav|/tmp|\.py|0x[0-9a-f]{4}|<_io|none>", re.IGNORECASE)


def refused(kind: MediaKind, pool: EncoderKind, data: bytes, code: str) -> None:
    tracemalloc.start()
    began = time.perf_counter()
    try:
        with pytest.raises(MediaFault) as caught:
            decode(kind, pool, data, LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.code == code
    assert caught.value.message and not INTERNALS.search(caught.value.message)
    assert time.perf_counter() - began < 5
    assert peak < 64 << 20


@pytest.mark.parametrize("name", PICTURES)
def test_a_hostile_picture_is_refused(name: str) -> None:
    data, code = PICTURES[name]
    refused("image", "vision", data, code)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_hostile_recording_is_refused_as_sound(name: str) -> None:
    data, code = RECORDINGS[name]
    refused("audio", "audio", data, code)


@pytest.mark.parametrize("name", [one for one in RECORDINGS if not one.startswith(("wav", "two"))])
def test_a_hostile_recording_is_refused_as_video(name: str) -> None:
    data, code = RECORDINGS[name]
    refused("video", "vision", data, code)


def test_more_bytes_than_allowed_are_refused_unread() -> None:
    with pytest.raises(MediaFault) as caught:
        decode("image", "vision", bytes(100), MediaLimits(item_bytes=99))
    assert caught.value.code == "media_too_large"


CUT: dict[str, Callable[[], bytes]] = {
    "png": lambda: saved(Image.fromarray(scene(200, 200)), "PNG"),
    "jpeg": lambda: saved(Image.fromarray(scene(200, 200)), "JPEG"),
    "progressive jpeg": lambda: saved(Image.fromarray(scene(200, 200)), "JPEG", progressive=True),
    "webp": lambda: saved(Image.fromarray(scene(200, 200)), "WEBP"),
    "gif": lambda: saved(Image.fromarray(scene(200, 200)), "GIF"),
    "bmp": lambda: saved(Image.fromarray(scene(200, 200)), "BMP"),
    "tiff": lambda: saved(Image.fromarray(scene(200, 200)), "TIFF"),
    "lzw tiff": lambda: saved(Image.fromarray(scene(200, 200)), "TIFF", compression="tiff_lzw"),
    "avif": lambda: saved(Image.fromarray(scene(200, 200)), "AVIF"),
}


@pytest.mark.parametrize("format", CUT)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_a_picture_that_is_cut_off_is_refused(format: str, share: float) -> None:
    whole = CUT[format]()
    with pytest.raises(MediaFault) as caught:
        decode("image", "vision", whole[: int(len(whole) * share)], LIMITS)
    assert caught.value.code in ("media_unreadable", "media_type_unsupported")


def test_a_text_bomb_in_a_png_is_never_inflated() -> None:
    bomb = png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(50 << 20)))
    plain = png(np.zeros((8, 8, 3), np.uint8), 8, 2)
    tracemalloc.start()
    decode("image", "vision", plain[:33] + bomb * 20 + plain[33:], LIMITS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20


def test_a_profile_bomb_in_a_png_is_inflated_to_a_bound_only() -> None:
    bomb = (b"iCCP", b"icc\0\0" + zlib.compress(bytes(50 << 20)))
    tracemalloc.start()
    decode("image", "vision", png(np.zeros((8, 8, 3), np.uint8), 8, 2, before=[bomb]), LIMITS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.filterwarnings("ignore")
def test_bytes_changed_anywhere_are_read_or_refused_and_never_raise_anything_else() -> None:
    """Fixed seeds; in a worker such files go to a process of their own, so a crash there would not end it."""
    rng = np.random.default_rng(7)
    files: list[tuple[MediaKind, EncoderKind, bytes]] = [("image", "vision", make()) for make in CUT.values()]
    files += [("audio", "audio", sound("mp3", "libmp3lame", tone(0.3, 16_000), 16_000))]
    files += [("audio", "audio", wav(bytes(2_000))), ("video", "vision", video(times=range(5)))]
    for kind, pool, whole in files:
        for _ in range(25):
            data = bytearray(whole)
            for at in rng.integers(0, len(data), 5):
                data[at] = rng.integers(0, 256)
            try:
                decode(kind, pool, bytes(data), LIMITS)
            except MediaFault as fault:
                assert fault.code.startswith("media_")


def test_a_file_object_that_is_asked_for_by_name_is_never_opened(tmp_path: io.BytesIO) -> None:
    secret = f"{tmp_path}/secret.wav"
    with open(secret, "wb") as file:
        file.write(wav(bytes(32_000)))
    for script in (f"ffconcat version 1.0\nfile '{secret}'\n", f"#EXTM3U\n#EXTINF:10,\nfile://{secret}\n"):
        with pytest.raises(MediaFault):
            decode("audio", "audio", script.encode(), LIMITS)
