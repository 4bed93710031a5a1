"""What of a request's media the model can take and give. A capability it does not have is refused by name."""

from collections.abc import Sequence

import msgspec

from gateway.errors import unsupported
from schemas.errors import TriptychError
from schemas.manifest import Capability, Manifest
from schemas.openai_parts import AudioPart, ImagePart, MediaPart, RefusalPart, TextPart, VideoPart
from schemas.openai_request import ChatMessage, ChatRequest
from topics import plan

# OpenAI's voices, which its examples name: here, each of them is the model's first voice.
WELL_KNOWN_VOICES = frozenset(
    ["alloy", "ash", "ballad", "coral", "echo", "fable", "onyx", "nova", "sage", "shimmer", "verse", "marin", "cedar"]
)
IN: tuple[Capability, ...] = ("image_in", "audio_in", "video_in")
_NEEDED: dict[type[MediaPart], Capability] = {ImagePart: "image_in", AudioPart: "audio_in", VideoPart: "video_in"}


class Item(msgspec.Struct, frozen=True):
    """A media part of a message, and where it stands: "messages[0].content[1]"."""

    part: MediaPart
    param: str


def items_of(messages: Sequence[ChatMessage]) -> list[Item]:
    """In the order in which they stand; empty for text, which costs next to nothing."""
    return [
        Item(part, f"messages[{number}].content[{place}]")
        for number, message in enumerate(messages)
        if isinstance(message.content, list)
        for place, part in enumerate(message.content)
        if not isinstance(part, TextPart | RefusalPart)
    ]


def need(manifest: Manifest, capability: Capability, param: str) -> None:
    """Raises TriptychError: unsupported_parameter, which names the capability and the model."""
    if capability not in manifest.capabilities:
        raise unsupported(param, f"the model '{manifest.id}' has no capability '{capability}'")


def refuse(request: msgspec.Struct, fields: Sequence[str]) -> None:
    """Raises TriptychError: unsupported_parameter, for the first of the fields that is set to anything."""
    for name in fields:
        if getattr(request, name) not in (None, "", []):
            raise unsupported(name)


def check(request: ChatRequest, items: Sequence[Item], manifest: Manifest) -> None:
    """Raises TriptychError: a 400 that names the parameter."""
    if items:
        _check_items(items, manifest)
    if request.modalities is not None:
        _check_modalities(request.modalities, manifest)
    if request.audio is not None or request.speaks:
        _check_audio(request, manifest)
    if request.image is not None:
        need(manifest, "image_out", "image")
        plan.image_options(request)


def voice_of(manifest: Manifest, name: str, param: str) -> str:
    """The decoder's name of a voice; empty = its first.

    Raises:
        TriptychError: invalid_request, with the voices there are.
    """
    voices = manifest.decoders["audio"].voices
    if not name or name in voices:
        return name
    if name in WELL_KNOWN_VOICES:
        return ""
    known = ", ".join(voices) or "its only one"
    raise _invalid(param, f"has {name!r}, which is no voice of the model '{manifest.id}'; it has: {known}")


def _check_items(items: Sequence[Item], manifest: Manifest) -> None:
    for item in items:
        capability = _NEEDED.get(type(item.part))
        if capability is not None:
            need(manifest, capability, item.param)
        elif not any(one in manifest.capabilities for one in IN):  # a file; its bytes will say what it is
            need(manifest, "image_in", item.param)
    most = manifest.media.items
    if len(items) > most:
        message = f"'{items[most].param}' is one media item too many: this model takes at most {most} in a request."
        raise TriptychError("media_too_many", message, param=items[most].param)


def _check_modalities(modalities: Sequence[str], manifest: Manifest) -> None:
    if "audio" in modalities:
        need(manifest, "speech_out", "modalities")
    if "image" in modalities:
        need(manifest, "image_out", "modalities")
    if "text" not in modalities:
        raise _invalid("modalities", "must contain 'text'")


def _check_audio(request: ChatRequest, manifest: Manifest) -> None:
    need(manifest, "speech_out", "audio")
    if request.audio is None:
        raise TriptychError("missing_parameter", "Missing required parameter: 'audio'.", param="audio")
    if not request.speaks:
        raise _invalid("audio", "is only allowed when 'modalities' has 'audio'")
    if request.streamed and request.audio.format != "pcm16":
        raise _invalid("audio.format", "must be 'pcm16' when 'stream' is true")
    voice_of(manifest, request.voice, "audio.voice")


def _invalid(param: str, why: str) -> TriptychError:
    return TriptychError("invalid_request", f"Invalid value for '{param}': it {why}.", param=param)
