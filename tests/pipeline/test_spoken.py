"""Spoken answers: whole, streamed in step with their transcript, referred to in a later turn."""

import asyncio
import base64
import json
import time
from typing import Any

import openai
import pytest

from schemas.events import Restarted
from schemas.media import SpeechOptions
from tests.pipeline.conftest import Gateway
from tests.pipeline.models import CASCADE, MODEL
from tests.pipeline.scripted import Run, hello, token
from tests.waiting import until

HELLO: Any = [{"role": "user", "content": "Say hello."}]
WAV: Any = {"voice": "heart", "format": "wav"}
PCM: Any = {"voice": "sky", "format": "pcm16"}
TEXTS = ("One. ", "Two. ", "Three.")


async def ask(gateway: Gateway, messages: Any = HELLO, **more: Any) -> Any:
    given = {"model": CASCADE.id, "messages": messages, "modalities": ["text", "audio"], "audio": WAV} | more
    return await gateway.client().chat.completions.create(**given)


def spoken(gateway: Gateway) -> Any:
    """Each text is a sentence, spoken on its own when the answer streams, else all at the end."""

    async def script(run: Run) -> None:
        (options,) = [one.options for one in run.job.outputs] or [None]
        chunked = isinstance(options, SpeechOptions) and options.chunked
        for number, text in enumerate(TEXTS):
            await run.say(text)
            if chunked:
                await gateway.pool.part(run, "audio", number, text=text.strip())
        await run.emit(token("", finish_reason="stop"))
        if options is not None and not chunked:
            await gateway.pool.part(run, "audio", 0, text="".join(TEXTS))
        await run.finish(6)

    return script


async def test_a_whole_answer_is_sound_with_its_transcript(gateway: Gateway) -> None:
    gateway.pool.script = spoken(gateway)
    answer = await ask(gateway)
    message = answer.choices[0].message
    assert message.content is None
    assert message.audio.transcript == "".join(TEXTS)
    assert base64.b64decode(message.audio.data) == "".join(TEXTS).encode() * 2
    assert message.audio.id.startswith("audio_")
    assert message.audio.expires_at == answer.created + 3_600
    assert answer.choices[0].finish_reason == "stop"
    (output,) = gateway.pool.jobs[0].outputs
    assert output.decoder == "tiny-cascade/audio"
    assert output.options == SpeechOptions("heart", "wav")


async def chunks_of(gateway: Gateway, **more: Any) -> list[dict[str, Any]]:
    body = {"model": CASCADE.id, "messages": HELLO, "modalities": ["text", "audio"], "audio": PCM, "stream": True}
    async with gateway.http() as client:
        response = await client.post("/v1/chat/completions", json=body | more)
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line)["choices"][0] for line in lines]


async def test_a_stream_has_the_transcript_then_the_sound_in_order_then_the_end(gateway: Gateway) -> None:
    gateway.pool.script = spoken(gateway)
    go = [asyncio.Event() for _ in TEXTS]

    async def decoder(run: Run) -> None:
        number = int(run.decode.head.request_id.rpartition(".")[2])
        await go[number].wait()
        await run.made(run.decode.text.encode(), run.decode.text)
        await run.finish(0)
        if number:
            go[number - 1].set()

    gateway.pool.decoder = decoder
    go[-1].set()  # the last sentence is ready first
    choices = await chunks_of(gateway)
    deltas = [choice["delta"] for choice in choices]
    assert deltas[0]["role"] == "assistant"
    assert deltas[0]["audio"]["id"].startswith("audio_")
    assert all("content" not in delta for delta in deltas)
    assert "".join(delta.get("audio", {}).get("transcript", "") for delta in deltas) == "".join(TEXTS)
    joined = "".join(delta.get("audio", {}).get("data", "") for delta in deltas)
    assert base64.b64decode(joined, validate=True).replace(b"\0", b"") == b"One.Two.Three."
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert deltas[-1]["audio"].keys() == {"expires_at"}
    assert gateway.pool.jobs[0].outputs[0].options == SpeechOptions("sky", "pcm16", chunked=True)


async def test_text_does_not_wait_for_sound(gateway: Gateway) -> None:
    go = asyncio.Event()

    async def decoder(run: Run) -> None:
        await go.wait()
        await run.made(b"sound", "")
        await run.finish(0)

    gateway.pool.script, gateway.pool.decoder = spoken(gateway), decoder
    stream = await ask(gateway, audio=PCM, stream=True)
    transcript = ""
    async for chunk in stream:
        transcript += chunk.choices[0].delta.to_dict().get("audio", {}).get("transcript", "")
        if transcript == "".join(TEXTS):
            break
    go.set()
    rest = [chunk.choices[0] async for chunk in stream]
    assert sum("data" in one.delta.to_dict().get("audio", {}) for one in rest) == 3
    assert rest[-1].finish_reason == "stop"


async def test_the_sdk_s_stream_helper_adds_a_spoken_answer_up(gateway: Gateway) -> None:
    gateway.pool.script = spoken(gateway)
    client = gateway.client()
    async with client.chat.completions.stream(
        model=CASCADE.id, messages=HELLO, modalities=["text", "audio"], audio=PCM
    ) as stream:
        final = await stream.get_final_completion()
    audio = final.choices[0].message.audio
    assert audio is not None
    assert audio.id.count("audio_") == 1
    assert audio.transcript == "".join(TEXTS)
    assert base64.b64decode(audio.data, validate=True)
    assert audio.expires_at == final.created + 3_600


async def test_a_later_turn_refers_to_a_spoken_answer_by_its_id(gateway: Gateway) -> None:
    gateway.pool.script = spoken(gateway)
    answer = await ask(gateway)
    said = answer.choices[0].message
    by_id: Any = [*HELLO, {"role": "assistant", "audio": {"id": said.audio.id}}, *HELLO]
    whole: Any = [*HELLO, said, *HELLO]  # as the SDK gives it back
    words: Any = [*HELLO, {"role": "assistant", "content": "".join(TEXTS)}, *HELLO]
    for messages in (by_id, whole, words):
        await ask(gateway, messages, modalities=["text"], audio=None)
    assert gateway.pool.jobs[1].prompt_ids == gateway.pool.jobs[2].prompt_ids == gateway.pool.jobs[3].prompt_ids


@pytest.mark.parametrize("audio_id", ["audio_" + "0" * 32, "audio_1", "../../etc"])
async def test_an_unknown_spoken_answer_is_a_400_that_says_what_to_do(gateway: Gateway, audio_id: str) -> None:
    with pytest.raises(openai.BadRequestError, match="transcript as 'content'") as raised:
        await ask(gateway, [*HELLO, {"role": "assistant", "audio": {"id": audio_id}}, *HELLO])
    assert raised.value.param == "messages[1].audio.id"
    assert gateway.pool.jobs == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_part_that_fails_fails_the_answer_and_stops_the_rest(gateway: Gateway, stream: bool) -> None:
    async def script(run: Run) -> None:
        await run.say("One. ")
        await gateway.pool.part(run, "audio", 0, text="One.")
        await gateway.pool.part(run, "audio", 1, text="Two.")
        await run.cancelled()

    async def decoder(run: Run) -> None:
        if run.decode.text == "One.":
            await run.fail("decoder_failed", "the voice is hoarse")
        else:
            await run.cancelled()

    gateway.pool.script, gateway.pool.decoder = script, decoder
    with pytest.raises(openai.APIError, match="hoarse") as raised:
        answer = await ask(gateway, audio=PCM, stream=stream)
        async for _ in answer:
            pass
    assert raised.value.code == "decoder_failed"
    await until(lambda: gateway.pool.runs[0].was_cancelled, within_s=1.0)
    await until(lambda: gateway.pool.decoding[1].was_cancelled, within_s=1.0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_cancels_the_parts_too_within_a_second(gateway: Gateway, stream: bool) -> None:
    gateway.pool.script, gateway.pool.decoder = spoken(gateway), Run.cancelled
    client = gateway.client()
    call = asyncio.create_task(
        client.chat.completions.create(
            model=CASCADE.id, messages=HELLO, modalities=["text", "audio"], audio=PCM, stream=stream
        )
    )
    await until(lambda: len(gateway.pool.decoding) == (3 if stream else 1))
    if stream:
        await (await call).close()
    else:
        call.cancel()
    await until(lambda: all(run.was_cancelled for run in gateway.pool.decoding), within_s=1.0)
    await until(lambda: len(gateway.open) == 0 and gateway.follower.following == 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_deadline_holds_for_the_parts_as_well(gateway: Gateway, stream: bool) -> None:
    gateway.pool.script, gateway.pool.decoder = spoken(gateway), Run.cancelled
    began_s = time.monotonic()
    with pytest.raises(openai.APIError, match="deadline") as raised:
        answer = await ask(gateway, audio=PCM, stream=stream, extra_headers={"x-request-timeout-s": "0.4"})
        async for _ in answer:
            pass
    assert raised.value.code == "deadline_exceeded"
    assert time.monotonic() - began_s < 2.0  # the request itself had ended: nothing more was to be waited for
    await until(lambda: all(run.was_cancelled for run in gateway.pool.decoding), within_s=1.0)
    assert gateway.follower.following == 0


async def test_a_lost_attempt_s_parts_are_dropped_and_cancelled(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        await run.say("lost")
        await gateway.pool.part(run, "audio", 0, text="lost")
        await until(lambda: len(gateway.pool.decoding) == 1)
        await run.emit(Restarted(1, 0), token("kept", finish_reason="stop"))
        await gateway.pool.part(run, "audio", 0, text="kept", attempt=2)
        await run.finish()

    async def decoder(run: Run) -> None:
        if run.decode.text == "lost":
            await run.made(b"lost", "lost")
            await run.cancelled()
        else:
            await run.made(b"kept", "kept")
            await run.finish(0)

    gateway.pool.script, gateway.pool.decoder = script, decoder
    answer = await ask(gateway)
    assert answer.choices[0].message.audio.transcript == "kept"
    assert base64.b64decode(answer.choices[0].message.audio.data) == b"kept"
    await until(lambda: gateway.pool.decoding[0].was_cancelled, within_s=1.0)


async def test_an_answer_without_words_has_no_sound(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        await run.emit(token("", finish_reason="stop"))
        await run.finish(1)

    gateway.pool.script = script
    answer = await ask(gateway)
    assert answer.choices[0].message.content == ""
    assert answer.choices[0].message.audio is None


async def test_two_spoken_choices_stay_apart(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        for index, text in ((1, "b"), (0, "a")):
            await run.emit(token(text, index, finish_reason="stop"))
            await gateway.pool.part(run, "audio", 0, index=index, text=text)
        await run.finish(2)

    gateway.pool.script = script
    answer = await ask(gateway, n=2)
    audios = [choice.message.audio for choice in answer.choices]
    assert [audio.transcript for audio in audios] == ["a", "b"]
    assert [base64.b64decode(audio.data) for audio in audios] == [b"aa", b"bb"]
    assert len({audio.id for audio in audios}) == 2
    second: Any = [*HELLO, {"role": "assistant", "audio": {"id": audios[1].id}}, *HELLO]
    gateway.pool.script = hello
    await ask(gateway, second, n=1)


async def test_text_of_the_same_model_is_text(gateway: Gateway) -> None:
    answer = await ask(gateway, modalities=["text"], audio=None)
    assert answer.choices[0].message.content == "Hello!"
    assert {topic for topic, _, _ in gateway.pool.sent} == {f"generate.{MODEL}"}
    assert gateway.pool.jobs[0].outputs == []
