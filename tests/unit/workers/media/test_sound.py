"""A legal but unusual sound is heard the same as its plain form."""

import struct
from fractions import Fraction
from io import BytesIO

import av
import numpy as np
import pytest
from av.stream import Disposition

from schemas.manifest import MediaLimits
from schemas.media import MediaKind
from tests.unit.workers.media.recordings import Pcm, corners, moov_first, sound, tone, video, wav
from workers.encoder import MediaFault
from workers.media import clip
from workers.media import sound as reading

PLAIN = tone(1.0, 16_000)
S16 = np.round(PLAIN * 32768).astype("<i2")


def heard(data: bytes, kind: MediaKind = "audio") -> Pcm:
    pcm = reading.read(data, kind, MediaLimits()).pcm
    assert pcm.dtype == np.float32
    return pcm


def same(pcm: Pcm, plain: Pcm, tolerance: float, *, length: int = 1) -> None:
    """`tolerance`: of any sample, but for the ends, where filters have nothing to look at; `length`: in samples."""
    assert abs(len(pcm) - len(plain)) <= length
    end = min(len(pcm), len(plain)) - 200
    assert np.abs(pcm[200:end] - plain[200:end]).max() <= tolerance


def alike(pcm: Pcm, plain: Pcm, *, lag: int = 0) -> None:
    """For lossy codecs: the same shape in time and the same loudness, `lag` samples late."""
    size = min(len(pcm) - lag, len(plain))
    late, early = pcm[lag : lag + size].astype(np.float64), plain[:size].astype(np.float64)
    assert np.dot(late, early) / (np.linalg.norm(late) * np.linalg.norm(early)) > 0.97
    assert 0.85 < np.linalg.norm(late) / np.linalg.norm(early) < 1.15


def test_a_plain_wav_is_read_exactly() -> None:
    same(heard(wav(S16.tobytes())), PLAIN, 2e-5)


def _s24(pcm: Pcm) -> bytes:
    return (np.round(pcm * 2**23).astype("<i4") << 8).view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()


@pytest.mark.parametrize(
    ("samples", "tag", "bits", "tolerance"),
    [
        (np.round(PLAIN * 128 + 128).astype(np.uint8).tobytes(), 1, 8, 0.005),
        (_s24(PLAIN), 1, 24, 1e-6),
        (np.round(PLAIN * 2.0**31).astype("<i4").tobytes(), 1, 32, 1e-6),
        (PLAIN.astype("<f4").tobytes(), 3, 32, 1e-6),
        (PLAIN.astype("<f8").tobytes(), 3, 64, 1e-6),
    ],
    ids=["u8", "s24", "s32", "f32", "f64"],
)
def test_any_sample_width_sounds_the_same(samples: bytes, tag: int, bits: int, tolerance: float) -> None:
    same(heard(wav(samples, tag=tag, bits=bits)), PLAIN, tolerance)
    same(heard(wav(samples, tag=tag, bits=bits, mask=4)), PLAIN, tolerance)


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000])
def test_any_sample_rate_sounds_the_same(rate: int) -> None:
    samples = np.round(tone(1.0, rate) * 32768).astype("<i2").tobytes()
    same(heard(wav(samples, rate=rate)), PLAIN, 0.002)


def test_what_16_khz_cannot_hold_is_filtered_out_and_not_folded_back() -> None:
    samples = np.round(tone(1.0, 96_000, hz=30_000) * 32768).astype("<i2").tobytes()
    assert np.abs(heard(wav(samples, rate=96_000))[200:-200]).max() < 0.005


@pytest.mark.parametrize(("format", "codec"), [("aiff", "pcm_s16be"), ("au", "pcm_s16be"), ("caf", "pcm_s24be"),
                                               ("w64", "pcm_s16le"), ("flac", "flac"), ("ipod", "alac"),
                                               ("caf", "pcm_f32be"), ("matroska", "pcm_f32le")])  # fmt: skip
def test_lossless_formats_sound_the_same(format: str, codec: str) -> None:
    same(heard(sound(format, codec, PLAIN, 16_000)), PLAIN, 1e-4)


@pytest.mark.parametrize("codec", ["pcm_alaw", "pcm_mulaw"])
@pytest.mark.parametrize("format", ["wav", "au"])
def test_companded_samples_sound_the_same(format: str, codec: str) -> None:
    same(heard(sound(format, codec, PLAIN, 16_000)), PLAIN, 0.02)


@pytest.mark.parametrize(("format", "codec"), [("wav", "adpcm_ms"), ("wav", "adpcm_ima_wav"), ("mov", "adpcm_ima_qt")])
def test_adpcm_sounds_the_same(format: str, codec: str) -> None:
    alike(heard(sound(format, codec, PLAIN, 16_000)), PLAIN)


@pytest.mark.parametrize(
    ("format", "codec", "rate", "layout"),
    [("mp3", "libmp3lame", 44_100, "stereo"), ("ipod", "aac", 44_100, "stereo"), ("ogg", "libopus", 48_000, "stereo"),
     ("webm", "libopus", 48_000, "mono"), ("ogg", "vorbis", 44_100, "stereo"),
     ("mp3", "libmp3lame", 16_000, "mono")],
)  # fmt: skip
def test_what_encoders_put_in_front_is_trimmed(format: str, codec: str, rate: int, layout: str) -> None:
    strict = {"strict": "-2"} if codec == "vorbis" else {}
    plain = tone(2.0, 16_000)
    pcm = heard(sound(format, codec, tone(2.0, rate), rate, layout, codec_options=strict))
    alike(pcm, plain, lag=256 * 16_000 // rate if codec == "ac3" else 0)  # AC-3 has no place to state its delay
    assert abs(len(pcm) - len(plain)) <= 0.006 * 16_000


def test_wav_with_odd_chunks_and_a_long_header_sounds_the_same() -> None:
    before = b"LIST" + struct.pack("<I", 10) + b"INFOISFTab" + b"bext" + struct.pack("<I", 7) + bytes(8)
    same(heard(wav(S16.tobytes(), before=before)), PLAIN, 2e-5)


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_a_streamed_wav_that_does_not_know_its_size_is_read_to_its_end(size: int) -> None:
    same(heard(wav(S16.tobytes(), size=size)), PLAIN, 2e-5)


LAYOUTS = {
    "3.0": (0x7, ["FL", "FR", "FC"]),
    "quad": (0x33, ["FL", "FR", "BL", "BR"]),
    "5.1": (0x3F, ["FL", "FR", "FC", "LFE", "BL", "BR"]),
    "5.1(side)": (0x60F, ["FL", "FR", "FC", "LFE", "SL", "SR"]),
    "7.1": (0x63F, ["FL", "FR", "FC", "LFE", "BL", "BR", "SL", "SR"]),
}


def surround(rows: Pcm, layout: str) -> bytes:
    samples = np.round(rows.T * 32767).astype("<i2").tobytes()
    return wav(samples, channels=len(rows), mask=LAYOUTS[layout][0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_sound_in_every_channel_is_that_sound_and_never_clips(layout: str) -> None:
    loud = tone(1.0, 16_000, level=0.95)
    pcm = heard(surround(np.tile(loud, (len(LAYOUTS[layout][1]), 1)), layout))
    share = np.dot(pcm, loud) / np.dot(loud, loud)
    same(pcm, loud * np.float32(share), 1e-3)
    assert share > 0.9
    assert np.abs(pcm).max() <= 1


@pytest.mark.parametrize(
    ("layout", "speaker"), [(name, one) for name, (_, names) in LAYOUTS.items() for one in names if one != "LFE"]
)
def test_what_only_one_loudspeaker_plays_is_heard(layout: str, speaker: str) -> None:
    names = LAYOUTS[layout][1]
    rows = np.zeros((len(names), len(PLAIN)), np.float32)
    rows[names.index(speaker)] = PLAIN
    pcm = heard(surround(rows, layout))
    share = np.dot(pcm, PLAIN) / np.dot(PLAIN, PLAIN)
    same(pcm, PLAIN * np.float32(share), 1e-3)
    assert share == pytest.approx(
        {"F": 0.5, "S": 0.354, "B": 0.354}[speaker[0]] if speaker != "FC" else 0.707, abs=0.01
    )


def test_stereo_of_one_sound_is_as_loud_as_mono() -> None:
    same(heard(sound("wav", "pcm_s16le", PLAIN, 16_000, "stereo")), PLAIN, 1e-4)


@pytest.mark.parametrize(("format", "codec", "rate"), [("ipod", "aac", 48_000), ("ogg", "libopus", 48_000)])
def test_compressed_sound_of_eight_channels_is_read(format: str, codec: str, rate: int) -> None:
    options = {"mapping_family": "1"} if codec == "libopus" else {}
    pcm = heard(sound(format, codec, tone(1.0, rate, level=0.2), rate, "7.1", codec_options=options))
    corr = np.corrcoef(pcm[: len(PLAIN)], PLAIN[: len(pcm)])[0, 1]
    assert corr > 0.95


def test_six_channels_without_a_word_on_where_they_stand_are_taken_for_surround() -> None:
    rows = np.zeros((6, len(PLAIN)), np.float32)
    rows[2] = PLAIN
    samples = np.round(rows.T * 32767).astype("<i2").tobytes()
    same(heard(wav(samples, channels=6)), PLAIN * np.float32(0.5**0.5), 1e-3)


def test_a_wav_that_does_not_say_where_its_channels_stand_is_mixed_evenly() -> None:
    rows = np.repeat(S16[:, None], 4, axis=1)
    same(heard(wav(rows.astype("<i2").tobytes(), channels=4)), PLAIN, 1e-3)


def test_a_channel_wired_the_wrong_way_round_does_not_silence_the_other() -> None:
    pcm = heard(sound("wav", "pcm_s16le", np.stack([PLAIN, -PLAIN]), 16_000, "stereo"))
    same(pcm, PLAIN, 1e-3)


def test_stereo_of_two_different_sounds_is_their_mean() -> None:
    other = tone(1.0, 16_000, hz=1_000)
    pcm = heard(sound("wav", "pcm_s16le", np.stack([PLAIN, other]), 16_000, "stereo"))
    same(pcm, (PLAIN + other) / 2, 1e-3)


def test_floats_beyond_full_scale_are_scaled_and_not_clipped() -> None:
    pcm = heard(wav((PLAIN * 30_000).astype("<f4").tobytes(), tag=3, bits=32))
    same(pcm, PLAIN / np.abs(PLAIN).max(), 1e-4)
    broken = PLAIN.copy()
    broken[5:8] = np.nan
    assert np.isfinite(heard(wav(broken.astype("<f4").tobytes(), tag=3, bits=32))).all()


def test_silence_in_front_is_kept() -> None:
    late = np.concatenate([np.zeros(16_000, np.float32), PLAIN])
    for format, codec in (("wav", "pcm_s16le"), ("flac", "flac"), ("ipod", "aac")):
        pcm = heard(sound(format, codec, late, 16_000))
        assert abs(len(pcm) - len(late)) < 200
        alike(pcm, late)


def test_the_sound_of_a_video_is_its_track_and_starts_where_it_starts() -> None:
    at_once = heard(video(with_sound=tone(2.0, 48_000)), "video")
    alike(at_once, tone(2.0, 16_000))
    late = heard(video(with_sound=tone(2.0, 48_000), sound_at=48_000), "video")
    assert abs(len(late) - len(at_once) - 16_000) < 400
    assert np.abs(late[:15_500]).max() < 0.01
    alike(late[len(late) - 32_000 :], tone(2.0, 16_000))


def at_times(*starts: int) -> bytes:
    """PLAIN at each of these times, in samples."""
    file = BytesIO()
    with av.open(file, "w", format="matroska") as container:
        stream = container.add_stream("pcm_s16le", rate=16_000, layout="mono")
        for start in starts:
            frame = av.AudioFrame.from_ndarray(S16[None], format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 16_000, start, Fraction(1, 16_000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


def test_sound_alone_begins_with_its_first_sample_whatever_time_that_bears() -> None:
    same(heard(at_times(80_000)), PLAIN, 1e-3)


def test_a_hole_in_the_time_stamps_is_silence() -> None:
    pcm = heard(at_times(0, 48_000))
    assert abs(len(pcm) - 64_000) < 50
    assert np.abs(pcm[16_100:47_900]).max() == 0
    same(pcm[48_000:], PLAIN, 1e-3, length=50)


def test_a_video_without_sound_has_an_empty_sound_and_a_file_of_pictures_alone_none() -> None:
    assert len(heard(video(), "video")) == 0
    with pytest.raises(MediaFault, match="no sound") as caught:
        heard(video(), "audio")
    assert caught.value.code == "media_unreadable"


def test_the_cover_of_an_album_is_no_video() -> None:
    with_cover = BytesIO()
    plain = sound("mp3", "libmp3lame", PLAIN, 16_000)
    with av.open(BytesIO(plain)) as source, av.open(with_cover, "w", format="mp3") as target:
        stream = target.add_stream_from_template(source.streams.audio[0])
        cover = target.add_stream("png", rate=1)
        cover.width, cover.height, cover.pix_fmt = 96, 64, "rgb24"
        cover.disposition = Disposition.attached_pic
        target.mux(cover.encode(av.VideoFrame.from_ndarray(corners(0), format="rgb24")))
        target.mux(cover.encode(None))
        for packet in source.demux(source.streams.audio[0]):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    alike(heard(with_cover.getvalue()), PLAIN)
    with pytest.raises(MediaFault, match="no video"):
        clip.read(with_cover.getvalue(), MediaLimits())


@pytest.mark.parametrize(
    ("format", "codec"), [("wav", "pcm_s16le"), ("flac", "flac"), ("mp3", "libmp3lame"), ("ogg", "libopus"),
                          ("webm", "libopus"), ("aiff", "pcm_s16be"), ("ipod", "aac"), ("caf", "pcm_s16le")]
)  # fmt: skip
def test_half_a_file_is_refused(format: str, codec: str) -> None:
    rate = 48_000 if codec == "libopus" else 16_000
    whole = sound(format, codec, tone(4.0, rate), rate)
    for data in (whole, moov_first(whole)) if format == "ipod" else (whole,):
        heard(data)
        with pytest.raises(MediaFault) as caught:
            heard(data[: len(data) // 2])
        assert caught.value.code == "media_unreadable"


def test_sound_longer_than_allowed_is_refused_by_its_header_and_by_what_is_in_it() -> None:
    limits = MediaLimits(audio_s=2.0, video_s=1.0)
    lying = bytearray(sound("flac", "flac", tone(3.0, 16_000), 16_000))
    lying[21:26] = bytes([lying[21] & 0xF0, 0, 0, 0, 0])  # total samples: not known
    long = [sound("wav", "pcm_s16le", tone(3.0, 16_000), 16_000), sound("mp3", "libmp3lame", tone(3.0, 16_000), 16_000)]
    for data in (*long, bytes(lying)):
        with pytest.raises(MediaFault) as caught:
            reading.read(data, "audio", limits)
        assert (caught.value.code, caught.value.message) == ("media_too_long", "the sound is longer than 2 s")
    with pytest.raises(MediaFault, match="longer than 1 s"):
        reading.read(video(with_sound=tone(1.5, 48_000)), "video", limits)
