"""The `openai` Python SDK's helpers for media against the real stack: ears, a voice, and our own omni model."""

import base64
import io
import wave
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from PIL import Image

from workers.engines.omni_tiny import data

pytestmark = [pytest.mark.services, pytest.mark.vllm, pytest.mark.timeout(400)]

CASCADE, OMNI = "smollm2-cascade", "triptych-omni-tiny"
# A LibriVox reading, of Debian's pocketsphinx-testdata: human speech with known words.
CLIP = Path("/usr/share/pocketsphinx/test/data/librivox/sense_and_sensibility_01_austen_64kb-0870.wav")
SAY_HI: Any = [{"role": "user", "content": "Say hello in one short sentence."}]


def digit(number: int) -> tuple[bytes, int]:
    """A handwritten digit that the model has not learned from, as PNG, and which one it is."""
    held_out = data.split()[1]
    picture = io.BytesIO()
    Image.fromarray(data.to_picture(held_out.images[number], 160, 160)).save(picture, "PNG")
    return picture.getvalue(), int(held_out.labels[number])


def part(png: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png).decode()}"}}


def frames(wav: bytes) -> int:
    with wave.open(io.BytesIO(wav)) as sound:
        return sound.getnframes()


async def test_speech_comes_as_a_file_and_as_a_stream(client: openai.AsyncOpenAI) -> None:
    text = "The train leaves at noon. Please do not be late."
    whole = await client.audio.speech.create(model=CASCADE, voice="alloy", input=text, response_format="wav")
    assert frames(whole.content) > 24_000
    pcm = b""
    async with client.audio.speech.with_streaming_response.create(
        model=CASCADE, voice="alloy", input=text, response_format="pcm"
    ) as response:
        async for piece in response.iter_bytes():
            pcm += piece
    samples = np.frombuffer(pcm, "<i2")
    assert len(samples) > 24_000
    assert np.abs(samples.astype(int)).max() > 1_000


async def test_what_was_spoken_is_heard_again(client: openai.AsyncOpenAI) -> None:
    text = "A picture is worth a thousand words."
    spoken = await client.audio.speech.create(model=CASCADE, voice="alloy", input=text)
    heard = await client.audio.transcriptions.create(model=CASCADE, file=("said.mp3", spoken.content), language="en")
    assert [word.strip(".,").lower() for word in heard.text.split()] == text.rstrip(".").lower().split()


async def test_human_speech_is_written_down_in_every_form(client: openai.AsyncOpenAI) -> None:
    plain = await client.audio.transcriptions.create(model=CASCADE, file=CLIP, language="en")
    assert len(plain.text.split()) > 5
    verbose = await client.audio.transcriptions.create(
        model=CASCADE,
        file=CLIP,
        language="en",
        response_format="verbose_json",
        timestamp_granularities=["segment"],
    )
    assert verbose.text == plain.text
    assert verbose.segments
    assert 0 <= verbose.segments[0].start < verbose.segments[-1].end <= float(verbose.duration) + 1
    srt: Any = await client.audio.transcriptions.create(model=CASCADE, file=CLIP, language="en", response_format="srt")
    assert srt.startswith("1\n00:00:0")
    stream = await client.audio.transcriptions.create(model=CASCADE, file=CLIP, language="en", stream=True)
    events: list[Any] = [event async for event in stream]
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == plain.text


async def test_a_chat_is_answered_by_voice(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=CASCADE,
        messages=SAY_HI,
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "wav"},
        max_tokens=120,
        temperature=0,
    )
    audio = answer.choices[0].message.audio
    assert audio is not None
    assert answer.choices[0].message.content is None
    assert audio.transcript
    assert frames(base64.b64decode(audio.data)) > 8_000
    later = await client.chat.completions.create(
        model=CASCADE,
        messages=[*SAY_HI, {"role": "assistant", "audio": {"id": audio.id}}, *SAY_HI],
        max_tokens=4,
    )
    assert later.choices


async def test_a_chat_is_answered_by_voice_while_it_is_written(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(
        model=CASCADE,
        messages=SAY_HI,
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "pcm16"},
        max_tokens=120,
        temperature=0,
    ) as stream:
        final = await stream.get_final_completion()
    audio = final.choices[0].message.audio
    assert audio is not None
    assert audio.transcript
    assert len(base64.b64decode(audio.data, validate=True)) > 16_000


def sound() -> dict[str, str]:
    return {"data": base64.b64encode(CLIP.read_bytes()).decode(), "format": "wav"}


async def test_a_question_is_asked_by_voice(client: openai.AsyncOpenAI) -> None:
    content: Any = [{"type": "text", "text": "Repeat:"}, {"type": "input_audio", "input_audio": sound()}]
    answer = await client.chat.completions.create(
        model=CASCADE, messages=[{"role": "user", "content": content}], max_tokens=16, temperature=0
    )
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 20


async def test_a_digit_is_recognised(client: openai.AsyncOpenAI) -> None:
    right = 0
    for number in range(5):
        png, label = digit(number)
        content: Any = [part(png), {"type": "text", "text": "Which digit is this?"}]
        answer = await client.chat.completions.create(
            model=OMNI, messages=[{"role": "user", "content": content}], max_tokens=16, temperature=0
        )
        right += str(label) in (answer.choices[0].message.content or "")
    assert right >= 4


async def test_an_uploaded_file_is_seen_like_any_other(client: openai.AsyncOpenAI) -> None:
    png, _ = digit(0)
    uploaded = await client.files.create(file=("digit.png", png), purpose="vision")
    question = {"type": "text", "text": "Which digit is this?"}
    answers = []
    for shown in (part(png), {"type": "file", "file": {"file_id": uploaded.id}}):
        content: Any = [shown, question]
        answer = await client.chat.completions.create(
            model=OMNI, messages=[{"role": "user", "content": content}], max_tokens=16, temperature=0
        )
        answers.append(answer.choices[0].message.content)
    assert answers[0] == answers[1]


async def test_pictures_are_drawn_on_their_own_route_and_in_a_chat(client: openai.AsyncOpenAI) -> None:
    made = await client.images.generate(model=OMNI, prompt="Draw a seven.", size="256x256", extra_body={"seed": 1})
    assert made.data is not None
    assert Image.open(io.BytesIO(base64.b64decode(made.data[0].b64_json or ""))).size == (256, 256)
    answer = await client.chat.completions.create(
        model=OMNI,
        messages=[{"role": "user", "content": "Draw a seven."}],
        seed=1,
        extra_body={"image": {"response_format": "b64_json", "format": "jpeg"}},
    )
    content: Any = answer.choices[0].message.content
    (picture,) = [one for one in content if one["type"] == "image_url"]
    head, _, encoded = picture["image_url"]["url"].partition(",")
    assert head == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(encoded))).format == "JPEG"


async def test_a_drawing_streams(client: openai.AsyncOpenAI) -> None:
    stream = await client.images.generate(model=OMNI, prompt="Draw a seven.", stream=True)
    events: list[Any] = [event async for event in stream]
    assert events[-1].type == "image_generation.completed"
    assert events[-1].b64_json


async def test_a_model_refuses_by_capability(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="'image_out'"):
        await client.images.generate(model=CASCADE, prompt="Draw a seven.")
