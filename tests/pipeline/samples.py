"""Small media files, as their first bytes say."""

import base64

PNG = b"\x89PNG\r\n\x1a\n" + b"a picture"
OTHER_PNG = b"\x89PNG\r\n\x1a\n" + b"another picture"
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + b"a sound"
MP4 = b"\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isomiso2" + b"a video"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{b64(data)}"


def image(data: bytes = PNG) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": data_url(data)}}


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}
