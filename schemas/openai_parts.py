"""What the content of a message is made of: text, and media by URL, as base64 or as an uploaded file.

`detail` and `format` are hints that OpenAI defines: each encoder here has one resolution, and what a medium is its
bytes say. They are checked and change nothing.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(min_length=1)]


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    text: str


class RefusalPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="refusal"):
    """An earlier refusal of the assistant, given back as history."""

    refusal: str


class ImageUrl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: Text  # http(s): or data:
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class InputAudio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data: str  # base64 of the sound, or of a URL; an http(s): or data: URL
    format: Annotated[str, Meta(max_length=32)] | None = None


class AudioPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="input_audio"):
    input_audio: InputAudio


class VideoUrl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: Text


class VideoPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="video_url"):
    video_url: VideoUrl


class FileSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of the two: the id of an upload, or the bytes themselves."""

    file_id: Text | None = None
    file_data: str | None = None  # base64, or a data: URL
    filename: Annotated[str, Meta(max_length=512)] | None = None


class FilePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="file"):
    """An image, a sound or a video; its bytes say which."""

    file: FileSource


MediaPart = ImagePart | AudioPart | VideoPart | FilePart
_Parts = list[TextPart | RefusalPart | MediaPart]
TextOnly = str | Annotated[list[TextPart], Meta(min_length=1)]
Content = str | Annotated[_Parts, Meta(min_length=1, max_length=1_024)]
