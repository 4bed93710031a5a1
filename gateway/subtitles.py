"""What was heard, in the forms that OpenAI's transcriptions have. Pure."""

from collections.abc import Sequence

from schemas import codec
from schemas.events import Transcript
from schemas.media import Segment
from schemas.openai_audio import DurationUsage, Transcription, TranscriptionSegment, TranscriptionVerbose


def as_json(heard: Transcript) -> bytes:
    return codec.to_json(Transcription(heard.text, DurationUsage(heard.duration_s)))


def as_verbose_json(heard: Transcript) -> bytes:
    segments = [
        TranscriptionSegment(number, one.start_s, one.end_s, one.text) for number, one in enumerate(heard.segments)
    ]
    usage = DurationUsage(heard.duration_s)
    return codec.to_json(TranscriptionVerbose(heard.duration_s, heard.language, heard.text, segments, usage))


def as_text(heard: Transcript) -> bytes:
    return f"{heard.text}\n".encode()


def as_srt(heard: Transcript) -> bytes:
    blocks = [
        f"{number}\n{_clock(one.start_s, ',')} --> {_clock(one.end_s, ',')}\n{_line(one)}\n\n"
        for number, one in enumerate(_segments(heard), start=1)
    ]
    return "".join(blocks).encode()


def as_vtt(heard: Transcript) -> bytes:
    blocks = [f"{_clock(one.start_s, '.')} --> {_clock(one.end_s, '.')}\n{_line(one)}\n\n" for one in _segments(heard)]
    return ("WEBVTT\n\n" + "".join(blocks)).encode()


def deltas(heard: Transcript) -> list[str]:
    """The text in as many pieces as there are segments; put together, they are the text."""
    found: list[str] = []
    done = 0
    for segment in heard.segments:
        at = heard.text.find(segment.text.strip(), done)
        if at >= 0:
            end = at + len(segment.text.strip())
            found.append(heard.text[done:end])
            done = end
    found.append(heard.text[done:])
    return [one for one in found if one]


def _segments(heard: Transcript) -> Sequence[Segment]:
    """Of an encoder that tells none, one."""
    if heard.segments or not heard.text:
        return heard.segments
    return [Segment(0.0, heard.duration_s, heard.text)]


def _line(segment: Segment) -> str:
    """One line; an arrow in it would read as a time."""
    return " ".join(segment.text.split()).replace("-->", "->")


def _clock(seconds: float, point: str) -> str:
    ms = round(seconds * 1_000)
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1_000 % 60:02d}{point}{ms % 1_000:03d}"
