"""Sound, alone or of a video: bytes to 16 kHz mono, as heard through one loudspeaker."""

from collections.abc import Iterator
from typing import Any

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.layout import AudioLayout
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.error import FFmpegError
from numpy.typing import NDArray

from schemas.manifest import MediaLimits
from schemas.media import MediaKind
from workers.encoder import MediaFault, Sound
from workers.media import container as containers

RATE = 16_000
_RATES = range(1_000, 768_001)
_CHANNELS = 64
_GAP_S = 0.1  # time stamps jump by less from rounding alone
_LOUDEST = 1e12  # of floating point samples; some writers scale to integers, none to more

Pcm = NDArray[np.float32]


def read(data: bytes, kind: MediaKind, limits: MediaLimits) -> Sound:
    """The first sound track; of a video without one, an empty sound.

    A video's sound begins with silence as long as its track comes after its pictures.

    Raises:
        MediaFault
    """
    containers.check_whole(data)
    with containers.opened(data, limits.image_pixels) as container:
        stream = next(iter(container.streams.audio), None)
        if stream is None:
            return _without_sound(container, kind)
        claimed_s = containers.claimed_s(container, stream, data)
        track = _Track(container, stream, limits.audio_s if kind == "audio" else limits.video_s, claimed_s)
        pcm = _one_loudspeaker(track.read(_pictures_start_s(container)))
        return Sound(pcm) if len(pcm) else _without_sound(container, kind)


def _without_sound(container: InputContainer, kind: MediaKind) -> Sound:
    if kind == "video" and any(not containers.is_cover(stream) for stream in container.streams.video):
        return Sound(np.zeros(0, np.float32))
    raise MediaFault("media_unreadable", "the file has no sound")


def _pictures_start_s(container: InputContainer) -> float | None:
    starts = [containers.start_s(stream) for stream in container.streams.video if not containers.is_cover(stream)]
    return starts[0] if starts else None


class _Track:
    """One sound track being read: decoded, brought to one or two channels, to 16 kHz, and to its place in time."""

    def __init__(self, container: InputContainer, stream: AudioStream, limit_s: float, claimed_s: float | None) -> None:
        self._container = container
        self._stream = stream
        self._limit_s = limit_s
        self._claimed_s = claimed_s
        self._faults = _Faults()
        self._rows = 0  # channels kept: 1 or 2, known with the first frame
        self._heard_s = 0.0  # so far, at the source's rate
        self._resampler = av.AudioResampler(format="fltp", rate=RATE)
        self._rate = 0  # what the resampler gets now

    def read(self, start_s: float | None) -> Pcm:
        """[rows, samples]; `start_s` is where zero is in the track's time, if that is before its first sample."""
        self._check_header()
        pieces: list[Pcm] = []
        origin_s = start_s
        for frame in self._frames():
            if origin_s is None or (not pieces and (frame.time or 0.0) < origin_s):
                origin_s = frame.time or 0.0
            pieces += self._silence_before(frame, origin_s)
            pieces += self._resampled(_folded(frame, self._rows), frame.sample_rate)
        pieces += self._flushed()
        pcm = np.concatenate(pieces, axis=1) if pieces else np.zeros((1, 0), np.float32)
        self._faults.check()
        return self._trimmed(pcm, start_s or 0.0)

    def _check_header(self) -> None:
        containers.check_codec(self._stream, "sound")
        if self._stream.sample_rate not in _RATES or not 0 < self._stream.channels <= _CHANNELS:
            raise MediaFault("media_unreadable", "the sound has an impossible sample rate or number of channels")
        if self._claimed_s is not None:
            self._check_length(self._claimed_s)

    def _check_length(self, seconds: float) -> None:
        if seconds > self._limit_s:
            raise MediaFault("media_too_long", f"the sound is longer than {self._limit_s:g} s")

    def _frames(self) -> Iterator[AudioFrame]:
        for packet in self._container.demux(self._stream):
            try:
                frames = packet.decode()
            except FFmpegError:
                frames = []
                self._faults.packets += 1
            self._faults.all += 1
            self._faults.is_cut |= packet.is_corrupt and self._container.format.name.startswith("mov")
            for frame in frames:
                if not frame.samples:
                    continue
                if frame.sample_rate not in _RATES or not 0 < frame.layout.nb_channels <= _CHANNELS:
                    raise MediaFault("media_unreadable", "the sound is broken")
                self._rows = self._rows or min(frame.layout.nb_channels, 2)
                yield frame

    def _silence_before(self, frame: AudioFrame, origin_s: float) -> list[Pcm]:
        """Time stamps with a hole, as senders leave when nobody speaks, stand for silence."""
        at_s = origin_s if frame.time is None else frame.time
        gap_s = at_s - origin_s - self._heard_s
        self._check_length(self._heard_s + max(gap_s, 0) + frame.samples / frame.sample_rate)
        pieces: list[Pcm] = []
        if gap_s > _GAP_S or (gap_s > 0 and not self._heard_s):
            left = round(gap_s * frame.sample_rate)
            while left > 0:
                part = min(left, frame.sample_rate)
                pieces += self._resampled(np.zeros((self._rows, part), np.float32), frame.sample_rate)
                left -= part
        return pieces

    def _resampled(self, pcm: Pcm, rate: int) -> list[Pcm]:
        self._heard_s += pcm.shape[1] / rate
        pieces: list[Pcm] = []
        if rate != self._rate:
            pieces = self._flushed()
            self._resampler, self._rate = av.AudioResampler(format="fltp", rate=RATE), rate
        frame = AudioFrame.from_ndarray(pcm, format="fltp", layout="mono" if self._rows == 1 else "stereo")
        frame.sample_rate = rate
        return pieces + [_samples(piece) for piece in self._resampler.resample(frame)]

    def _flushed(self) -> list[Pcm]:
        if not self._rate or self._rate == RATE:  # nothing is kept back
            return []
        return [_samples(piece) for piece in self._resampler.resample(None)]

    def _trimmed(self, pcm: Pcm, start_s: float) -> Pcm:
        """Without what an encoder added to fill its last frame."""
        if self._claimed_s is None:
            return pcm
        begin_s = max((containers.start_s(self._stream) or 0.0) - start_s, 0.0)
        samples = round((begin_s + self._claimed_s) * RATE)
        if samples - pcm.shape[1] > max(0.5, 0.05 * self._claimed_s) * RATE:
            raise MediaFault("media_unreadable", "the file is cut off")
        surplus = pcm.shape[1] - samples
        return pcm[:, :samples] if 0 < surplus < _GAP_S * RATE else pcm


class _Faults:
    """A damaged packet among many is heard as a click; many are no sound."""

    def __init__(self) -> None:
        self.packets = 0
        self.all = 0
        self.is_cut = False

    def check(self) -> None:
        if self.is_cut:
            raise MediaFault("media_unreadable", "the file is cut off")
        if self.packets > max(2, 0.02 * self.all) or self.packets == self.all:
            raise MediaFault("media_unreadable", "the sound is broken")


def _samples(frame: AudioFrame) -> Pcm:
    return np.asarray(frame.to_ndarray(), np.float32)


def _folded(frame: AudioFrame, rows: int) -> Pcm:
    """A frame of any layout and sample width as `rows` channels (2: left and right) of floats."""
    samples: NDArray[Any] = _packed(frame).to_ndarray().reshape(-1, frame.layout.nb_channels).T
    pcm = _floats(samples)
    if len(pcm) == 1:
        return np.repeat(pcm, rows, axis=0)
    pair = pcm if len(pcm) == 2 else _shares(frame.layout) @ pcm
    return np.ascontiguousarray(pair if rows == 2 else pair.mean(axis=0, keepdims=True))


def _packed(frame: AudioFrame) -> AudioFrame:
    """Not by numpy: PyAV loses count of the planes of a frame that has eight or more."""
    if not frame.format.is_planar or frame.layout.nb_channels == 1:
        return frame
    (packed,) = av.AudioResampler(format=frame.format.packed).resample(frame)
    return packed


def _floats(samples: NDArray[Any]) -> Pcm:
    pcm: Pcm = np.nan_to_num(samples.astype(np.float32), nan=0.0).clip(-_LOUDEST, _LOUDEST)
    if samples.dtype == np.uint8:
        pcm = (pcm - np.float32(128)) / np.float32(128)
    elif samples.dtype.kind == "i":
        pcm = pcm / np.float32(1 << (8 * samples.dtype.itemsize - 1))
    return pcm


# How much of a loudspeaker goes to the left and to the right (ITU-R BS.775, and its like for more of them). The
# subwoofer is left out, as everywhere.
_HALF_POWER = 0.5**0.5
_LEFT = dict.fromkeys(("FL", "FLC", "DL", "WL"), 1.0) | dict.fromkeys(("SL", "BL", "TFL", "TSL", "TBL"), _HALF_POWER)
_RIGHT = dict.fromkeys(("FR", "FRC", "DR", "WR"), 1.0) | dict.fromkeys(("SR", "BR", "TFR", "TSR", "TBR"), _HALF_POWER)
_BOTH = {"FC": _HALF_POWER, "BC": 0.5, "TC": 0.5, "TFC": 0.5, "TBC": 0.5}
_SUBWOOFERS = ("LFE", "LFE2")


# Where the channels stand when a file of so many does not say it.
_GUESSED = {6: ["FL", "FR", "FC", "LFE", "BL", "BR"], 8: ["FL", "FR", "FC", "LFE", "BL", "BR", "SL", "SR"]}


def _shares(layout: AudioLayout) -> Pcm:
    names = [channel.name for channel in layout.channels]
    known = {*_LEFT, *_RIGHT, *_BOTH, *_SUBWOOFERS}
    if not known.issuperset(names):
        names = _GUESSED.get(len(names), names)
    if not known.issuperset(names):
        return np.full((2, len(names)), 1 / len(names), np.float32)
    sides = [[side.get(name, _BOTH.get(name, 0.0)) for name in names] for side in (_LEFT, _RIGHT)]
    return np.array(sides, np.float32)


def _one_loudspeaker(pcm: Pcm) -> Pcm:
    """Both channels together; where they cancel out (one wired the wrong way round), what is between them."""
    mono = pcm.mean(axis=0)
    if len(pcm) == 2:
        between = (pcm[0] - pcm[1]) / 2
        if np.dot(mono, mono) < 0.01 * np.dot(between, between):
            mono = between
    peak = np.abs(mono).max(initial=0.0)
    return np.ascontiguousarray(mono / peak if peak > 1 else mono, np.float32)
