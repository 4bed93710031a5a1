"""Speech and transcription: through the SDK's own helpers, in every format, refused by name."""

import asyncio
import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from infra.metrics import Metrics
from infra.sound_file import SoundFile
from schemas.events import Failed, Transcript
from schemas.media import PCM16_RATE_HZ, AudioFormat, Segment, SpeechOptions
from tests.pipeline.conftest import Gateway
from tests.pipeline.models import CASCADE, DRAWS, MODEL
from tests.pipeline.samples import MP4, PNG, WAV
from tests.pipeline.scripted import Run, Script
from tests.sounds import FRAME_SAMPLES, excess, heard
from tests.waiting import until
from workers.decode_speech import SpeechMaker
from workers.decode_step import Product
from workers.engines.sim_decoder import TONE_S, SimSpeaker

HEARD = Transcript(
    0,
    0,
    "Hello there. How are you?",
    [Segment(0.0, 1.5, " Hello there."), Segment(1.5, 3.25, " How are you?")],
    "en",
    3.25,
)


@pytest.fixture
def speaker() -> Iterator[SpeechMaker]:
    with ThreadPoolExecutor(1) as thread:
        yield SpeechMaker({"tiny-cascade/audio": SimSpeaker(("heart", "sky"), sentence_s=0)}, thread, Metrics())


def spoken(speaker: SpeechMaker, third: asyncio.Event | None = None) -> Script:
    """As the sim engine speaks: TONE_S a sentence, at the speed asked for. The third one waits for the event."""

    async def decoder(run: Run) -> None:
        async for step in speaker.make(run.decode, 0):
            if isinstance(step, Product):
                await run.made(step.data, step.text)
                if third is not None and step.text.startswith("Two"):
                    await third.wait()
        await run.finish(0)

    return decoder


def hears(gateway: Gateway, heard: Transcript = HEARD) -> Any:
    async def encoder(run: Run) -> None:
        await gateway.results.claim(run.encode.head, gateway.pool.worker, 3)
        await run.emit(heard)
        await run.finish(0)

    return encoder


async def test_speech_is_the_sound_itself(gateway: Gateway, speaker: SpeechMaker) -> None:
    gateway.pool.decoder = spoken(speaker)
    speech = await gateway.client().audio.speech.create(model=CASCADE.id, voice="sky", input="Hi.", speed=0.5)
    assert speech.response.headers["content-type"] == "audio/mpeg"
    assert 0 <= excess(speech.content, "mp3", int(TONE_S / 0.5 * PCM16_RATE_HZ)) <= FRAME_SAMPLES["mp3"]
    (job,) = gateway.pool.decode_jobs
    assert (job.decoder, job.text) == ("tiny-cascade/audio", "Hi.")
    assert job.options == SpeechOptions("sky", "pcm16", 0.5, chunked=True)
    assert job.head.model == MODEL
    assert [topic for topic, _, _ in gateway.pool.sent] == ["decode.audio"]


@pytest.mark.parametrize(
    ("form", "options", "media_type"),
    [
        ("wav", SpeechOptions(format="wav"), "audio/wav"),
        ("flac", SpeechOptions(format="flac"), "audio/flac"),
        ("mp3", SpeechOptions(format="pcm16", chunked=True), "audio/mpeg"),
        ("opus", SpeechOptions(format="pcm16", chunked=True), "audio/ogg"),
        ("aac", SpeechOptions(format="pcm16", chunked=True), "audio/aac"),
        ("pcm", SpeechOptions(format="pcm16", chunked=True), "audio/pcm"),
    ],
)
async def test_each_format_has_its_type_and_comes_in_pieces_if_its_header_does_not_tell_the_length(
    gateway: Gateway, form: Any, options: SpeechOptions, media_type: str
) -> None:
    speech = await gateway.client().audio.speech.create(
        model=CASCADE.id, voice="alloy", input="x", response_format=form
    )
    assert speech.response.headers["content-type"] == media_type
    assert gateway.pool.decode_jobs[0].options == options


FORMS: list[tuple[str, AudioFormat]] = [("mp3", "mp3"), ("opus", "opus"), ("aac", "aac"), ("pcm", "pcm16")]
THREE = "One is here. Two is here. Three is here."


@pytest.mark.parametrize(("form", "audio_format"), FORMS)
async def test_a_streamed_body_plays_while_later_sentences_are_still_spoken(
    gateway: Gateway, speaker: SpeechMaker, form: Any, audio_format: AudioFormat
) -> None:
    go = asyncio.Event()
    gateway.pool.decoder = spoken(speaker, third=go)
    async with gateway.client().audio.speech.with_streaming_response.create(
        model=CASCADE.id, voice="heart", input=THREE, response_format=form
    ) as response:
        pieces = response.iter_bytes()
        early = b""
        while not early or len(heard(early, audio_format)) < TONE_S * PCM16_RATE_HZ:
            early += await anext(pieces)
        go.set()
        whole = early + b"".join([piece async for piece in pieces])
    assert 0 <= excess(whole, audio_format, int(3 * TONE_S * PCM16_RATE_HZ)) <= FRAME_SAMPLES[audio_format]


@pytest.mark.parametrize(("form", "audio_format"), FORMS)
async def test_speech_as_events_is_the_same_file(
    gateway: Gateway, speaker: SpeechMaker, form: str, audio_format: AudioFormat
) -> None:
    gateway.pool.decoder = spoken(speaker)
    body = {"model": CASCADE.id, "voice": "heart", "input": THREE, "response_format": form}
    async with gateway.http() as client:
        raw = await client.post("/v1/audio/speech", json=body)
        response = await client.post("/v1/audio/speech", json=body | {"stream_format": "sse"})
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    assert b"".join(base64.b64decode(event.get("audio", "")) for event in events) == raw.content
    types = [event["type"] for event in events]
    assert types == ["speech.audio.delta"] * (len(types) - 1) + ["speech.audio.done"]
    assert len(types) >= 4
    assert response.headers["content-type"].startswith("text/event-stream")


async def test_speech_that_fails_before_its_first_sound_has_its_real_status(gateway: Gateway) -> None:
    async def decoder(run: Run) -> None:
        await run.fail("invalid_request", "there is nothing to say in the text")

    gateway.pool.decoder = decoder
    with pytest.raises(openai.BadRequestError, match="nothing to say"):
        await gateway.client().audio.speech.create(model=CASCADE.id, voice="heart", input="...")

    async def silent(run: Run) -> None:
        await run.finish(0)

    gateway.pool.decoder = silent
    with pytest.raises(openai.InternalServerError, match="no sound"):
        await gateway.client().audio.speech.create(model=CASCADE.id, voice="heart", input="...")


@pytest.mark.parametrize("form", ["mp3", "pcm"])
async def test_speech_that_fails_later_is_no_complete_body(gateway: Gateway, form: Any) -> None:
    async def decoder(run: Run) -> None:
        await run.made(b"some" * 6_000, "One.")
        await run.fail("engine_died", "gone")

    gateway.pool.decoder = decoder
    with pytest.raises(openai.APIConnectionError):
        await gateway.client().audio.speech.create(
            model=CASCADE.id, voice="heart", input="One. Two.", response_format=form
        )
    body = {"model": CASCADE.id, "voice": "heart", "input": "x", "response_format": form, "stream_format": "sse"}
    async with gateway.http() as client:
        events = (await client.post("/v1/audio/speech", json=body)).text.strip().split("\n\n")
    assert "speech.audio.delta" in events[0]
    assert json.loads(events[-1].partition("data: ")[2])["error"]["code"] == "engine_died"


@pytest.mark.parametrize("form", ["mp3", "pcm"])
async def test_who_stops_listening_stops_the_speaker_and_frees_the_encoder(
    gateway: Gateway, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[SoundFile] = []
    monkeypatch.setattr(SoundFile, "close", lambda one: freed.append(one))  # binds, unlike the builtin

    async def decoder(run: Run) -> None:
        await run.made(b"some" * 6_000, "One.")
        await run.cancelled()

    gateway.pool.decoder = decoder
    async with gateway.client().audio.speech.with_streaming_response.create(
        model=CASCADE.id, voice="heart", input="One. Two.", response_format=form
    ) as response:
        await anext(response.iter_bytes())
    await until(lambda: gateway.pool.decoding[0].was_cancelled, within_s=1.0)
    await until(lambda: len(freed) == (form == "mp3"), within_s=1.0)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"model": MODEL}, "model"),
        ({"voice": "nobody"}, "voice"),
        ({"input": ""}, "input"),
        ({"input": "x" * 4_097}, "input"),
        ({"speed": 5}, "speed"),
        ({"response_format": "midi"}, "response_format"),
        ({"instructions": "whisper"}, "instructions"),
    ],
)
async def test_what_cannot_be_spoken_is_refused_by_name(gateway: Gateway, more: dict[str, Any], param: str) -> None:
    given: dict[str, Any] = {"model": CASCADE.id, "voice": "heart", "input": "x"} | more
    with pytest.raises(openai.BadRequestError) as raised:
        await gateway.client().audio.speech.create(**given)
    assert raised.value.param == param
    assert gateway.pool.sent == []


async def transcribe(gateway: Gateway, file: bytes = WAV, **more: Any) -> Any:
    return await gateway.client().audio.transcriptions.create(**{"model": CASCADE.id, "file": ("a.wav", file)} | more)


async def test_a_transcription_is_what_the_encoder_heard(gateway: Gateway) -> None:
    gateway.pool.encoder = hears(gateway)
    answer = await transcribe(gateway, language="en", temperature=0)
    assert answer.text == HEARD.text
    assert answer.usage.seconds == 3.25
    (job,) = gateway.pool.encode_jobs
    assert (job.draft, job.language, job.slot.kind, job.slot.param) == (None, "en", "audio", "file")
    assert job.slot.artifact.endswith(".en.safetensors")
    assert [topic for topic, _, _ in gateway.pool.sent] == ["encode.audio"]


async def test_every_form_of_a_transcription(gateway: Gateway) -> None:
    gateway.pool.encoder = hears(gateway)
    verbose = await transcribe(gateway, response_format="verbose_json", timestamp_granularities=["segment"])
    assert (verbose.duration, verbose.language, verbose.text) == (3.25, "en", HEARD.text)
    assert [(one.start, one.end, one.text) for one in verbose.segments] == [
        (0.0, 1.5, " Hello there."),
        (1.5, 3.25, " How are you?"),
    ]
    assert await transcribe(gateway, response_format="text") == HEARD.text + "\n"
    assert await transcribe(gateway, response_format="srt") == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello there.\n\n2\n00:00:01,500 --> 00:00:03,250\nHow are you?\n\n"
    )
    vtt = await transcribe(gateway, response_format="vtt")
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello there.\n\n")


async def test_a_streamed_transcription_is_deltas_that_add_up(gateway: Gateway) -> None:
    gateway.pool.encoder = hears(gateway)
    events = [event async for event in await transcribe(gateway, stream=True)]
    assert [event.type for event in events] == [
        "transcript.text.delta",
        "transcript.text.delta",
        "transcript.text.done",
    ]
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == HEARD.text


async def test_a_sound_in_a_video_is_transcribed_and_a_picture_is_refused(gateway: Gateway) -> None:
    gateway.pool.encoder = hears(gateway)
    assert (await transcribe(gateway, MP4)).text == HEARD.text
    with pytest.raises(openai.BadRequestError, match="image/png") as raised:
        await transcribe(gateway, PNG)
    assert (raised.value.code, raised.value.param) == ("media_type_unsupported", "file")


async def test_what_the_encoder_finds_wrong_with_a_sound_is_a_400(gateway: Gateway) -> None:
    async def encoder(run: Run) -> None:
        await gateway.results.end(run.encode.head, Failed(0, 0, "media_too_long", "it has 7200 s", "file"))

    gateway.pool.encoder = encoder
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="7200 s") as raised:
            await transcribe(gateway, stream=stream)
        assert (raised.value.code, raised.value.param) == ("media_too_long", "file")


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"model": DRAWS.id}, "model"),
        ({"language": "English"}, "language"),
        ({"prompt": "about trains"}, "prompt"),
        ({"temperature": 0.5}, "temperature"),
        ({"timestamp_granularities": ["word"], "response_format": "verbose_json"}, "timestamp_granularities"),
        ({"timestamp_granularities": ["segment"]}, "timestamp_granularities"),
        ({"include": ["logprobs"]}, "include"),
        ({"chunking_strategy": "auto"}, "chunking_strategy"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"response_format": "srt", "stream": True}, "stream"),
    ],
)
async def test_what_cannot_be_transcribed_is_refused_by_name(
    gateway: Gateway, more: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await transcribe(gateway, **more)
    assert raised.value.param == param
    assert gateway.pool.sent == []


async def test_translations_are_not_there(gateway: Gateway) -> None:
    async with gateway.http() as client:
        response = await client.post("/v1/audio/translations", files={"file": ("a.wav", WAV)})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
