"""Sound and video made with encoders, or by hand where no encoder writes such a thing."""

import io
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.float32]


def tone(seconds: float, rate: int, hz: float = 200.0, level: float = 0.5) -> Pcm:
    """Its pitch rises from `hz` by an octave every second, so that a shift in time shows."""
    t = np.arange(round(seconds * rate)) / rate
    return (level * np.sin(2 * np.pi * hz * (2**t - 1) / np.log(2))).astype(np.float32)


def sound(
    format: str,
    codec: str,
    pcm: Pcm,
    rate: int,
    layout: str = "mono",
    options: dict[str, str] | None = None,
    codec_options: dict[str, str] | None = None,
) -> bytes:
    """`pcm`: [samples] for every channel alike, or [channels, samples]."""
    file = io.BytesIO()
    with av.open(file, "w", format=format, options=options or {}) as container:
        stream: Any = container.add_stream(codec, rate=rate, layout=layout, options=codec_options or {})
        channels = stream.codec_context.layout.nb_channels
        rows = np.ascontiguousarray(np.broadcast_to(pcm, (channels, pcm.shape[-1])))
        container.mux(stream.encode(_frame(rows.T.reshape(1, -1), rate, layout)))
        container.mux(stream.encode(None))
    return file.getvalue()


def _frame(samples: Pcm, rate: int, layout: str) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), format="flt", layout=layout)
    frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
    return frame


def wav(
    samples: bytes,
    *,
    tag: int = 1,
    channels: int = 1,
    rate: int = 16_000,
    bits: int = 16,
    size: int | None = None,
    before: bytes = b"",
    mask: int | None = None,
) -> bytes:
    """By hand. `size`: what the header says; `before`: chunks in front of the samples; `mask`: an extensible header."""
    block = channels * bits // 8 & 0xFFFF
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * block & 0xFFFFFFFF, block, bits)
    if mask is not None:
        form = struct.pack("<H", 0xFFFE) + form[2:] + struct.pack("<HHI", 22, bits, mask)
        form += struct.pack("<H", tag) + bytes.fromhex("000000001000800000aa00389b71")
    said = len(samples) if size is None else size
    body = (
        b"WAVE" + before + b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", said) + samples
    )
    return b"RIFF" + struct.pack("<I", len(body) if size is None else min(size, 0xFFFFFFFF)) + body


Drawing = Callable[[int], NDArray[np.uint8]]


def corners(place: int, width: int = 96, height: int = 64) -> NDArray[np.uint8]:
    """Frame `place`: red top left, green top right, blue bottom left, and a middle that gets lighter with time."""
    rgb = np.zeros((height, width, 3), np.uint8)
    rgb[:, :] = min(255, place * 8)
    rgb[:16, :16], rgb[:16, -16:], rgb[-16:, :16] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    return rgb


def video(
    format: str = "mp4",
    codec: str = "libx264",
    *,
    times: Sequence[int] = range(30),
    rate: int = 10,
    draw: Drawing = corners,
    pixels: str = "yuv420p",
    options: dict[str, str] | None = None,
    codec_options: dict[str, str] | None = None,
    prepare: Callable[[Any], None] = lambda stream: None,
    convert: Callable[[av.VideoFrame], av.VideoFrame] = lambda frame: frame,
    with_sound: Pcm | None = None,
    sound_at: int = 0,
) -> bytes:
    """Frame n is shown at times[n] / rate seconds; sound of 48 kHz begins `sound_at` samples later."""
    file = io.BytesIO()
    with av.open(file, "w", format=format, options=options or {}) as container:
        first = draw(0)
        stream: Any = container.add_stream(codec, rate=rate, options={"crf": "10", **(codec_options or {})})
        stream.width, stream.height, stream.pix_fmt = first.shape[1], first.shape[0], pixels
        stream.codec_context.time_base = Fraction(1, rate)
        prepare(stream)
        speaker: Any = container.add_stream("aac", rate=48_000, layout="mono") if with_sound is not None else None
        packets = []
        for place, time in enumerate(times):
            frame = convert(av.VideoFrame.from_ndarray(draw(place), format="rgb24" if first.shape[2] == 3 else "rgba"))
            frame.pts, frame.time_base = time, Fraction(1, rate)
            packets += stream.encode(frame)
        packets += stream.encode(None)
        if speaker is not None and with_sound is not None:
            heard = _frame(with_sound[None], 48_000, "mono")
            heard.pts = sound_at
            packets += speaker.encode(heard) + speaker.encode(None)
        for packet in packets:
            container.mux(packet)
    return file.getvalue()


def moov_first(mp4: bytes) -> bytes:
    """As a file for streaming has it, so that one that is cut off still opens."""
    boxes, at = [], 0
    while at < len(mp4):
        (size,) = struct.unpack_from(">I", mp4, at)
        boxes.append(mp4[at : at + size])
        at += size
    moov = bytearray(next(box for box in boxes if box[4:8] == b"moov"))
    found = moov.find(b"stco")
    while found >= 0:
        (count,) = struct.unpack_from(">I", moov, found + 8)
        for entry in range(found + 12, found + 12 + 4 * count, 4):
            struct.pack_into(">I", moov, entry, struct.unpack_from(">I", moov, entry)[0] + len(moov))
        found = moov.find(b"stco", found + 4)
    return boxes[0] + bytes(moov) + b"".join(box for box in boxes[1:] if box[4:8] != b"moov")
