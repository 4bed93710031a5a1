"""A legal but unusual video shows the same, at the same times, as its plain form."""

import io
import struct
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Colorspace
from numpy.typing import NDArray

from schemas.manifest import MediaLimits
from tests.unit.workers.media.recordings import corners, moov_first, tone, video
from workers.encoder import Clip, MediaFault
from workers.media import clip

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def seen(data: bytes, **limits: Any) -> Clip:
    return clip.read(data, MediaLimits(**limits))


def close(rgb: NDArray[np.uint8], colour: tuple[int, ...], tolerance: int = 6) -> bool:
    return bool(np.abs(rgb.astype(int) - colour).max() <= tolerance)


def places(shown: Clip) -> list[int]:
    """Which of the frames that `corners` drew."""
    middle = [frame.rgb[frame.rgb.shape[0] // 2, frame.rgb.shape[1] // 2].astype(int).mean() for frame in shown.frames]
    return [round(value / 8) for value in middle]


def test_a_plain_video_is_sampled_twice_a_second_from_its_first_frame_on() -> None:
    shown = seen(video())
    assert shown.at_s == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert places(shown) == [0, 5, 10, 15, 20, 25]
    first = shown.frames[0].rgb
    assert first.shape == (64, 96, 3)
    assert close(first[8, 8], RED) and close(first[8, -8], GREEN) and close(first[-8, 8], BLUE)


def test_a_longer_video_is_sampled_evenly_and_not_beyond_the_number_of_frames() -> None:
    shown = seen(video(), video_frames=4)
    assert shown.at_s == [0.0, 0.75, 1.5, 2.25]
    assert places(shown) == [0, 7, 15, 22]


@pytest.mark.parametrize(
    ("format", "codec", "pixels", "options"),
    [
        ("avi", "mpeg4", "yuv420p", {"bf": "2"}),
        ("mpegts", "libx264", "yuv420p", {"bf": "2", "g": "7"}),
        ("mpeg", "mpeg2video", "yuv420p", {"bf": "2", "b": "4000000"}),
        ("webm", "libvpx", "yuv420p", {"b": "2000000", "deadline": "realtime"}),
        ("webm", "libvpx-vp9", "yuv420p", {"b": "0", "deadline": "realtime"}),
        ("matroska", "libx264", "yuv444p", {"g": "9"}),
        ("mp4", "libx264", "yuv420p10le", {}),
        ("mov", "prores_ks", "yuv422p10le", {}),
        ("matroska", "ffv1", "yuv420p", {}),
    ],
)
def test_any_container_and_codec_shows_the_same_frames(
    format: str, codec: str, pixels: str, options: dict[str, str]
) -> None:
    rate = 25 if codec == "mpeg2video" else 10
    shown = seen(video(format, codec, rate=rate, pixels=pixels, codec_options=options))
    step = rate / 2
    assert len(shown.frames) == len(shown.at_s) == (3 if rate == 25 else 6)
    expected = [int(place * step + 1e-9) for place in range(len(shown.frames))]
    assert all(abs(got - wanted) <= 1 for got, wanted in zip(places(shown), expected, strict=True))
    # Colours come at half the size.
    assert close(shown.frames[0].rgb[8, 8], RED, 16)


def test_only_what_is_needed_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decode, decoded = clip._Video._decode, []

    def counted(self: Any, packet: Any) -> list[av.VideoFrame]:
        decoded.append(packet)
        return decode(self, packet)

    monkeypatch.setattr(clip._Video, "_decode", counted)
    assert places(seen(video(codec_options={"g": "3"}), video_frames=3)) == [0, 10, 20]
    assert len(decoded) < 20


def test_it_is_the_same_as_when_all_is_decoded() -> None:
    keyed = seen(video(codec_options={"g": "3", "bf": "2"}), video_frames=3)
    whole = seen(video(codec_options={"g": "300", "bf": "2"}), video_frames=3)
    assert places(keyed) == places(whole) == [0, 10, 20]


def test_uneven_frames_are_sampled_by_time_and_not_by_number() -> None:
    shown = seen(video(times=[0, 1, 2, 3, 22, 23, 24, 30]))
    assert places(shown) == [0, 3, 3, 3, 3, 6, 7]
    assert shown.at_s == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]


MATRICES = {
    "upright": ((1, 0, 0, 1), lambda rgb: rgb),
    "a quarter right": ((0, 1, -1, 0), lambda rgb: np.rot90(rgb)),
    "half": ((-1, 0, 0, -1), lambda rgb: rgb[::-1, ::-1]),
    "a quarter left": ((0, -1, 1, 0), lambda rgb: np.rot90(rgb, -1)),
    "mirrored": ((-1, 0, 0, 1), lambda rgb: rgb[:, ::-1]),
    "upside down": ((1, 0, 0, -1), lambda rgb: rgb[::-1]),
    "transposed": ((0, 1, 1, 0), lambda rgb: rgb.transpose(1, 0, 2)),
    "transposed the other way": ((0, -1, -1, 0), lambda rgb: rgb[::-1, ::-1].transpose(1, 0, 2)),
}


@pytest.mark.parametrize("turn", MATRICES)
def test_a_video_filmed_at_any_turn_is_shown_upright(turn: str) -> None:
    (a, b, c, d), stored = MATRICES[turn]
    data = bytearray(video(times=range(3), draw=lambda place: np.ascontiguousarray(stored(corners(place)))))
    at = data.index(b"tkhd") + 44
    struct.pack_into(">9i", data, at, a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)
    rgb = seen(bytes(data)).frames[0].rgb
    assert rgb.shape == (64, 96, 3)
    assert close(rgb[8, 8], RED, 16) and close(rgb[8, -8], GREEN, 16) and close(rgb[-8, 8], BLUE, 16)


@pytest.mark.parametrize(("aspect", "size"), [((2, 1), (64, 192)), ((1, 2), (128, 96)), ((1, 1), (64, 96))])
def test_pixels_that_are_not_square_are_stretched(aspect: tuple[int, int], size: tuple[int, int]) -> None:
    def prepare(stream: Any) -> None:
        stream.sample_aspect_ratio = Fraction(*aspect)
        stream.codec_context.sample_aspect_ratio = Fraction(*aspect)

    assert seen(video(times=range(3), prepare=prepare)).frames[0].rgb.shape[:2] == size


COLOURS = np.array([[200, 40, 60], [30, 160, 90], [60, 70, 210], [16, 16, 16], [240, 240, 240], [128, 128, 128]])


def blocks(_: int) -> NDArray[np.uint8]:
    return np.kron(COLOURS.reshape(2, 3, 3), np.ones((32, 32, 1))).astype(np.uint8)


@pytest.mark.parametrize("matrix", [Colorspace.ITU601, Colorspace.ITU709, Colorspace.BT2020])
@pytest.mark.parametrize("range_", [ColorRange.MPEG, ColorRange.JPEG])
def test_colours_are_the_same_in_every_matrix_and_range(matrix: Colorspace, range_: ColorRange) -> None:
    codes = {Colorspace.ITU601: 6, Colorspace.ITU709: 1, Colorspace.BT2020: 9}

    def convert(frame: av.VideoFrame) -> av.VideoFrame:
        return frame.reformat(
            format="yuv444p",
            dst_colorspace=matrix,
            src_color_range=ColorRange.JPEG,
            dst_color_range=range_,
        )

    def prepare(stream: Any) -> None:
        stream.codec_context.colorspace = codes[matrix]
        stream.codec_context.color_range = range_

    data = video("matroska", times=range(3), draw=blocks, pixels="yuv444p", prepare=prepare, convert=convert)
    shown = seen(data).frames[0].rgb[16::32, 16::32].reshape(-1, 3)
    assert np.abs(shown.astype(int) - COLOURS).max() <= 5


def test_full_range_motion_jpeg_keeps_its_black_and_white() -> None:
    data = video("avi", "mjpeg", times=range(3), draw=blocks, pixels="yuvj444p", codec_options={"q": "1"})
    shown = seen(data).frames[0].rgb[16::32, 16::32].reshape(-1, 3)
    assert np.abs(shown.astype(int) - COLOURS).max() <= 8


def test_high_definition_without_a_word_on_its_colours_is_read_as_players_do() -> None:
    def large(_: int) -> NDArray[np.uint8]:
        return np.kron(COLOURS.reshape(2, 3, 3), np.ones((360, 64, 1))).astype(np.uint8)

    def convert(frame: av.VideoFrame) -> av.VideoFrame:
        return frame.reformat(format="yuv444p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG)

    data = video("matroska", times=range(2), draw=large, pixels="yuv444p", convert=convert)
    shown = seen(data).frames[0].rgb[180::360, 32::64].reshape(-1, 3)
    assert np.abs(shown.astype(int) - COLOURS).max() <= 5


def test_alpha_shows_white_behind() -> None:
    def half(place: int) -> NDArray[np.uint8]:
        return np.concatenate([corners(place), np.full((64, 96, 1), 128, np.uint8)], axis=-1)

    data = video(
        "mov", "qtrle", times=range(3), draw=half, pixels="argb", convert=lambda frame: frame.reformat(format="argb")
    )
    rgb = seen(data).frames[0].rgb
    assert close(rgb[8, 8], (255, 127, 127), 2)
    assert close(rgb[32, 48], (127, 127, 127), 2)


def test_a_video_that_begins_in_the_middle_shows_from_its_first_whole_frame_on() -> None:
    """As broadcasts are recorded: without the packets before the first key frame."""
    file = io.BytesIO()
    with av.open(io.BytesIO(video("mpegts", codec_options={"g": "10", "sc_threshold": "0"}))) as source:
        stream = source.streams.video[0]
        with av.open(file, "w", format="mpegts") as target:
            copy = target.add_stream_from_template(stream)
            for packet in list(source.demux(stream))[5:]:
                if packet.size:
                    packet.stream = copy
                    target.mux(packet)
    shown = seen(file.getvalue())
    assert places(shown) == [10, 15, 20, 25]
    assert shown.at_s == [0.0, 0.5, 1.0, 1.5]


def test_time_stamps_that_do_not_start_at_zero_are_counted_from_the_first() -> None:
    shown = seen(video("matroska", times=range(50, 80)))
    assert shown.at_s[:2] == [0.0, 0.5]
    assert places(shown)[:2] == [0, 5]


def test_pictures_that_begin_after_the_sound_keep_their_distance() -> None:
    shown = seen(video("matroska", times=range(20, 40), with_sound=tone(4.0, 48_000)))
    assert shown.at_s[0] == pytest.approx(2.0, abs=0.03)
    assert places(shown)[:3] == [0, 5, 10]


def test_large_frames_are_scaled_down_in_proportion() -> None:
    data = video(times=range(1), draw=lambda place: corners(place, 2880, 1600), codec_options={"preset": "ultrafast"})
    height, width = seen(data).frames[0].rgb.shape[:2]
    assert height * width <= 1920 * 1088 and abs(width / height - 1.8) < 0.01


@pytest.mark.parametrize("format", ["mp4", "matroska", "webm", "avi", "flv"])
def test_half_a_video_is_refused(format: str) -> None:
    codec = {"webm": "libvpx", "avi": "mpeg4", "flv": "flv"}.get(format, "libx264")
    whole = video(format, codec, times=range(60))
    for data in (whole, moov_first(whole)) if format == "mp4" else (whole,):
        assert seen(data).frames
        with pytest.raises(MediaFault) as caught:
            seen(data[: len(data) // 2])
        assert caught.value.code == "media_unreadable"


def test_video_longer_larger_or_of_more_frames_than_allowed_is_refused() -> None:
    data = video()
    for code, limits in (("media_too_long", {"video_s": 2.0}), ("media_too_large", {"image_pixels": 6_000})):
        with pytest.raises(MediaFault) as caught:
            seen(data, **limits)
        assert caught.value.code == code
    with pytest.raises(MediaFault, match="longer than 2 s"):
        seen(video("mpegts"), video_s=2.0)  # its header does not say how long it is
    with pytest.raises(MediaFault, match="too many frames"):
        seen(video("matroska", rate=1000, times=range(300)), video_s=1.0)


def test_sampling_is_deterministic() -> None:
    data = video(codec_options={"bf": "2"})
    first, second = seen(data), seen(data)
    assert all((one.rgb == two.rgb).all() for one, two in zip(first.frames, second.frames, strict=True))
