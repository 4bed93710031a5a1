"""What a model drew or spoke, as files. The same pixels or samples give the same bytes."""

import io
from contextlib import closing
from fractions import Fraction

import av
import numpy as np
from av.audio.frame import AudioFrame
from numpy.typing import NDArray
from PIL import Image

from infra.sound_file import MEDIA_TYPES, SoundFile
from schemas.media import PCM16_RATE_HZ, AudioFormat, ImageOptions

# Encoders take these rates only; other sound is resampled to the next one above, or to the last.
_RATES: dict[AudioFormat, tuple[int, ...]] = {
    "mp3": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "opus": (8_000, 12_000, 16_000, 24_000, 48_000),
    "aac": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 64_000, 88_200, 96_000),
    "pcm16": (PCM16_RATE_HZ,),
}


def picture(rgb: NDArray[np.uint8], options: ImageOptions) -> tuple[bytes, str]:
    """The file and its media type; scaled to the size asked for, if it was drawn in another."""
    image = Image.fromarray(rgb)
    if image.size != (options.width, options.height):
        image = image.resize((options.width, options.height), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    if options.format == "png":
        image.save(file, "PNG")
    else:
        image.save(file, options.format.upper(), quality=options.quality)
    return file.getvalue(), f"image/{options.format}"


def sound(pcm: NDArray[np.float32], sample_rate: int, format: AudioFormat) -> tuple[bytes, str]:
    """The file and its media type. `pcm`: mono, -1..1; what is beyond is clipped.

    aac's stream has no place to say how much silence the encoder put in front: 21 ms of 48 kHz.
    """
    mono = np.clip(np.nan_to_num(pcm), -1, 1).astype(np.float32)
    mono, sample_rate = _at_a_rate_of(format, mono, sample_rate)
    if format == "pcm16":
        return np.round(mono * 32767).astype("<i2").tobytes(), MEDIA_TYPES[format]
    data = io.BytesIO()
    with closing(SoundFile(data, format, sample_rate)) as file:
        if len(mono):
            file.add(_frame(mono, sample_rate))
        file.end()
    return data.getvalue(), MEDIA_TYPES[format]


def _at_a_rate_of(format: AudioFormat, mono: NDArray[np.float32], rate: int) -> tuple[NDArray[np.float32], int]:
    rates = _RATES.get(format, (rate,))
    if rate in rates or not len(mono):
        return mono, rate if rate in rates else rates[-1]
    wanted = next((one for one in rates if one > rate), rates[-1])
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=wanted)
    frames = resampler.resample(_frame(mono, rate)) + resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]).astype(np.float32), wanted


def _frame(mono: NDArray[np.float32], rate: int) -> AudioFrame:
    frame = AudioFrame.from_ndarray(mono[None], format="fltp", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
    return frame
