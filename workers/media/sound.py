"""Sound, alone or of a video: bytes to 16 kHz mono, as heard through one loudspeaker."""

from collections.abc import Iterator

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.error import FFmpegError

from schemas.manifest import MediaLimits
from schemas.media import MediaKind
from workers.encoder import MediaFault, Sound
from workers.media import container as containers
from workers.media.channels import Pcm, Unpacker, folded, one_loudspeaker

RATE = 16_000
_RATES = range(1_000, 768_001)
_CHANNELS = 64
_GAP_S = 0.1  # time stamps jump by less from rounding alone
_LOUDEST = 1e12  # of floating point samples; some writers scale to integers, none to more


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
        pcm = one_loudspeaker(track.read(_pictures_start_s(container)))
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
        self._unpacker = Unpacker()
        self._rows = 0  # channels kept: 1 or 2, known with the first frame
        self._heard_s = 0.0  # so far, at the source's rate
        self._resampler = _Resampler()

    def read(self, start_s: float | None) -> Pcm:
        """[rows, samples]; `start_s` is where zero is in the track's time, if that is before its first sample."""
        self._check_header()
        origin_s = start_s
        for frame in self._frames():
            at_s = frame.time or 0.0
            if not self._heard_s:
                origin_s = at_s if origin_s is None else min(origin_s, at_s)
            self._keep_silence(frame, at_s - (origin_s or 0.0) - self._heard_s)
            self._keep(folded(self._unpacker.channels(frame), frame.layout, self._rows), frame.sample_rate)
        pcm = self._resampler.finish()
        self._faults.check()
        return self._trimmed(pcm, start_s)

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

    def _keep_silence(self, frame: AudioFrame, gap_s: float) -> None:
        """Time stamps with a hole, as senders leave when nobody speaks, stand for silence."""
        self._check_length(self._heard_s + max(gap_s, 0) + frame.samples / frame.sample_rate)
        if gap_s > _GAP_S or (gap_s > 0 and not self._heard_s):
            left = round(gap_s * frame.sample_rate)
            while left > 0:
                part = min(left, frame.sample_rate)
                self._keep(np.zeros((self._rows, part), np.float32), frame.sample_rate)
                left -= part

    def _keep(self, pcm: Pcm, rate: int) -> None:
        self._heard_s += pcm.shape[1] / rate
        self._resampler.feed(pcm, rate)

    def _trimmed(self, pcm: Pcm, start_s: float | None) -> Pcm:
        """Without what an encoder added to fill its last frame."""
        if self._claimed_s is None:
            return pcm
        begin_s = 0.0 if start_s is None else max((containers.start_s(self._stream) or 0.0) - start_s, 0.0)
        samples = round((begin_s + self._claimed_s) * RATE)
        if samples - pcm.shape[1] > max(0.5, 0.05 * self._claimed_s) * RATE:
            raise MediaFault("media_unreadable", "the file is cut off")
        surplus = pcm.shape[1] - samples
        return pcm[:, :samples] if 0 < surplus < _GAP_S * RATE else pcm


class _Resampler:
    """To 16 kHz, a second at a time: frames of compressed sound are far shorter, and each call costs."""

    def __init__(self) -> None:
        self._rate = 0
        self._resampler = av.AudioResampler()
        self._block: list[Pcm] = []
        self._samples = 0  # in the block
        self._done: list[Pcm] = []

    def feed(self, pcm: Pcm, rate: int) -> None:
        """[channels, samples] of 1 or 2 channels; always as many. The rate may change on the way."""
        if rate != self._rate:
            self._flush()
            self._resampler, self._rate = av.AudioResampler(format="fltp", rate=RATE), rate
        self._block.append(pcm)
        self._samples += pcm.shape[1]
        if self._samples >= rate:
            self._resample()

    def finish(self) -> Pcm:
        self._flush()
        return np.concatenate(self._done, axis=1) if self._done else np.zeros((1, 0), np.float32)

    def _resample(self) -> None:
        block = np.concatenate(self._block, axis=1)
        self._block, self._samples = [], 0
        finite = np.nan_to_num(block, nan=0.0).clip(-_LOUDEST, _LOUDEST)
        frame = AudioFrame.from_ndarray(finite, format="fltp", layout="mono" if len(finite) == 1 else "stereo")
        frame.sample_rate = self._rate
        self._done += [_samples(piece) for piece in self._resampler.resample(frame)]

    def _flush(self) -> None:
        if self._block:
            self._resample()
        if self._rate not in (0, RATE):  # at the same rate nothing is kept back
            self._done += [_samples(piece) for piece in self._resampler.resample(None)]


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
