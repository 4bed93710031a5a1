"""Channels of sound: from frames as FFmpeg has them to what one loudspeaker plays."""

from typing import Any

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.layout import AudioLayout
from numpy.typing import NDArray

_PLANES = 8  # PyAV loses count of the planes of a frame that has so many or more

Pcm = NDArray[np.float32]


class Unpacker:
    """Frames as arrays [channels, samples]."""

    def __init__(self) -> None:
        self._packer = av.AudioResampler()
        self._packs: tuple[object, ...] = ()

    def channels(self, frame: AudioFrame) -> NDArray[Any]:
        count = frame.layout.nb_channels
        if frame.format.is_planar and count < _PLANES:
            return frame.to_ndarray()
        if frame.format.is_planar:
            frame = self._packed(frame)
        return frame.to_ndarray().reshape(-1, count).T

    def _packed(self, frame: AudioFrame) -> AudioFrame:
        form = (frame.format.name, frame.layout.name, frame.sample_rate)
        if form != self._packs:
            self._packer, self._packs = av.AudioResampler(format=frame.format.packed), form
        (packed,) = self._packer.resample(frame)
        return packed


def folded(samples: NDArray[Any], layout: AudioLayout, rows: int) -> Pcm:
    """[channels, samples] of any layout and sample width as `rows` channels (2: left and right) of floats."""
    pcm = _floats(samples)
    if len(pcm) == 1:
        return np.repeat(pcm, rows, axis=0)
    pair = pcm if len(pcm) == 2 else _shares(layout) @ pcm
    return np.ascontiguousarray(pair if rows == 2 else pair.mean(axis=0, keepdims=True))


def _floats(samples: NDArray[Any]) -> Pcm:
    pcm: Pcm = samples.astype(np.float32)
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


def one_loudspeaker(pcm: Pcm) -> Pcm:
    """Both channels together; where they cancel out (one wired the wrong way round), what is between them."""
    mono = pcm.mean(axis=0)
    if len(pcm) == 2:
        between = (pcm[0] - pcm[1]) / 2
        if np.dot(mono, mono) < 0.01 * np.dot(between, between):
            mono = between
    peak = np.abs(mono).max(initial=0.0)
    return np.ascontiguousarray(mono / peak if peak > 1 else mono, np.float32)
