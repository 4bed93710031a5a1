"""`python -m tests.bench.speech_files --json FILE`: what a gateway pays to make a sound file of speech, by format.

Sound goes through the encoder that speech goes through, a second at a time. Reported: processor time of a second of
sound (noise, which is as dear as sound can be), and how much silence comes before it when the file is played (of a
tone, which begins at once and has no echo before it).
"""

import argparse
import io
import math
import random
import struct
import time
from collections.abc import Iterable
from pathlib import Path

import av
import msgspec

from infra.sound_file import STREAMED, SoundPieces
from schemas.media import PCM16_RATE_HZ, AudioFormat
from tests.bench import published

TONE_HZ, LOUD, SECONDS = 440.0, 0.5, 60
HEARD = 0.25  # of full scale: the sound has begun


class Format(msgspec.Struct, frozen=True):
    format: AudioFormat
    cpu_ms_per_s: float  # of sound
    silence_ms: float  # before the first sound


def noise() -> bytes:
    """A second, pcm16."""
    rng = random.Random(1)
    return _pcm16(rng.uniform(-LOUD, LOUD) for _ in range(PCM16_RATE_HZ))


def tone() -> bytes:
    """A second, pcm16, loud from the first sample."""
    return _pcm16(LOUD * math.cos(2 * math.pi * TONE_HZ * number / PCM16_RATE_HZ) for number in range(PCM16_RATE_HZ))


def _pcm16(waves: Iterable[float]) -> bytes:
    return b"".join(struct.pack("<h", round(32_767 * wave)) for wave in waves)


def measure(format: AudioFormat, seconds: int) -> Format:
    second = noise()
    begun = time.process_time()
    encoded(format, second, seconds)
    cpu_s = time.process_time() - begun
    silent_s = silence_s(encoded(format, tone(), 1))
    return Format(format, round(cpu_s * 1e3 / seconds, 2), round(silent_s * 1e3, 1))


def encoded(format: AudioFormat, second: bytes, seconds: int) -> io.BytesIO:
    pieces, file = SoundPieces(format), io.BytesIO()
    for _ in range(seconds):
        file.write(pieces.add(second))
    file.write(pieces.end())
    return file


def silence_s(file: io.BytesIO) -> float:
    """Before the first sample that can be heard."""
    file.seek(0)
    passed = 0
    with av.open(file, "r") as opened:
        for frame in opened.decode(audio=0):
            loud = [number for number, value in enumerate(frame.to_ndarray().ravel()) if abs(value) > HEARD]
            if loud:
                return (passed + loud[0]) / frame.sample_rate
            passed += frame.samples
    raise ValueError("nothing can be heard")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench.speech_files", description=__doc__)
    made.add_argument("--json", type=Path, help="write the figures here")
    made.add_argument("--seconds", type=int, default=SECONDS, help="of sound, per format")
    return made


def main() -> None:
    given = parser().parse_args()
    formats = [measure(format, given.seconds) for format in ("mp3", "opus", "aac")]
    assert {each.format for each in formats} == STREAMED - {"pcm16"}
    for each in formats:
        print(f"{each.format}: {each.cpu_ms_per_s} ms a second of sound, {each.silence_ms} ms of silence before it")
    if given.json:
        published.write(given.json, "none", {"seconds": given.seconds, "formats": formats})


if __name__ == "__main__":
    main()
