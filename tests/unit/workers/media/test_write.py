"""Files that are written are read back as what they were made of."""

import io
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from schemas.manifest import MediaLimits
from schemas.media import AudioFormat, ImageOptions
from tests.unit.workers.media.pictures import scene
from tests.unit.workers.media.recordings import tone
from workers.encoder import Picture, Sound
from workers.media import decode, write

SCENE = scene()


def read_picture(data: bytes) -> Picture:
    decoded = decode("image", "vision", data, MediaLimits())
    assert isinstance(decoded, Picture)
    return decoded


@pytest.mark.parametrize(("format", "tolerance"), [("png", 0), ("jpeg", 3), ("webp", 3)])
def test_a_picture_is_read_back_as_it_was(format: str, tolerance: float) -> None:
    options = ImageOptions(format=format, width=48, height=32, quality=95)  # type: ignore[arg-type]  # a str of three
    data, media_type = write.picture(SCENE, options)
    assert media_type == f"image/{format}"
    assert Image.open(io.BytesIO(data)).format == format.upper()
    assert np.abs(read_picture(data).rgb.astype(int) - SCENE).mean() <= tolerance
    assert write.picture(SCENE, options) == (data, media_type)


def test_lower_quality_is_smaller_and_the_size_asked_for_is_the_size_made() -> None:
    noisy = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    sizes = [len(write.picture(noisy, ImageOptions("jpeg", 64, 64, quality=quality))[0]) for quality in (20, 60, 95)]
    assert sizes == sorted(sizes) and sizes[0] < sizes[2] / 2
    data, _ = write.picture(SCENE, ImageOptions("png", 96, 64))
    enlarged = read_picture(data).rgb
    assert enlarged.shape == (64, 96, 3)
    assert np.abs(enlarged[::2, ::2].astype(int) - SCENE).mean() < 4


MEDIA_TYPES = {
    "wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "opus": "audio/ogg", "aac": "audio/aac",
    "pcm16": "audio/pcm",
}  # fmt: skip


@pytest.mark.parametrize("format", get_args(AudioFormat))
@pytest.mark.parametrize("rate", [16_000, 22_050, 24_000, 44_100, 48_000, 96_000])
def test_sound_is_read_back_as_it_was_and_as_long(format: AudioFormat, rate: int) -> None:
    data, media_type = write.sound(tone(1.5, rate), rate, format)
    assert media_type == MEDIA_TYPES[format]
    assert write.sound(tone(1.5, rate), rate, format)[0] == data
    plain = tone(1.5, 16_000)
    if format == "pcm16":
        samples = np.frombuffer(data, "<i2").astype(np.float32) / 32_767
        assert abs(len(samples) - 36_000) <= 1
        assert np.abs(samples[200:-200] - tone(1.5, 24_000)[200 : len(samples) - 200]).max() < 0.01
        return
    decoded = decode("audio", "audio", data, MediaLimits())
    assert isinstance(decoded, Sound)
    extra = len(decoded.pcm) - len(plain)
    # ADTS has no place to say that the first 1,024 samples, and the last ones, are filling.
    assert 0 <= extra <= 16_000 * 2_048 / min(rate, 48_000) + 1_024 if format == "aac" else abs(extra) <= 2
    lag = round(1_024 * 16_000 / min(rate, 96_000)) if format == "aac" else 0
    pcm = decoded.pcm[lag : lag + len(plain)]
    size = min(len(pcm), len(plain))
    assert np.corrcoef(pcm[:size], plain[:size])[0, 1] > (0.999 if format in ("wav", "flac") else 0.97)


@pytest.mark.parametrize("format", get_args(AudioFormat))
def test_silence_no_sound_and_too_loud_sound_are_files_too(format: AudioFormat) -> None:
    for pcm in (np.zeros(2_400, np.float32), np.full(2_400, 7.0, np.float32), np.full(2_400, np.nan, np.float32)):
        data, _ = write.sound(pcm, 24_000, format)
        assert len(data) > 40
    data, _ = write.sound(np.zeros(0, np.float32), 24_000, format)
    assert (len(data) > 0) is (format not in ("pcm16", "aac"))  # these have no header


@pytest.mark.parametrize(("format", "header"), [("wav", 44), ("pcm16", 0)])
def test_too_loud_sound_is_clipped_and_does_not_wrap_around(format: AudioFormat, header: int) -> None:
    data, _ = write.sound(np.array([2.0, -2.0] * 100, np.float32), 24_000, format)
    samples = np.frombuffer(data[header:], "<i2")
    assert samples[::2].min() == 32_767 and samples[1::2].max() <= -32_767
