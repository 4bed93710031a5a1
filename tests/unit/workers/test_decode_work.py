"""A decoder's promise: each job ends once, nothing is made twice, and cancelling reaches everywhere."""

import asyncio
import io
import wave
from collections.abc import Iterator

import pytest
from PIL import Image

from infra.memory import MemoryHub
from infra.memory_blobs import MemoryBlobs
from infra.ports import Outgoing
from schemas.events import Cancelled, Failed, Finished, Made, Progress
from schemas.refs import BlobRef
from tests.unit.workers.decoders import MODEL, Decoder, check_whole, head, picture, speech
from tests.waiting import until
from workers.decoder import CannotDecode, Spoken
from workers.engines.sim_decoder import SimPainter, SimSpeaker, colour_of


async def test_a_picture_has_progress_then_one_file_under_a_key_nobody_can_guess() -> None:
    async with Decoder(painter=SimPainter(step_s=0.06)).running() as one:
        events = await one.do(picture(head("a"), 5, 6, steps=6))
        (made,) = one.made("a")
        image = Image.open(io.BytesIO(await one.data(made)))
    steps = [event.done for event in events if isinstance(event, Progress)]
    assert 1 <= len(steps) <= 3 and steps == sorted(steps)  # 6 steps in 0.36 s, but at most five events a second
    assert isinstance(events[-1], Finished)
    assert (made.kind, made.width, made.height, made.number) == ("image", 16, 16, 0)
    assert image.format == "PNG" and image.getpixel((8, 15)) == colour_of([5, 6], 1)
    folder, random, name = made.ref.key.split("/")
    assert (folder, name) == ("outputs", "0.png") and len(random) * 4 >= 128


async def test_what_cannot_be_decoded_fails_and_the_others_of_its_batch_do_not() -> None:
    async with Decoder(painter=SimPainter(batch=4)).running() as one:
        await asyncio.gather(one.put(picture(head("bad", parent="p"), -1)), one.put(picture(head("good"))))
        (bad,) = [event for event in one.events("bad") if not isinstance(event, Progress)]
        assert isinstance(one.events("good")[-1], Finished)
    assert isinstance(bad, Failed)
    assert (bad.code, bad.message) == ("decoder_failed", "a code is out of range")


async def test_a_job_sent_twice_makes_one_picture() -> None:
    async with Decoder(painter=SimPainter()).running() as one:
        job = picture(head("a"))
        await asyncio.gather(one.work.handle(job), one.work.handle(job))
        await one.work.handle(job)
        check_whole(one.events("a"))
        assert len(one.made("a")) == 1


async def test_a_killed_decoders_picture_is_made_by_another_one() -> None:
    hub, blobs, job = MemoryHub(), MemoryBlobs(), picture(head("a"), steps=200)
    async with Decoder(painter=SimPainter(), hub=hub, blobs=blobs, name="w1").running() as first:
        first.put(job)
        await until(lambda: bool(first.events("a")))
    async with Decoder(painter=SimPainter(step_s=0), hub=hub, blobs=blobs, name="w2").running() as second:
        events = await second.do(job)
    assert {event.attempt for event in events} == {1, 2}
    assert len(second.made("a")) == 1


async def test_while_a_living_decoder_works_another_one_leaves_the_job_to_it() -> None:
    hub, job = MemoryHub(), picture(head("a"), steps=30)
    async with (
        Decoder(painter=SimPainter(), hub=hub, name="w1").running() as first,
        Decoder(painter=SimPainter(), hub=hub, name="w2").running() as second,
    ):
        running = first.put(job)
        await until(lambda: bool(first.events("a")))
        await asyncio.gather(running, second.put(job))
    assert {event.attempt for event in first.events("a")} == {1}


async def test_cancelling_reaches_a_picture_between_two_steps_and_stops_the_engine() -> None:
    painter = SimPainter(step_s=0.02)
    async with Decoder(painter=painter).running() as one:
        running = one.put(picture(head("a"), steps=200))
        await until(lambda: bool(one.events("a")))
        await one.results.cancel(MODEL, "a", "the client went away")
        one.work.cancel("a", "the client went away")
        await asyncio.wait_for(running, 1.0)
        assert isinstance(one.events("a")[-1], Cancelled)
        # The thread is free for the next one at once: 200 steps would take 4 s.
        await asyncio.wait_for(one.put(picture(head("b"), steps=1)), 1.0)
    check_whole(one.events("a"))


async def test_cancelling_one_of_a_batch_leaves_the_others_alone() -> None:
    async with Decoder(painter=SimPainter(batch=2)).running() as one:
        a, b = one.put(picture(head("a"), steps=40)), one.put(picture(head("b"), steps=40))
        await until(lambda: bool(one.events("a")) and bool(one.events("b")))
        one.work.cancel("a", "")
        await asyncio.wait_for(a, 0.5)
        await b
    assert isinstance(one.events("a")[-1], Cancelled) and not one.made("a")
    assert isinstance(one.events("b")[-1], Finished) and len(one.made("b")) == 1


async def test_cancelling_a_request_cancels_what_is_a_part_of_it_running_or_queued() -> None:
    async with Decoder(painter=SimPainter(batch=1)).running() as one:
        tasks = [one.put(picture(head(f"p.1.0.{number}", parent="p"), steps=100)) for number in range(5)]
        other = one.put(picture(head("q.1.0.0", parent="q"), steps=1))
        await until(lambda: bool(one.events("p.1.0.0")))
        await one.results.cancel(MODEL, "p", "")
        one.work.cancel("p", "")
        await asyncio.wait_for(asyncio.gather(*tasks), 1.0)
        assert all(isinstance(one.events(f"p.1.0.{number}")[-1], Cancelled) for number in range(5))
        await other
    assert isinstance(one.events("q.1.0.0")[-1], Finished)


async def test_what_is_cancelled_while_it_waits_ends_though_all_slots_are_taken() -> None:
    async with Decoder(painter=SimPainter(batch=1)).running() as one:
        busy = [one.put(picture(head(f"busy{number}"), steps=100)) for number in range(2)]
        waiting = one.put(picture(head("waits")))
        await until(lambda: bool(one.events("busy0")))
        await one.results.cancel(MODEL, "waits", "")
        one.work.cancel("waits", "")
        await asyncio.wait_for(waiting, 0.5)
        assert [type(event) for event in one.events("waits")] == [Cancelled]
        assert not any(task.done() for task in busy)


async def test_a_part_whose_request_was_cancelled_before_it_came_is_not_made() -> None:
    async with Decoder(painter=SimPainter()).running() as one:
        await one.results.cancel(MODEL, "p", "")
        assert [type(event) for event in await one.do(picture(head("p.1.0.0", parent="p")))] == [Cancelled]


async def test_the_deadline_ends_a_picture_that_is_drawn_and_one_that_waits() -> None:
    async with Decoder(painter=SimPainter()).running() as one:
        events = await one.do(picture(head("a", lives_s=0.2), steps=200))
        assert isinstance(events[-1], Failed) and events[-1].code == "deadline_exceeded"
        (late,) = await one.do(picture(head("b", lives_s=-1)))
        assert isinstance(late, Failed) and late.code == "deadline_exceeded"


async def test_a_drain_finishes_what_runs_and_leaves_what_waits() -> None:
    async with Decoder(painter=SimPainter(batch=1)).running() as one:
        tasks = [one.put(picture(head(str(number)), steps=20)) for number in range(5)]  # two slots, so three wait
        await until(lambda: bool(one.events("0")))
        one.work.drain()
        await asyncio.wait_for(asyncio.gather(*tasks), 5)
    assert [bool(one.made(str(number))) for number in range(5)] == [True, True, False, False, False]
    assert not one.events("4")


async def test_what_is_cut_short_is_given_back_and_made_anew_by_another_one() -> None:
    hub, blobs, job = MemoryHub(), MemoryBlobs(), picture(head("a"), steps=200)
    async with Decoder(painter=SimPainter(), hub=hub, blobs=blobs, name="w1").running() as first:
        running = first.put(job)
        await until(lambda: bool(first.events("a")))
        first.work.drain()
        first.work.cut_short()
        await asyncio.wait_for(running, 1)
        async with Decoder(painter=SimPainter(step_s=0), hub=hub, blobs=blobs, name="w2").running() as second:
            assert isinstance((await second.do(job))[-1], Finished)


@pytest.mark.parametrize("kind", ["of another model", "of another kind"])
async def test_a_job_that_nobody_here_can_do_is_refused(kind: str) -> None:
    # Made here and not among the parameters: its deadline counts from now.
    job = picture(head("a"), decoder="other/image") if kind == "of another model" else speech(head("a"), "Hello.")
    async with Decoder(painter=SimPainter()).running() as one:
        (end,) = await one.do(job)
    assert isinstance(end, Failed) and end.code == "model_not_found"


class _Broken(SimPainter):
    def draw(self, *_: object) -> list[object]:  # type: ignore[override]  # a broken one
        raise RuntimeError("secret path /x")


async def test_an_engine_that_breaks_is_a_failure_without_its_internals() -> None:
    async with Decoder(painter=_Broken()).running() as one:
        (end,) = await one.do(picture(head("a")))
    assert isinstance(end, Failed) and end.code == "decoder_failed"
    assert "secret" not in end.message


async def test_whole_speech_is_one_file_of_all_sentences_with_progress_between() -> None:
    async with Decoder(speaker=SimSpeaker(sentence_s=0.25)).running() as one:
        events = await one.do(speech(head("a"), "One. Two. Three."))
        (made,) = one.made("a")
        with wave.open(io.BytesIO(await one.data(made))) as sound:
            assert sound.getnframes() == pytest.approx(3 * 0.2 * 24_000)
    assert [(event.done, event.total) for event in events if isinstance(event, Progress)] == [(1, 3), (2, 3), (3, 3)]
    assert made.ref.media_type == "audio/wav" and made.duration_s == pytest.approx(0.6)
    assert made.text == "One. Two. Three."


async def test_chunked_speech_is_one_event_a_sentence_in_order_as_soon_as_each_is_ready() -> None:
    async with Decoder(speaker=SimSpeaker(sentence_s=0.2)).running() as one:
        running = one.put(speech(head("a"), "One. Two. Three.", chunked=True, format="mp3"))
        await until(lambda: len(one.made("a")) == 1)
        assert not running.done()
        await running
    made = one.made("a")
    assert [(event.number, event.text) for event in made] == [(0, "One."), (1, "Two."), (2, "Three.")]
    assert all(event.ref.media_type == "audio/pcm" for event in made)
    assert all(event.ref.size_bytes == 2 * 0.2 * 24_000 for event in made)
    check_whole(one.events("a"))


async def test_who_takes_over_chunked_speech_goes_on_with_the_sentence_that_is_missing() -> None:
    hub, blobs, job = MemoryHub(), MemoryBlobs(), speech(head("a"), "One. Two. Three.", chunked=True)
    async with Decoder(speaker=SimSpeaker(sentence_s=0.2), hub=hub, blobs=blobs, name="w1").running() as first:
        first.put(job)
        await until(lambda: len(first.made("a")) == 2)
    async with Decoder(speaker=SimSpeaker(sentence_s=0), hub=hub, blobs=blobs, name="w2").running() as second:
        await second.do(job)
    assert [(event.number, event.text, event.attempt) for event in second.made("a")] == [
        (0, "One.", 1),
        (1, "Two.", 1),
        (2, "Three.", 2),
    ]


async def test_a_picture_that_is_stored_when_its_decoder_dies_is_not_made_again() -> None:
    hub, job = MemoryHub(), picture(head("a"))
    async with Decoder(painter=SimPainter(), hub=hub, name="w1").running() as first:
        me = await first.lives.of(MODEL)
        assert (await first.results.claim(job.head, me, 3)).state == "mine"
        made = Made(1, 1, "image", BlobRef("outputs/x/0.png", "0" * 64, 1))
        assert await first.results.append([Outgoing(job.head, [made])]) == ["stored"]
    async with Decoder(painter=SimPainter(), hub=hub, name="w2").running() as second:
        assert [type(event) for event in await second.do(job)] == [Made, Finished]


async def test_several_jobs_take_turns_sentence_by_sentence() -> None:
    long, short = speech(head("long"), "A a. " * 20), speech(head("short"), "Hello.")
    async with Decoder(speaker=SimSpeaker(sentence_s=0.05)).running() as one:
        first = one.put(long)
        await until(lambda: bool(one.events("long")))
        await one.put(short)
        assert not first.done()


async def test_cancelling_reaches_speech_within_a_sentence() -> None:
    async with Decoder(speaker=SimSpeaker(sentence_s=3)).running() as one:
        running = one.put(speech(head("a"), "One. Two."))
        await asyncio.sleep(0.1)
        one.work.cancel("a", "")
        await asyncio.wait_for(running, 1)
    assert isinstance(one.events("a")[-1], Cancelled)


@pytest.mark.parametrize(("parent", "code"), [("", "invalid_request"), ("p", "decoder_failed")])
async def test_text_without_words_is_the_clients_fault_or_the_models(parent: str, code: str) -> None:
    async with Decoder(speaker=SimSpeaker()).running() as one:
        (end,) = await one.do(speech(head("a", parent=parent), "... 🙂"))
    assert isinstance(end, Failed) and end.code == code


async def test_an_unknown_voice_is_refused_with_those_there_are() -> None:
    async with Decoder(speaker=SimSpeaker(("heart", "sky"))).running() as one:
        (end,) = await one.do(speech(head("a"), "Hello.", voice="nobody"))
    assert isinstance(end, Failed) and (end.code, end.param) == ("invalid_request", "voice")
    assert "heart, sky" in end.message


class _Mute(SimSpeaker):
    def speak(self, text: str, voice: str, speed: float) -> Iterator[Spoken]:
        raise CannotDecode("this language cannot be spoken")
        yield


async def test_what_the_engine_cannot_say_is_a_failure_and_never_silence() -> None:
    async with Decoder(speaker=_Mute()).running() as one:
        (end,) = await one.do(speech(head("a", parent="p"), "Hello."))
    assert isinstance(end, Failed) and end.message == "this language cannot be spoken"
