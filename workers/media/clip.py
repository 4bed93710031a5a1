"""The pictures of a video: frames sampled evenly in time."""

from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from math import ceil

from av.container import InputContainer
from av.error import FFmpegError
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from schemas.manifest import MediaLimits
from workers.encoder import Clip, MediaFault, Picture
from workers.media import container as containers
from workers.media import frame as frames

_STEP_S = 0.5  # two frames a second at most
_FRAMES_PER_S = 240  # no camera's video has more
_OFFSET_S = 0.05  # pictures begin this much later than the sound, or at once


def read(data: bytes, limits: MediaLimits) -> Clip:
    """The frames that are on the screen every half second, or less often, so that they are not too many.

    Raises:
        MediaFault
    """
    containers.check_whole(data)
    with containers.opened(data, limits.image_pixels) as container:
        stream = next((one for one in container.streams.video if not containers.is_cover(one)), None)
        if stream is None:
            raise MediaFault("media_unreadable", "the file has no video in it")
        _check_header(container, stream, data, limits)
        video = _Video(container, stream, limits)
        video.check_whole(containers.claimed_s(container, stream, data))
        return video.clip(_offset_s(container, video.start_s))


def _check_header(container: InputContainer, stream: VideoStream, data: bytes, limits: MediaLimits) -> None:
    containers.check_codec(stream, "video")
    if stream.codec_context.width * stream.codec_context.height > limits.image_pixels:
        raise MediaFault("media_too_large", f"the video has more than {limits.image_pixels:,} pixels")
    _check_length(containers.claimed_s(container, stream, data) or 0.0, limits)


def _check_length(seconds: float, limits: MediaLimits) -> None:
    if seconds > limits.video_s:
        raise MediaFault("media_too_long", f"the video is longer than {limits.video_s:g} s")


def _offset_s(container: InputContainer, start_s: float) -> float:
    """How long the sound goes before the pictures begin."""
    sound_s = [containers.start_s(stream) for stream in container.streams.audio][:1]
    offset_s = start_s - (sound_s[0] if sound_s and sound_s[0] is not None else start_s)
    return offset_s if offset_s > _OFFSET_S else 0.0


class _Video:
    """The packets of one video, of which only those are decoded that wanted frames depend on."""

    def __init__(self, container: InputContainer, stream: VideoStream, limits: MediaLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._tick_s = stream.time_base or Fraction(1, 90_000)
        self._is_cut = False
        self._packets: list[Packet[VideoStream]] = []
        for packet in container.demux(stream):
            self._take(packet, is_marked_at_cuts=container.format.name.startswith("mov"))
        # Places of the packets to start decoding from, and when each is shown: not always in the same order.
        self._keys = [
            (place, packet.pts)
            for place, packet in enumerate(self._packets)
            if packet.is_keyframe and packet.pts is not None
        ]
        first = min((pts for _, pts in self._keys), default=None)
        self._shown = sorted(
            packet.pts
            for packet in self._packets
            if packet.pts is not None and not packet.is_discard and (first is None or packet.pts >= first)
        )
        if not self._shown:
            raise MediaFault("media_unreadable", "the video is broken or cut off")
        self._fed = -1  # the last packet that the decoder got
        self._failures = 0
        _check_length(self._length_s, limits)

    def _take(self, packet: "Packet[VideoStream]", is_marked_at_cuts: bool) -> None:
        if not packet.size:  # the end
            return
        self._packets.append(packet)
        self._is_cut |= packet.is_corrupt and is_marked_at_cuts
        if len(self._packets) > self._limits.video_s * _FRAMES_PER_S:
            raise MediaFault("media_too_large", "the video has too many frames")

    @property
    def start_s(self) -> float:
        return float(self._shown[0] * self._tick_s)

    @property
    def _length_s(self) -> float:
        last = self._shown[-1]
        duration = next((packet.duration for packet in self._packets if packet.pts == last), None)
        if not duration:
            duration = (last - self._shown[0]) // max(1, len(self._shown) - 1)
        return float((last - self._shown[0] + duration) * self._tick_s)

    def check_whole(self, claimed_s: float | None) -> None:
        if self._is_cut or (claimed_s is not None and claimed_s - self._length_s > max(0.5, 0.05 * claimed_s)):
            raise MediaFault("media_unreadable", "the file is cut off")

    def clip(self, offset_s: float) -> Clip:
        step_s = max(_STEP_S, self._length_s / self._limits.video_frames)
        count = max(1, ceil(self._length_s / step_s - 1e-6))
        starts = [self._shown[0] + int(place * step_s / self._tick_s + 1e-6) for place in range(count)]
        wanted = [self._shown[bisect_right(self._shown, start) - 1] for start in starts]
        pictures: dict[int, Picture] = {}
        for pts, frame in zip(dict.fromkeys(wanted), self._frames(list(dict.fromkeys(wanted))), strict=True):
            pictures[pts] = frames.picture(frame, self._stream.sample_aspect_ratio)
        return Clip([pictures[pts] for pts in wanted], [offset_s + place * step_s for place in range(count)])

    def _frames(self, wanted: list[int]) -> Iterator[VideoFrame]:
        """What is shown at each of `wanted` (ascending)."""
        self._stream.codec_context.options = {"max_pixels": str(self._limits.image_pixels)}
        decoded, shown, ahead = self._decoded(0), None, None
        for pts in wanted:
            key = self._key_before(pts)
            if key > self._fed + 1:
                self._stream.codec_context.flush_buffers()
                decoded, shown, ahead = self._decoded(key), None, None
            while ahead is None or _pts(ahead) <= pts:
                shown, ahead = ahead or shown, next(decoded, None)
                if ahead is None:
                    break
            frame = shown or ahead
            if frame is None or self._failures > max(2, 0.1 * len(self._packets)):
                raise MediaFault("media_unreadable", "the video is broken")
            yield frame

    def _key_before(self, pts: int) -> int:
        return max((place for place, shown in self._keys if shown <= pts), default=0)

    def _decoded(self, first: int) -> Iterator[VideoFrame]:
        for place in range(first, len(self._packets)):
            self._fed = place
            yield from self._decode(self._packets[place])
        yield from self._decode(None)

    def _decode(self, packet: "Packet[VideoStream] | None") -> list[VideoFrame]:
        try:
            return self._stream.codec_context.decode(packet)
        except FFmpegError:
            self._failures += 1
            return []


def _pts(frame: VideoFrame) -> int:
    return frame.pts if frame.pts is not None else frame.dts or 0
