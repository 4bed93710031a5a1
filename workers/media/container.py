"""Opens files of sound and video.

FFmpeg also reads playlists, scripts and devices, which lead from the client's bytes to other files and hosts. Here
it may look for nothing but containers that hold their own media, may open nothing beside them, and may decode only
codecs in common use.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import av
from av.container import InputContainer
from av.error import FFmpegError
from av.stream import Disposition, Stream

from workers.encoder import MediaFault

_DEMUXERS = (
    "wav", "w64", "aiff", "au", "caf", "flac", "ogg", "mp3", "aac", "amr", "wv",
    "mov", "matroska", "avi", "mpegts", "mpeg", "flv", "asf",
)  # fmt: skip
_SOUND_CODECS = (
    "pcm_s8", "pcm_u8", "pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le", "pcm_s32be", "pcm_s64le",
    "pcm_f32le", "pcm_f32be", "pcm_f64le", "pcm_f64be", "pcm_alaw", "pcm_mulaw", "pcm_bluray", "pcm_dvd",
    "adpcm_ms", "adpcm_ima_wav", "adpcm_ima_qt", "adpcm_swf", "adpcm_yamaha", "g722",
    "g726", "gsm", "gsm_ms", "amrnb", "amrwb", "libopencore_amrnb", "libopencore_amrwb",
    "mp1", "mp1float", "mp2", "mp2float", "mp3", "mp3float", "aac", "aac_latm", "ac3", "eac3", "dca", "opus",
    "libopus", "vorbis", "speex", "flac", "alac", "wavpack", "tta", "wmav1", "wmav2", "wmapro",
)  # fmt: skip
_PICTURE_CODECS = (
    "h264", "hevc", "vp8", "vp9", "libdav1d", "av1", "mpeg4", "msmpeg4v2", "msmpeg4", "mpeg1video", "mpeg2video",
    "h263", "flv", "vp6", "vp6f", "theora", "mjpeg", "png", "qtrle", "prores", "dnxhd", "ffv1", "huffyuv",
    "utvideo", "rawvideo", "wmv1", "wmv2", "wmv3", "vc1", "cinepak",
)  # fmt: skip
_OPTIONS = {
    "format_whitelist": ",".join(_DEMUXERS),
    "codec_whitelist": ",".join(_SOUND_CODECS + _PICTURE_CODECS),
    "protocol_whitelist": "none",
}
_SIGNATURES = (
    b"RIFF", b"RF64", b"RIFX", b"FORM", b".snd", b"caff", b"fLaC", b"OggS", b"ID3", b"#!AMR", b"wvpk", b"FLV\1",
    b"\x1aE\xdf\xa3", b"\0\0\1\xba", b"0&\xb2u", b"riff",
)  # fmt: skip


@contextmanager
def opened(data: bytes, max_pixels: int) -> Iterator[InputContainer]:
    """The container in `data`. Whatever FFmpeg raises inside the `with` is a fault of the media.

    Raises:
        MediaFault
    """
    if not data:
        raise MediaFault("media_unreadable", "the file is empty (0 bytes)")
    try:
        with av.open(
            io.BytesIO(data),
            "r",
            options={**_OPTIONS, "max_pixels": str(max_pixels)},
            metadata_errors="ignore",
            io_open=_refuse,
        ) as container:
            yield container
    except MemoryError as error:
        raise MediaFault("media_too_large", "the file needs too much memory to decode") from error
    except (FFmpegError, ValueError, OSError) as error:
        raise _fault(data) from error


def _refuse(*_: object) -> NoReturn:
    raise PermissionError("media may not refer to other files")


def _fault(data: bytes) -> MediaFault:
    is_known = data.startswith(_SIGNATURES) or data[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
    if is_known or data[:2] in (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xf1", b"\xff\xf9"):
        return MediaFault("media_unreadable", "the file is broken or cut off")
    return MediaFault("media_type_unsupported", "not a file of sound or video that can be read")


def check_codec(stream: Stream, what: str) -> None:
    """
    Raises:
        MediaFault: the stream's codec is not one that is decoded here.
    """
    # A stream without a decoder has no codec context, which PyAV's types do not say.
    context = getattr(stream, "codec_context", None)
    if context is None or context.name not in _SOUND_CODECS + _PICTURE_CODECS:
        raise MediaFault("media_type_unsupported", f"the {what} is coded in a way that is not supported")


def is_cover(stream: Stream) -> bool:
    """A picture of the album, not a video."""
    return bool(stream.disposition & (Disposition.attached_pic | Disposition.timed_thumbnails))


_ESTIMATED = ("aac", "amr", "mpegts", "mpeg")  # formats without a length: FFmpeg guesses one by the bit rate


def claimed_s(container: InputContainer, stream: Stream, data: bytes) -> float | None:
    """How long the header says that `stream` is; None = it does not say."""
    name = container.format.name
    if name in _ESTIMATED or (name == "mp3" and not _mp3_has_length(data)):
        return None
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is not None and len(container.streams) == 1:
        return container.duration / 1_000_000 - max(start_s(stream) or 0.0, 0.0)  # Matroska counts from zero
    return None


def _mp3_has_length(data: bytes) -> bool:
    """Its first frame may hold the number of frames in the place of sound."""
    at = 0
    if data.startswith(b"ID3") and len(data) > 10:
        at = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(data[6:10], (21, 14, 7, 0), strict=True))
    first = data[at : at + 256]
    return b"Xing" in first or b"Info" in first or b"VBRI" in first


def start_s(stream: Stream) -> float | None:
    if stream.start_time is None or stream.time_base is None:
        return None
    return float(stream.start_time * stream.time_base)


_UNKNOWN_BYTES = 0x7FFF_0000  # writers that stream cannot know the size: they put zero, or about as much as fits
_SLACK_BYTES = 16  # sizes off by a header or a padding byte are usual


def check_whole(data: bytes) -> None:
    """FFmpeg plays what is there and does not tell that more was promised; some containers say how long they are.

    Raises:
        MediaFault: `data` ends before the container does.
    """
    missing = 0
    if data[:4] in (b"RIFF", b"FORM") and len(data) >= 8:
        size = int.from_bytes(data[4:8], "little" if data[:4] == b"RIFF" else "big")
        missing = size + 8 - len(data) - _SLACK_BYTES if size < _UNKNOWN_BYTES else 0
    elif data.startswith(b"OggS"):
        last = data.rindex(b"OggS")
        table = data[last + 27 : last + 27 + data[last + 26]] if len(data) > last + 26 else b""
        missing = last + 27 + len(table) + sum(table) - len(data)
    elif data.startswith(b"caff"):
        missing = _caf_end(data) - len(data)
    if missing > 0:
        raise MediaFault("media_unreadable", "the file is cut off")


def _caf_end(data: bytes) -> int:
    """Where the sound in a CAF ends; a size below zero is not known."""
    at = 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 12], "big", signed=True)
        at += 12 + size
        if size < 0 or data[at - 12 - size : at - 8 - size] == b"data":
            break
    return at
