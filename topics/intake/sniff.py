"""What a media item is, by its first bytes: neither its name nor what the sender calls it can be trusted.

Only containers are told apart here; whether what is inside can be decoded, the encoder finds out.
"""

import msgspec

from schemas.media import MediaKind
from topics.intake.faults import MediaFault

# Enough for every signature below, and for two consecutive frames of MP3 or AAC.
HEAD_BYTES = 4_096


_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


class MediaType(msgspec.Struct, frozen=True):
    name: str  # as in a Content-Type header: one of ours, so "image/", "audio/" or "video/" and something

    @property
    def kind(self) -> MediaKind:
        """Of a container that may hold pictures and sound, video, though it may turn out to hold sound alone."""
        return _KINDS[self.name.partition("/")[0]]


def _image(name: str) -> MediaType:
    return MediaType(f"image/{name}")


def _audio(name: str) -> MediaType:
    return MediaType(f"audio/{name}")


def _video(name: str) -> MediaType:
    return MediaType(f"video/{name}")


_BEGINNINGS: tuple[tuple[bytes, MediaType], ...] = (
    (b"\x89PNG\r\n\x1a\n", _image("png")),
    (b"\xff\xd8\xff", _image("jpeg")),
    (b"GIF87a", _image("gif")),
    (b"GIF89a", _image("gif")),
    (b"II*\0", _image("tiff")),
    (b"MM\0*", _image("tiff")),
    (b"\0\0\0\x0cjP  \r\n\x87\n", _image("jp2")),
    (b"fLaC", _audio("flac")),
    (b"riff\x2e\x91\xcf\x11", _audio("x-w64")),
    (b"#!AMR-WB\n", _audio("amr-wb")),
    (b"#!AMR\n", _audio("amr")),
    (b".snd", _audio("basic")),
    (b"caff\0\1", _audio("x-caf")),
    (b"wvpk", _audio("x-wavpack")),
    (b"ID3", _audio("mpeg")),
    (b"FLV\1", _video("x-flv")),
    (b"\0\0\1\xba", _video("mpeg")),
    (b"0&\xb2u\x8ef\xcf\x11\xa6\xd9\0\xaa\0b\xcel", _video("x-ms-asf")),
)
# RIFF and its kin: four letters, a length, four letters.
_CHUNKED: dict[tuple[bytes, bytes], MediaType] = {
    (b"RIFF", b"WAVE"): _audio("wav"),
    (b"RF64", b"WAVE"): _audio("wav"),
    (b"RIFX", b"WAVE"): _audio("wav"),
    (b"RIFF", b"WEBP"): _image("webp"),
    (b"RIFF", b"AVI "): _video("x-msvideo"),
    (b"FORM", b"AIFF"): _audio("aiff"),
    (b"FORM", b"AIFC"): _audio("aiff"),
}
_BRANDS: dict[bytes, MediaType] = {
    b"avif": _image("avif"),
    b"avis": _image("avif"),
    b"heic": _image("heic"),
    b"heix": _image("heic"),
    b"heim": _image("heic"),
    b"heis": _image("heic"),
    b"mif1": _image("heif"),
    b"msf1": _image("heif"),
    b"M4A ": _audio("mp4"),
    b"M4B ": _audio("mp4"),
    b"qt  ": _video("quicktime"),
    b"3gp": _video("3gpp"),
}
# QuickTime files of old begin without a file type box, with one of these.
_ATOMS = (b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
_OGG_CODECS: tuple[tuple[bytes, MediaType], ...] = (
    (b"\x80theora", _video("ogg")),
    (b"BBCD\0", _video("ogg")),
)
_TS_PACKET_BYTES = 188
_SHORTEST_FRAME_BYTES = 24
_BMP_HEADERS = (12, 16, 40, 52, 56, 64, 108, 124)


def sniff(head: bytes) -> MediaType:
    """The type of what begins with `head`: at least HEAD_BYTES of it, or all there is.

    Raises:
        MediaFault: media_unreadable when empty, media_type_unsupported when it is none that can be read.
    """
    if not head:
        raise MediaFault("media_unreadable", "it is empty")
    found = _by_beginning(head) or _boxed(head) or _framed(head)
    if found is None:
        raise MediaFault(
            "media_type_unsupported", "by its bytes, it is no kind of image, sound or video that can be read"
        )
    return found


def check_kind(found: MediaType, expected: MediaKind | None) -> None:
    """Raises MediaFault: media_type_unsupported, when one kind was asked for and another came.

    A video does where sound is expected: its sound track is meant.
    """
    if expected in (None, found.kind) or (expected, found.kind) == ("audio", "video"):
        return
    raise MediaFault("media_type_unsupported", f"by its bytes it is {found.name}, where {expected} is expected")


def _by_beginning(head: bytes) -> MediaType | None:
    for beginning, found in _BEGINNINGS:
        if head.startswith(beginning):
            return found
    if head[:4] in (b"RIFF", b"RF64", b"RIFX", b"FORM"):
        return _CHUNKED.get((head[:4], head[8:12]))
    # Two letters alone would match too much text.
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return _image("bmp")
    return None


def _boxed(head: bytes) -> MediaType | None:
    """Containers that say themselves what they hold."""
    if head[4:8] == b"ftyp":
        return _iso(head)
    if head[4:8] in _ATOMS:
        return _video("quicktime")
    if head.startswith(b"\x1aE\xdf\xa3"):
        return _video("webm") if b"webm" in head[:64] else _video("x-matroska")
    if head.startswith(b"OggS"):
        first_page = head[27:64]
        return next((found for mark, found in _OGG_CODECS if mark in first_page), _audio("ogg"))
    packets = head[: 3 * _TS_PACKET_BYTES : _TS_PACKET_BYTES]
    return _video("mp2t") if packets == b"GGG" else None


def _iso(head: bytes) -> MediaType:
    """Of the ISO family, by its major brand."""
    brand = head[8:12]
    if brand in (b"mif1", b"msf1"):
        # "A picture of the HEIF family": the brands it is compatible with say of which codec.
        end = min(int.from_bytes(head[:4], "big"), len(head))
        others = (head[at : at + 4] for at in range(16, end, 4))
        brand = next((one for one in others if one in _BRANDS and one not in (b"mif1", b"msf1")), brand)
    return _BRANDS.get(brand) or _BRANDS.get(brand[:3]) or _video("mp4")


def _framed(head: bytes) -> MediaType | None:
    """MP3 and AAC without a container begin with a frame; two in a row are no accident."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    if head[1] & 0xF6 == 0xF0:
        length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5 if len(head) > 6 else 0
        return _audio("aac") if length > 6 and _again(head, length) else None
    version, layer, bitrate, rate = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 4, head[2] >> 2 & 3
    # Reserved values; and layer I, which nobody writes, and whose bytes begin much text in UTF-16.
    if version == 1 or layer in (0, 3) or bitrate == 15 or rate == 3:
        return None
    at = head.find(head[:2], _SHORTEST_FRAME_BYTES)
    return _audio("mpeg") if at > 0 and _again(head, at) else None


def _again(head: bytes, at: int) -> bool:
    """Another frame of the same make begins there: the same version, layer and sample rate."""
    return head[at : at + 2] == head[:2] and len(head) > at + 2 and head[at + 2] & 0x0C == head[2] & 0x0C
