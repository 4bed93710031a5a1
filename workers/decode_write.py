"""Stands in for workers/media/write.py until that is there."""

import io
import wave
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from schemas.errors import TriptychError
from schemas.media import AudioFormat, ImageOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray


def picture(rgb: "NDArray[np.uint8]", options: ImageOptions) -> tuple[bytes, str]:
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, options.format, quality=options.quality)
    return out.getvalue(), f"image/{options.format}"


def sound(pcm: "NDArray[np.float32]", sample_rate: int, audio_format: AudioFormat) -> tuple[bytes, str]:
    if audio_format not in ("wav", "pcm16"):
        raise TriptychError("invalid_request", f"speech cannot be stored as {audio_format} yet", param="format")
    if audio_format == "pcm16" and sample_rate != 24_000:
        at = np.arange(0, len(pcm), sample_rate / 24_000)
        pcm, sample_rate = np.interp(at, np.arange(len(pcm)), pcm).astype(np.float32), 24_000
    raw = (np.clip(pcm, -1, 1) * 32_767).astype("<i2").tobytes()
    if audio_format == "pcm16":
        return raw, "audio/pcm"
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(raw)
    return out.getvalue(), "audio/wav"
