"""Media in and out of the real stack with its real, small models. How well these do, tests.bench.omni measures."""

import asyncio
import base64
import hashlib
import io
import uuid
from functools import partial
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from infra import manifests
from infra.settings import load as load_settings
from tests.bench.omni.asking import picture_part
from tests.bench.omni.digits import Judge, named
from tests.bench.omni.second_turn import pictures_encoded
from tests.bench.omni.speech import words
from tests.bench.omni.text import artifact_texts
from tests.stack import Stack
from tests.unit.topics.intake.desk import TELLTALE
from tests.unit.workers.media.recordings import moov_first, video, wav
from tests.unit.workers.media.test_hostile import INTERNALS
from topics import names
from workers.engines.omni_tiny import data

pytestmark = [pytest.mark.services, pytest.mark.vllm, pytest.mark.timeout(400)]

CHAT, CASCADE, OMNI = "smollm2-135m", "smollm2-cascade", "triptych-omni-tiny"
HELD_OUT = data.split()[1]
SAID = "The train leaves at noon."


def digit(number: int) -> tuple[bytes, int]:
    """A digit that the model has not learned from, as a PNG that nobody has sent before, and which one it is."""
    mark, file = PngInfo(), io.BytesIO()
    mark.add_text("Comment", uuid.uuid4().hex)
    Image.fromarray(data.to_picture(HELD_OUT.images[number], 160, 160)).save(file, "PNG", pnginfo=mark)
    return file.getvalue(), int(HELD_OUT.labels[number])


def rgb(image: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def sound(file: bytes) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(file).decode(), "format": "wav"}}


def film(file: bytes) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{base64.b64encode(file).decode()}"}}


async def ask(client: openai.AsyncOpenAI, model: str, *content: dict[str, Any], **more: Any) -> Any:
    messages: Any = [{"role": "user", "content": list(content)}]
    settings = {"max_tokens": 16, "temperature": 0, **more}
    return await client.chat.completions.create(model=model, messages=messages, **settings)


async def trail(stack: Stack, request_id: str) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=10) as http:
        answer = await http.get(f"{stack.url}/v1/requests/{request_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_pictures_side_by_side_are_told_apart(client: openai.AsyncOpenAI) -> None:
    async def right(left: int, beside: int) -> bool:
        (one, is_one), (two, is_two) = digit(left), digit(beside)
        answer = await ask(client, OMNI, picture_part(one), picture_part(two), text("Which digits are these?"))
        return bool(answer.choices[0].message.content == f"The digits are {is_one} and {is_two}.")

    pairs = [(number, number + 100) for number in range(0, 200, 40)]
    assert sum(await asyncio.gather(*(right(*pair) for pair in pairs))) >= 4


async def test_a_second_turn_about_a_picture_encodes_nothing_and_finds_its_kv_cache(
    stack: Stack, client: openai.AsyncOpenAI
) -> None:
    before = await asyncio.to_thread(pictures_encoded, stack)
    png, label = digit(37)
    system = "You look at pictures of handwritten digits and answer in one word. " * 30
    messages: Any = [
        {"role": "system", "content": system},
        {"role": "user", "content": [picture_part(png), text("Which digit is this?")]},
    ]
    settings: Any = {"model": OMNI, "max_tokens": 16, "temperature": 0}
    first: Any = await client.chat.completions.create(messages=messages, **settings)
    said = first.choices[0].message.content
    assert named(said) == label
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Which digit was it?"}]
    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="another user", max_retries=0) as other:
        second: Any = await other.chat.completions.create(messages=messages, **settings)
    assert named(second.choices[0].message.content) == label
    assert await asyncio.to_thread(pictures_encoded, stack) == before + 1
    block = manifests.find(load_settings({}), OMNI).engine.cpu_block_tokens
    assert cached(second) >= 0.9 * (first.usage.prompt_tokens // block * block) > 200

    told = [await trail(stack, one.id) for one in (first, second)]
    assert [one["model"] for one in told] == [OMNI, OMNI]
    assert [one["outcome"] for one in told] == ["finished", "finished"]
    assert [one["media_items"] for one in told] == [1, 1]
    assert [one.get("media_encoded", 0) for one in told] == [1, 0]
    assert [one["prompt_tokens"] for one in told] == [first.usage.prompt_tokens, second.usage.prompt_tokens]
    assert told[1]["cached_tokens"] == cached(second)
    assert [one["worker"] for one in told] == ["llm-2", "llm-2"]
    assert all(one["attempts"] == 1 and 0 < one["ttft_s"] <= one["duration_s"] for one in told)
    assert all(0 <= one["queue_s"] < one["ttft_s"] for one in told)


def cached(answer: Any) -> int:
    return int(answer.usage.prompt_tokens_details.cached_tokens or 0)


async def test_pictures_are_drawn_and_edited_as_asked(client: openai.AsyncOpenAI) -> None:
    judge = Judge()

    async def drawn(number: int, asked: str) -> bool:
        made = await client.images.generate(model=OMNI, prompt=asked, size="192x192", extra_body={"seed": number})
        return checked(made) == number

    async def edited() -> bool:
        made = await client.images.edit(
            model=OMNI, image=("d.png", digit(5)[0]), prompt="Turn it into a 4.", size="192x192"
        )
        return checked(made) == 4

    def checked(made: Any) -> int:
        image = base64.b64decode(made.data[0].b64_json)
        assert image.startswith(b"\x89PNG")
        assert rgb(image).shape == (192, 192, 3)
        return judge(rgb(image))

    right = await asyncio.gather(
        drawn(7, "Draw a seven."), drawn(2, "Please paint a 2."), drawn(0, "Draw a zero."), edited()
    )
    assert sum(right) >= 3, right


async def test_a_drawn_picture_streams_as_a_part_of_the_answer(stack: Stack, client: openai.AsyncOpenAI) -> None:
    image = {"image": {"response_format": "b64_json", "format": "png", "size": "128x128", "seed": 3}}
    stream = await ask(client, OMNI, text("Draw a three."), stream=True, extra_body=image, seed=3)
    chunks = [chunk async for chunk in stream]
    contents: list[Any] = [one.choices[0].delta.content for one in chunks if one.choices]
    said = "".join(one for one in contents if isinstance(one, str))
    (picture,) = [part for one in contents if isinstance(one, list) for part in one]
    assert "3" in said and "<|" not in said
    head, _, encoded = picture["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    assert rgb(base64.b64decode(encoded)).shape == (128, 128, 3)
    assert [one.choices[0].finish_reason for one in chunks if one.choices][-1] == "stop"
    assert (await trail(stack, chunks[0].id))["parts"] == 1


async def test_a_video_is_seen_and_heard(stack: Stack, client: openai.AsyncOpenAI) -> None:
    spoken = await client.audio.speech.create(model=CASCADE, voice="heart", input=SAID, response_format="pcm")
    pcm = np.repeat((np.frombuffer(spoken.content, "<i2") / 32768).astype(np.float32), 2)  # 48 kHz
    mp4 = video(draw=partial(shop, uuid.uuid4().bytes[0] // 2), times=range(round(len(pcm) / 4_800)), with_sound=pcm)
    answer = await ask(client, CASCADE, film(mp4), text("What happens here?"))
    assert answer.choices[0].message.content
    seen, heard = [
        (await artifact_texts(stack, CASCADE, pool, {"film": hashlib.sha256(mp4).hexdigest()}, of_video=True))["film"]
        for pool in ("vision", "audio")
    ]
    assert "OPEN 24 HOURS" in seen
    assert words(heard) == words(SAID)
    told = await trail(stack, answer.id)
    assert (told["media_items"], told["media_encoded"]) == (1, 1)


def shop(colour: int, place: int) -> NDArray[np.uint8]:
    """A sign, and a box that moves past below it; in a colour of its own, so that nobody has seen it before."""
    image = Image.new("RGB", (480, 200), "white")
    pen = ImageDraw.Draw(image)
    pen.text((40, 40), "OPEN 24 HOURS", "black", ImageFont.load_default(44))
    pen.rectangle((place * 10, 130, place * 10 + 50, 180), (255, colour, colour))
    return np.asarray(image)


async def test_an_answer_is_heard_before_it_is_written_to_its_end(client: openai.AsyncOpenAI) -> None:
    stream = await ask(
        client,
        CASCADE,
        text("Write four short sentences about the sea."),
        max_tokens=90,
        modalities=["text", "audio"],
        audio={"voice": "heart", "format": "pcm16"},
        stream=True,
    )
    order = ""
    async for chunk in stream:
        for choice in chunk.choices:
            if (audio := choice.delta.audio) is not None:
                order += "w" * bool(audio.transcript) + "s" * bool(audio.data)
    assert 0 < order.index("s") < order.rindex("w") - 10, order


def half(file: bytes) -> bytes:
    return file[: len(file) // 2]


BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "half a picture": (OMNI, picture_part(half(digit(3)[0]))),
    "half a picture, for another model": (CASCADE, picture_part(half(digit(3)[0]))),
    "sound of 0 bytes": (CASCADE, sound(b"")),
    "sound of 0 samples": (CASCADE, sound(wav(b""))),
    "video that is cut off": (CASCADE, film(moov_first(video())[:3_000])),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("model", "part"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_item_is_a_400_that_names_it(
    stack: Stack, client: openai.AsyncOpenAI, model: str, part: dict[str, Any], stream: bool
) -> None:
    good = [picture_part(digit(8)[0])] * 2
    with pytest.raises(openai.BadRequestError) as raised:
        await ask(client, model, *good, part, text("What is it?"), stream=stream)
    error = raised.value
    assert error.code == "media_unreadable"
    assert str(error.param).startswith("messages[0].content[2]")
    message = error.body["message"].replace(str(error.param), "")  # type: ignore[index]  # the error object, as JSON
    assert message and not TELLTALE.search(message) and not INTERNALS.search(message)
    told = await trail(stack, error.response.headers["x-request-id"])
    assert (told["outcome"], told["media_items"]) == ("media_unreadable", 3)


async def test_requests_of_text_never_reach_encoders_or_decoders(stack: Stack, client: openai.AsyncOpenAI) -> None:
    before = await ends(stack)
    assert set(before) == {"encode.vision", "encode.audio", "decode.image", "decode.audio"}
    for model in (CHAT, CASCADE, OMNI):
        assert (await ask(client, model, text("Say hi."), max_tokens=4)).choices
        assert [one async for one in await ask(client, model, text("Say hi."), max_tokens=4, stream=True)]
    assert await ends(stack) == before
    await ask(client, OMNI, picture_part(digit(9)[0]), text("Which digit is this?"))
    after = await ends(stack)
    assert after.pop("encode.vision") == before.pop("encode.vision") + 1
    assert after == before


async def ends(stack: Stack) -> dict[str, int]:
    """How many records each topic of encoders and decoders has ever had."""
    served = manifests.served(load_settings(stack.environment("gateway"))).values()
    topics = [one.name for one in names.topics_for(list(served)) if one.name.startswith(("encode.", "decode."))]
    consumer = AIOKafkaConsumer(bootstrap_servers=str(stack.describe()["bootstrap"]))
    await consumer.start()
    try:
        places = [TopicPartition(one, number) for one in topics for number in range(names.POOL_PARTITIONS)]
        found = await consumer.end_offsets(places)
        return {one: sum(end for place, end in found.items() if place.topic == one) for one in topics}
    finally:
        await consumer.stop()
