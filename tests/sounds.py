"""Sound as pcm16 goes in, and as a player hears what came out."""

import io

import av
import numpy as np
from numpy.typing import NDArray

from schemas.media import PCM16_RATE_HZ, AudioFormat

# What a stream's encoder puts in front, at PCM16_RATE_HZ: only Ogg says to its player how much that is.
DELAY_SAMPLES: dict[AudioFormat, int] = {"mp3": 1_105, "aac": 1_024, "opus": 0, "pcm16": 0}
# Sound comes in frames: so much longer is what a player hears, at most.
FRAME_SAMPLES: dict[AudioFormat, int] = {"mp3": 576, "aac": 1_024, "opus": 0, "pcm16": 0}
# Players are told by the media type; of a moment of sound, FFmpeg could not guess it.
_DEMUXERS: dict[AudioFormat, str] = {"mp3": "mp3", "opus": "ogg", "aac": "aac"}


def pcm16(samples: NDArray[np.float32]) -> bytes:
    return np.round(samples * 32_767).astype("<i2").tobytes()


def heard(data: bytes, audio_format: AudioFormat) -> NDArray[np.float32]:
    """At PCM16_RATE_HZ."""
    if audio_format == "pcm16":
        return np.frombuffer(data, "<i2").astype(np.float32) / 32_767
    resampler = av.AudioResampler(format="flt", layout="mono", rate=PCM16_RATE_HZ)
    with av.open(io.BytesIO(data), format=_DEMUXERS.get(audio_format)) as file:
        frames = [one for frame in file.decode(audio=0) for one in resampler.resample(frame)]
    return np.concatenate([one.to_ndarray()[0] for one in [*frames, *resampler.resample(None)]])


def excess(data: bytes, audio_format: AudioFormat, samples: int) -> int:
    """How much longer than so many samples it is heard, beside the silence in front."""
    return len(heard(data, audio_format)) - DELAY_SAMPLES[audio_format] - samples
