"""Pictures in answers, and the routes that answer with pictures alone."""

import asyncio
import base64
import json
from typing import Any

import openai
import pytest

from schemas.events import Progress
from schemas.media import ImageOptions
from tests.pipeline.conftest import Gateway
from tests.pipeline.models import DRAWS, MODEL
from tests.pipeline.samples import OTHER_PNG, PNG, WAV
from tests.pipeline.scripted import Run, token
from tests.waiting import until

DRAW: Any = [{"role": "user", "content": "Draw a seven."}]
DRAWN = b"picture of 7"


async def ask(gateway: Gateway, **more: Any) -> Any:
    given: dict[str, Any] = {"model": DRAWS.id, "messages": DRAW} | more
    return await gateway.client().chat.completions.create(**given)


def draws(gateway: Gateway) -> Any:
    async def script(run: Run) -> None:
        for index in range(run.job.sampling.n):
            await run.say("Here: ", index=index)
            await gateway.pool.part(run, "image", 0, index=index, codes=[7])
            await run.emit(token("Done.", index, finish_reason="stop"))
        await run.finish(9)

    return script


async def test_a_model_that_draws_on_its_own_gives_pictures_as_content_parts(gateway: Gateway) -> None:
    gateway.pool.script = draws(gateway)
    answer = await ask(gateway)
    content: Any = answer.choices[0].message.content
    assert [part["type"] for part in content] == ["text", "image_url", "text"]
    assert (content[0]["text"], content[2]["text"]) == ("Here: ", "Done.")
    assert content[1]["image_url"]["url"].startswith(f"{gateway.url}/v1/outputs/")
    (output,) = gateway.pool.jobs[0].outputs
    assert (output.begin, output.end, output.first, output.last) == (358, 359, 35, 60)
    assert output.options == ImageOptions()


async def test_pictures_are_data_urls_when_asked_for(gateway: Gateway) -> None:
    gateway.pool.script = draws(gateway)
    image = {"response_format": "b64_json", "format": "webp", "size": "64x32", "steps": 3, "guidance": 1.5, "seed": 5}
    answer = await ask(gateway, modalities=["text", "image"], extra_body={"image": image})
    content: Any = answer.choices[0].message.content
    head, _, data = content[1]["image_url"]["url"].partition(",")
    assert head == "data:image/webp;base64"
    assert base64.b64decode(data) == DRAWN
    assert gateway.pool.jobs[0].outputs[0].options == ImageOptions("webp", 64, 32, 3, 1.5, 5)


async def test_the_seed_of_the_answer_is_that_of_its_pictures_too(gateway: Gateway) -> None:
    await ask(gateway, seed=11)
    assert gateway.pool.jobs[0].outputs[0].options == ImageOptions(seed=11)


async def test_a_stream_gives_a_picture_when_it_is_ready_and_then_ends(gateway: Gateway) -> None:
    go = asyncio.Event()

    async def decoder(run: Run) -> None:
        await go.wait()
        await run.emit(Progress(0, 0, 1, 2))
        await run.made(DRAWN, width=8, height=8)
        await run.finish(0)

    gateway.pool.script, gateway.pool.decoder = draws(gateway), decoder
    body = {"model": DRAWS.id, "messages": DRAW, "stream": True, "image": {"response_format": "b64_json"}}
    lines = []
    async with (
        gateway.http() as client,
        client.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        async for line in response.aiter_lines():
            lines += [line] if line else []
            if "Done." in line:
                go.set()
    assert lines.pop() == "data: [DONE]"
    assert ": step 1 of 2" in lines
    choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines if line.startswith("data: ")]
    contents = [choice["delta"].get("content") for choice in choices]
    assert contents[:3] == ["", "Here: ", "Done."]
    assert base64.b64decode(contents[3][0]["image_url"]["url"].partition(",")[2]) == DRAWN
    assert [choice["finish_reason"] for choice in choices] == [None] * 4 + ["stop"]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the SDK knows content as text only
async def test_the_sdk_s_stream_helper_reads_an_answer_with_pictures(gateway: Gateway) -> None:
    gateway.pool.script = draws(gateway)
    async with gateway.client().chat.completions.stream(model=DRAWS.id, messages=DRAW) as stream:
        pictures = [
            event.delta for event in [e async for e in stream] if event.type == "content.delta" and event.delta != ""
        ]
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "Here: Done."
    assert any(isinstance(one, list) for one in pictures)


async def test_a_picture_that_cannot_be_made_fails_the_answer(gateway: Gateway) -> None:
    async def decoder(run: Run) -> None:
        await run.fail("decoder_failed", "these codes are no picture")

    gateway.pool.script, gateway.pool.decoder = draws(gateway), decoder
    with pytest.raises(openai.InternalServerError, match="no picture") as raised:
        await ask(gateway)
    assert raised.value.code == "decoder_failed"


async def test_a_picture_that_is_gone_from_the_store_fails_the_answer(gateway: Gateway) -> None:
    async def decoder(run: Run) -> None:
        await run.made(DRAWN)
        gateway.blobs._objects.clear()
        await run.finish(0)

    gateway.pool.script, gateway.pool.decoder = draws(gateway), decoder
    with pytest.raises(openai.InternalServerError, match="not to be found"):
        await ask(gateway, extra_body={"image": {"response_format": "b64_json"}})


async def test_images_generate_gives_base64_unless_urls_are_asked_for(gateway: Gateway) -> None:
    gateway.pool.script = draws(gateway)
    client = gateway.client()
    made = await client.images.generate(model=DRAWS.id, prompt="Draw a seven.", size="256x256")
    assert made.data is not None and made.usage is not None
    assert base64.b64decode(made.data[0].b64_json or "") == DRAWN
    assert (made.output_format, made.size, made.background) == ("png", "8x8", "opaque")
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens > 9
    job = gateway.pool.jobs[0]
    assert job.head.request_id.startswith("img-")
    assert job.outputs[0].options == ImageOptions()
    urls = await client.images.generate(model=DRAWS.id, prompt="x", response_format="url")
    assert urls.data is not None
    assert (urls.data[0].url or "").startswith(f"{gateway.url}/v1/outputs/")


async def test_every_parameter_of_a_picture_reaches_its_decoder(gateway: Gateway) -> None:
    gateway.pool.script = draws(gateway)
    await gateway.client().images.generate(
        model=DRAWS.id,
        prompt="x",
        n=2,
        size="512x256",  # type: ignore[arg-type]  # the SDK names OpenAI's sizes only
        output_format="jpeg",
        output_compression=70,
        quality="high",
        user="me",
        background="auto",
        extra_body={"seed": 3, "guidance": 4.0},
    )
    job = gateway.pool.jobs[0]
    assert job.outputs[0].options == ImageOptions("jpeg", 512, 256, 50, 4.0, 3, 70)
    assert (job.sampling.n, job.sampling.seed) == (2, 3)
    assert ("user", b"me") in gateway.pool.sent[0][2]


async def test_n_pictures_are_n_choices_of_one_request(gateway: Gateway) -> None:
    gateway.pool.script = draws(gateway)
    made = await gateway.client().images.generate(model=DRAWS.id, prompt="x", n=3)
    assert made.data is not None
    assert len(made.data) == 3
    assert len(gateway.pool.jobs) == 1


async def test_fewer_pictures_than_asked_for_are_the_prompts_fault(gateway: Gateway) -> None:
    client = gateway.client()
    with pytest.raises(openai.BadRequestError, match="no picture") as raised:
        await client.images.generate(model=DRAWS.id, prompt="x")
    assert (raised.value.code, raised.value.param, raised.value.type) == (
        "not_drawn",
        "prompt",
        "invalid_request_error",
    )
    with pytest.raises(openai.BadRequestError, match="0 of 2 pictures"):
        await client.images.generate(model=DRAWS.id, prompt="x", n=2)
    with pytest.raises(openai.APIError, match="no picture") as streamed:
        async for _ in await client.images.generate(model=DRAWS.id, prompt="x", stream=True):
            pass
    assert streamed.value.code == "not_drawn"


async def test_generated_images_stream_as_they_are_completed(gateway: Gateway) -> None:
    async def decoder(run: Run) -> None:
        await run.emit(Progress(0, 0, 1, 2))
        await run.made(DRAWN, width=8, height=8)
        await run.finish(0)

    gateway.pool.script, gateway.pool.decoder = draws(gateway), decoder
    stream = await gateway.client().images.generate(model=DRAWS.id, prompt="x", n=2, stream=True)
    events: list[Any] = [event async for event in stream]
    completed = [event for event in events if event.type == "image_generation.completed"]
    assert [base64.b64decode(event.b64_json) for event in completed] == [DRAWN, DRAWN]
    assert [event.usage is None for event in completed] == [True, False]
    assert any(event.type == "image_generation.progress" for event in events)


async def test_images_edit_sends_its_images_and_words_as_one_message(gateway: Gateway) -> None:
    gateway.pool.script = draws(gateway)
    client = gateway.client(api_key="a key of my own")
    one = await client.images.edit(model=DRAWS.id, image=PNG, prompt="Make it a seven.", size="256x256")
    assert one.data is not None
    assert base64.b64decode(one.data[0].b64_json or "") == DRAWN
    await client.images.edit(model=DRAWS.id, image=[("a.png", PNG), ("b.png", OTHER_PNG)], prompt="Mix them.")
    assert [slot.param for slot in gateway.pool.encode_jobs[-1].slots] == ["image[0]", "image[1]"]
    assert len(gateway.pool.encode_jobs) == 2  # the first image was known
    stream = await client.images.edit(model=DRAWS.id, image=PNG, prompt="x", stream=True)
    assert [event.type async for event in stream] == ["image_edit.completed"]
    assert (await client.files.list()).data == []


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"model": MODEL}, "model"),
        ({"model": "nobody"}, "model"),
        ({"size": "4x4"}, "size"),
        ({"size": "big"}, "size"),
        ({"n": 11}, "n"),
        ({"n": 5}, "n"),
        ({"style": "vivid"}, "style"),
        ({"moderation": "low"}, "moderation"),
        ({"background": "transparent"}, "background"),
        ({"partial_images": 2}, "partial_images"),
        ({"output_format": "gif"}, "output_format"),
        ({"extra_body": {"wat": 1}}, "wat"),
    ],
)
async def test_what_cannot_be_drawn_is_refused_by_name(gateway: Gateway, more: dict[str, Any], param: str) -> None:
    given: dict[str, Any] = {"model": DRAWS.id, "prompt": "x"} | more
    with pytest.raises(openai.APIStatusError) as raised:
        await gateway.client().images.generate(**given)
    assert raised.value.status_code in (400, 404)
    assert raised.value.param == param
    assert gateway.pool.sent == []


async def test_an_edit_without_a_picture_or_of_something_else_is_refused(gateway: Gateway) -> None:
    client = gateway.client()
    with pytest.raises(openai.BadRequestError, match="audio/wav") as raised:
        await client.images.edit(model=DRAWS.id, image=WAV, prompt="x")
    assert raised.value.param == "image[0]"
    with pytest.raises(openai.BadRequestError, match="mask"):
        await client.images.edit(model=DRAWS.id, image=PNG, mask=PNG, prompt="x")
    async with gateway.http() as http:
        response = await http.post("/v1/images/edits", files={"prompt": (None, "x"), "model": (None, DRAWS.id)})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "image")


async def test_a_client_that_goes_away_cancels_the_drawing(gateway: Gateway) -> None:
    gateway.pool.script, gateway.pool.decoder = draws(gateway), Run.cancelled
    call = asyncio.create_task(gateway.client().images.generate(model=DRAWS.id, prompt="x"))
    await until(lambda: len(gateway.pool.decoding) == 1)
    call.cancel()
    await until(lambda: gateway.pool.decoding[0].was_cancelled, within_s=1.0)
