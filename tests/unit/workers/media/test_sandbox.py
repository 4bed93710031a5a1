import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import numpy as np
import psutil
import pytest
from PIL import Image

from schemas.manifest import MediaLimits
from schemas.media import EncoderKind, MediaKind
from tests.unit.workers.media.pictures import png, saved, scene
from tests.unit.workers.media.recordings import sound, tone, video, wav
from tests.unit.workers.media.test_hostile import CUT, PICTURES, RECORDINGS
from tests.waiting import until
from workers.encode_flights import Decode
from workers.encoder import Clip, MediaFault, Picture, Sound, frames_of
from workers.media import Decoders, decode
from workers.media.confine import Confinement, Layer

LIMITS = MediaLimits()
PNG = saved(Image.fromarray(scene()), "PNG")


@pytest.fixture(scope="module")
def decoders() -> Iterator[Decoders]:
    decoders = Decoders(2)
    yield decoders
    decoders.close()


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "workers.media.child" in child.cmdline()]


def test_what_comes_out_is_what_decoding_here_gives(decoders: Decoders) -> None:
    picture = decoders.decode("image", "vision", PNG, LIMITS)
    assert isinstance(picture, Picture) and (picture.rgb == scene()).all()
    wave = wav(np.round(tone(1.0, 16_000) * 32_767).astype("<i2").tobytes())
    here, there = decode("audio", "audio", wave, LIMITS), decoders.decode("audio", "audio", wave, LIMITS)
    assert isinstance(here, Sound) and isinstance(there, Sound) and (here.pcm == there.pcm).all()
    film = video()
    frames, again = decode("video", "vision", film, LIMITS), decoders.decode("video", "vision", film, LIMITS)
    assert isinstance(frames, Clip) and isinstance(again, Clip)
    assert frames.at_s == again.at_s
    assert all((one.rgb == two.rgb).all() for one, two in zip(frames.frames, again.frames, strict=True))
    silent = decoders.decode("video", "audio", film, LIMITS)
    assert isinstance(silent, Sound) and len(silent.pcm) == 0


def _read(decode: Decode, kind: MediaKind, pool: EncoderKind, data: bytes) -> list[bytes]:
    try:
        decoded = decode(kind, pool, data, LIMITS)
    except MediaFault as fault:
        return [fault.code.encode(), fault.message.encode()]
    return [decoded.pcm.tobytes()] if isinstance(decoded, Sound) else [one.tobytes() for one in frames_of(decoded)]


def _of_all_kinds() -> Iterator[tuple[str, MediaKind, EncoderKind, bytes]]:
    for name, picture in (
        *((name, make()) for name, make in CUT.items()),
        ("jpeg 2000", saved(Image.fromarray(scene()), "JPEG2000")),
        ("two jpegs", saved(Image.fromarray(scene()), "MPO", save_all=True, append_images=[Image.fromarray(scene())])),
        *((name, data) for name, (data, _) in PICTURES.items()),
    ):
        yield name, "image", "vision", picture
    for name, recording in (
        *((form, sound(form, codec, tone(0.3, 48_000), 48_000)) for form, codec in SOUNDS.items()),
        *((name, data) for name, (data, _) in RECORDINGS.items()),
    ):
        yield name, "audio", "audio", recording
    for form in ("mp4", "matroska"):
        yield form, "video", "vision", video(form)


SOUNDS = {"ogg": "libopus", "mp3": "libmp3lame", "flac": "flac", "mp4": "aac"}


def test_a_confined_process_has_all_that_any_kind_of_media_needs(decoders: Decoders) -> None:
    """Nothing can be imported or opened any more when a file needs it."""
    different = [
        name
        for name, kind, pool, data in _of_all_kinds()
        if _read(decode, kind, pool, data) != _read(decoders.decode, kind, pool, data)
    ]
    assert different == []


def test_a_fault_comes_out_as_it_is(decoders: Decoders) -> None:
    with pytest.raises(MediaFault) as caught:
        decoders.decode("image", "vision", b"no picture", LIMITS)
    assert caught.value.code == "media_type_unsupported"
    with pytest.raises(MediaFault) as caught:
        decoders.decode("image", "vision", PNG, MediaLimits(image_pixels=100))
    assert caught.value.code == "media_too_large"


def test_many_threads_share_few_processes(decoders: Decoders) -> None:
    with ThreadPoolExecutor(8) as threads:
        items = list(threads.map(lambda _: decoders.decode("image", "vision", PNG, LIMITS), range(40)))
    assert all(isinstance(item, Picture) and (item.rgb == scene()).all() for item in items)
    assert len(children()) <= 2


def test_a_process_that_dies_is_replaced_and_its_item_tried_again() -> None:
    decoders = Decoders(1)
    try:
        decoders.decode("image", "vision", PNG, LIMITS)
        (child,) = children_of_this(decoders)
        child.kill()
        child.wait(5)
        assert isinstance(decoders.decode("image", "vision", PNG, LIMITS), Picture)
        assert children_of_this(decoders) != [child]
    finally:
        decoders.close()


def children_of_this(_: Decoders) -> list[psutil.Process]:
    """Those that the module's shared decoders did not start."""
    return sorted(children(), key=lambda child: child.create_time())[-1:]


def test_a_process_outlives_the_thread_that_first_needed_it() -> None:
    decoders = Decoders(1)
    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(decoders.decode, "image", "vision", PNG, LIMITS).result()
        (child,) = children_of_this(decoders)
        decoders.decode("image", "vision", PNG, LIMITS)
        assert children_of_this(decoders) == [child]
    finally:
        decoders.close()


def test_what_confines_them_is_told_once_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    layers: dict[str, bool] = {}
    decoders = Decoders(1, count=layers.__setitem__)
    try:
        with caplog.at_level(logging.INFO, "workers.media"):
            decoders.start()
            (child,) = children_of_this(decoders)
            child.kill()
            decoders.decode("image", "vision", PNG, LIMITS)
        assert children_of_this(decoders) != [child]
        assert layers.keys() == set(get_args(Layer))
        (line,) = [one.getMessage() for one in caplog.records if "confined" in one.getMessage()]
        in_force, missing = line.split("; not in force: ")
        assert {layer for layer in layers if layer in in_force} == {layer for layer, held in layers.items() if held}
        assert {layer for layer in layers if layer in missing} == {layer for layer, held in layers.items() if not held}
    finally:
        decoders.close()


def test_without_seccomp_it_is_a_warning(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    confinement = Confinement(["limits"], {"seccomp": "Function not implemented"})
    monkeypatch.setattr("workers.media.process.wire.receive_ready", lambda _: confinement)
    decoders = Decoders(1)
    with caplog.at_level(logging.INFO, "workers.media"):
        decoders.start()
    decoders.close()
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert line.getMessage().endswith("by limits; not in force: seccomp (Function not implemented)")


def test_an_item_that_hangs_is_given_up_and_the_next_one_is_decoded() -> None:
    decoders = Decoders(1, limit_s=0.0001)  # nothing is that fast
    with pytest.raises(MediaFault, match="too long to decode") as caught:
        decoders.decode("image", "vision", PNG, LIMITS)
    assert caught.value.code == "media_unreadable"
    decoders.close()
    patient = Decoders(1)
    assert isinstance(patient.decode("image", "vision", PNG, LIMITS), Picture)
    patient.close()


def test_an_item_that_needs_too_much_memory_is_refused_and_the_process_lives() -> None:
    decoders = Decoders(1, memory_bytes=800 << 20)
    try:
        large = png(np.zeros((1, 1), np.uint8), 8, 6, size=(13_000, 13_000))
        with pytest.raises(MediaFault) as caught:
            decoders.decode("image", "vision", large, MediaLimits(image_pixels=1 << 30))
        assert caught.value.code == "media_too_large"
        assert isinstance(decoders.decode("image", "vision", PNG, LIMITS), Picture)
    finally:
        decoders.close()


def test_an_item_that_kills_two_processes_is_refused() -> None:
    decoders = Decoders(1)
    others, stop = {child.pid for child in children()}, threading.Event()

    def murder() -> None:
        while not stop.is_set():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):  # dead, or buried, since it was listed
                for child in children():
                    if child.pid not in others:
                        os.kill(child.pid, signal.SIGSEGV)
            stop.wait(0.005)

    killer = threading.Thread(target=murder)
    killer.start()
    try:
        with pytest.raises(MediaFault) as caught:
            decoders.decode("image", "vision", PNG, LIMITS)
        assert (caught.value.code, caught.value.message) == ("media_unreadable", "the image is broken")
    finally:
        stop.set()
        killer.join(5)
        decoders.close()


async def test_closing_ends_the_processes_and_a_worker_that_is_gone_takes_them_along() -> None:
    before = {child.pid for child in children()}
    decoders = Decoders(2)
    decoders.decode("image", "vision", PNG, LIMITS)
    mine = [child for child in children() if child.pid not in before]
    assert len(mine) == 1
    decoders.close()
    await until(lambda: not any(child.is_running() for child in mine), within_s=5)
