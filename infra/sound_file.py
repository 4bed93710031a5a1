"""Sound becomes a file: FFmpeg's encoders and containers, by PyAV. Without numpy, which a gateway does not have."""

import threading
from fractions import Fraction
from typing import NamedTuple, Protocol, cast

import av
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.codec.context import Flags

from schemas.media import PCM16_RATE_HZ, AudioFormat

# wav and flac have a header that tells the length of all that follows it. The others begin before their end is known.
STREAMED: frozenset[AudioFormat] = frozenset({"mp3", "opus", "aac", "pcm16"})
MEDIA_TYPES: dict[AudioFormat, str] = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "pcm16": "audio/pcm",
}


class _Form(NamedTuple):
    container: str
    codec: str
    sample_format: str
    options: dict[str, str]  # of the container


_FORMS: dict[AudioFormat, _Form] = {
    "wav": _Form("wav", "pcm_s16le", "s16", {}),
    "mp3": _Form("mp3", "libmp3lame", "fltp", {}),
    "flac": _Form("flac", "flac", "s16", {}),
    # Microseconds of sound in a page. It is written when the one after it is full: with FFmpeg's own 1 s, a sentence of
    # two seconds would wait for the next one.
    "opus": _Form("ogg", "libopus", "flt", {"page_duration": "100000"}),
    "aac": _Form("adts", "aac", "fltp", {}),
}
# Without it, muxers write their version and random stream numbers.
_BITEXACT = {"fflags": "+bitexact"}


class Writable(Protocol):
    """A file to write to. If it can `seek` too, headers that tell of the end are completed there."""

    def write(self, data: bytes, /) -> int: ...


class SoundFile:
    """One mono file being written, by one encoder from its first sample to its last.

    Lossy formats begin and end with a fraction of a frame of silence. Players cut it off again where the file says how
    much there is: in opus, and in an mp3 whose header could be completed.

    Raises:
        KeyError: pcm16 has no container.
        ValueError: the encoder does not take this rate.
    """

    def __init__(self, file: Writable, format: AudioFormat, sample_rate_hz: int) -> None:
        form = _FORMS[format]
        self._time_base = Fraction(1, sample_rate_hz)
        self._samples = 0
        self._output = av.open(file, "w", format=form.container, options=_BITEXACT | form.options)
        self._stream = cast("AudioStream", self._output.add_stream(form.codec, rate=sample_rate_hz, layout="mono"))
        self._stream.codec_context.format = form.sample_format
        self._stream.codec_context.flags |= Flags.bitexact
        self._output.start_encoding()  # a file of no sound has a header too

    def add(self, frame: AudioFrame) -> None:
        """Mono, at this file's rate, of any length but 0; all frames in one sample format."""
        frame.pts, frame.time_base = self._samples, self._time_base
        self._samples += frame.samples
        self._output.mux(self._stream.encode(frame))

    def end(self) -> None:
        """What the encoder still holds, and the container's last words."""
        self._output.mux(self._stream.encode(None))
        self.close()

    def close(self) -> None:
        """Free the encoder. Without `end` before, the file stops in the middle."""
        self._output.close()


class SoundPieces:
    """pcm16 in, stretch by stretch; one file out, in pieces whose bytes add up to it.

    Methods block for some milliseconds per second of sound, so they are called in threads. They take turns: a call that
    its caller has given up may still be at work when `close` comes.
    """

    def __init__(self, format: AudioFormat) -> None:
        self._format = format
        self._turn = threading.Lock()
        self._written = _Written()
        self._file: SoundFile | None = None  # not before there is something to encode
        self._closed = False

    def add(self, pcm16: bytes) -> bytes:
        """What of the file is ready now, perhaps nothing. Raises ValueError: half a sample."""
        return self._step(_frame(pcm16))

    def end(self) -> bytes:
        """The rest of the file."""
        return self._step(None)

    def close(self) -> None:
        """Free the encoder; from now on nothing comes. After `end`, this changes nothing."""
        with self._turn:
            self._closed = True
            if self._file is not None:
                self._file.close()

    def _step(self, frame: AudioFrame | None) -> bytes:
        with self._turn:
            if self._closed:
                return b""
            if self._file is None:
                self._file = SoundFile(self._written, self._format, PCM16_RATE_HZ)
            if frame is None:
                self._file.end()
            elif frame.samples:
                self._file.add(frame)
            return self._written.take()


class _Written:
    """A file that cannot be sought in, and is taken away as it grows."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes, /) -> int:
        self._data += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


def _frame(pcm16: bytes) -> AudioFrame:
    frame = AudioFrame(format="s16", layout="mono", samples=len(pcm16) // 2, align=1)
    frame.sample_rate = PCM16_RATE_HZ
    if pcm16:
        frame.planes[0].update(pcm16)
    return frame
