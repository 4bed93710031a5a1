"""Messages with media: taken in, encoded once, joined into the prompt where they stand; refused by name."""

from typing import Any

import openai
import pytest

from schemas.errors import TriptychError
from schemas.events import Failed, Steered
from schemas.jobs import EncodeJob
from schemas.media import Artifact
from schemas.steering import Decision
from tests.pipeline.conftest import DATA, Gateway
from tests.pipeline.models import CASCADE, DRAWS, MODEL
from tests.pipeline.samples import MP4, OTHER_PNG, PNG, WAV, b64, data_url, image, text
from tests.pipeline.scripted import Run, hello
from tests.waiting import until
from topics.tokens import ChatTokenizer

TOKENS = ChatTokenizer((DATA / "tiny_tokenizer.json").read_bytes())


def user(*parts: dict[str, object]) -> Any:
    return [{"role": "user", "content": list(parts)}]


def prompt(content: str) -> list[int]:
    """Of one user message; what stands for media is part of the text here."""
    return TOKENS.encode(f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n", {})


async def ask(gateway: Gateway, messages: Any, model: str = CASCADE.id, **more: Any) -> Any:
    return await gateway.client().chat.completions.create(model=model, messages=messages, **more)


async def test_a_picture_is_encoded_and_stands_in_the_prompt_where_it_was_put(gateway: Gateway) -> None:
    answer = await ask(gateway, user(text("See"), image(), text("What is it?")), max_tokens=9)
    assert answer.choices[0].message.content == "Hello!"
    assert answer.model == CASCADE.id
    (encode,) = gateway.pool.encode_jobs
    assert encode.slot.param == "messages[0].content[1]"
    assert encode.slot.encoder == "tiny-cascade/vision"
    (job,) = gateway.pool.jobs
    described = f"image {len(PNG)}"
    before, after = TOKENS.encode("See\n[", {}, begins=False), TOKENS.encode("]\nWhat is it?", {}, begins=False)
    said = TOKENS.encode(described, {}, begins=False)
    middle = [*before, *said, *after]
    assert str(middle)[1:-1] in str(job.prompt_ids)
    assert job.sampling.max_tokens == 9
    assert job.head.model == MODEL
    assert [topic for topic, _, _ in gateway.pool.sent] == ["encode.vision", f"generate.{MODEL}"]


@pytest.mark.parametrize("more", [{}, {"modalities": ["text", "audio"], "audio": {"voice": "sky", "format": "wav"}}])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_encoder_decided_is_in_the_trail_and_not_in_the_answer(
    gateway: Gateway, stream: bool, more: dict[str, Any]
) -> None:
    decision = Decision("worker-1", 7, "home", 48, alternatives={"worker-2:1": 0.5})

    async def script(run: Run) -> None:
        await run.emit(Steered(0, 0, decision))
        await hello(run)

    gateway.pool.script = script
    async with gateway.http() as client:
        body = {"model": CASCADE.id, "messages": user(image()), "stream": stream, **more}
        if stream and more:
            body["audio"] = {"voice": "sky", "format": "pcm16"}
        answer = await client.post("/v1/chat/completions", json=body)
        told = (await client.get(f"/v1/requests/{answer.headers['x-request-id']}")).json()
    assert answer.status_code == 200
    assert "worker-2" not in answer.text
    assert (told["outcome"], told["media_encoded"]) == ("finished", 1)
    assert (told["steering"], told["placed_worker"], told["predicted_cached_tokens"]) == ("home", "worker-1", 48)
    assert told["alternatives"] == [{"worker": "worker-2:1", "cost": 0.5}]
    if not stream:
        assert answer.headers["x-triptych-steering"] == "home"
        assert answer.headers["x-triptych-predicted-tokens"] == "48"


async def test_what_has_been_encoded_before_goes_to_no_encoder(gateway: Gateway) -> None:
    for _ in range(2):
        await ask(gateway, user(image(), text("What is it?")))
    assert len(gateway.pool.encode_jobs) == 1
    first, second = gateway.pool.jobs
    assert first.prompt_ids == second.prompt_ids
    assert first.sampling == second.sampling
    gateway.notes.forget()
    await ask(gateway, user(image(), text("And now?")))
    assert len(gateway.pool.encode_jobs) == 1  # the object store is the truth


async def test_only_what_is_missing_is_asked_for_and_the_same_thing_once(gateway: Gateway) -> None:
    await ask(gateway, user(image()))
    await ask(gateway, user(image(), image(OTHER_PNG), image(OTHER_PNG)))
    first, second = gateway.pool.encode_jobs
    assert (second.number, len(second.slots)) == (1, 3)
    assert first.slot.source.digest != second.slot.source.digest
    assert len(gateway.pool.jobs[-1].prompt_ids) > len(gateway.pool.jobs[0].prompt_ids)


async def test_many_items_of_one_request_spread_over_the_partitions(gateway: Gateway) -> None:
    await ask(gateway, user(*(image(PNG + b"%d" % number) for number in range(4))))
    partitions = [partition for topic, partition, _ in gateway.pool.sent if topic == "encode.vision"]
    assert len(set(partitions)) == 4
    assert {partition // 6 for partition in partitions if partition is not None} == {0, 1}  # both halves


async def test_every_way_to_give_media_is_taken(gateway: Gateway) -> None:
    gateway.web.pages = {"https://example.org/a": PNG, "https://example.org/b": WAV, "https://example.org/c": MP4}
    uploaded = await gateway.client().files.create(file=("x.bin", PNG), purpose="vision")
    parts: list[Any] = [
        {"type": "image_url", "image_url": {"url": "https://example.org/a", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": b64(WAV), "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "https://example.org/b", "format": "mp3"}},
        {"type": "input_audio", "input_audio": {"data": b64(b"https://example.org/b"), "format": "mp3"}},
        {"type": "video_url", "video_url": {"url": "https://example.org/c"}},
        {"type": "file", "file": {"file_id": uploaded.id}},
        {"type": "file", "file": {"file_data": b64(WAV), "filename": "a.wav"}},
        {"type": "file", "file": {"file_data": data_url(PNG)}},
    ]
    for part in parts:
        await ask(gateway, user(part))
    kinds = {(job.slot.kind, job.slot.pool) for job in gateway.pool.encode_jobs}
    assert kinds == {("image", "vision"), ("audio", "audio"), ("video", "vision"), ("video", "audio")}
    assert len(gateway.pool.encode_jobs) == 4  # each content once, however it came
    assert len(gateway.pool.jobs) == len(parts)


async def test_a_video_is_seen_and_heard_at_one_place(gateway: Gateway) -> None:
    await ask(gateway, user({"type": "video_url", "video_url": {"url": data_url(MP4, "video/mp4")}}))
    seen, heard = gateway.pool.encode_jobs
    assert [slot.pool for slot in seen.slots] == ["vision", "audio"]
    assert heard.slots == seen.slots
    assert heard.slots[1].offset > heard.slots[0].offset  # the manifest's "]" is between them
    assert len(gateway.pool.jobs) == 1


async def test_what_is_known_of_a_video_says_nothing_about_the_same_bytes_as_a_sound(gateway: Gateway) -> None:
    await ask(gateway, user({"type": "video_url", "video_url": {"url": data_url(MP4, "video/mp4")}}))
    await ask(gateway, user({"type": "input_audio", "input_audio": {"data": b64(MP4), "format": "mp4"}}))
    asked = [(job.slot.kind, job.slot.pool) for job in gateway.pool.encode_jobs]
    assert asked == [("video", "vision"), ("video", "audio"), ("audio", "audio")]
    assert len({job.slot.artifact for job in gateway.pool.encode_jobs}) == 3


async def test_media_may_stand_in_any_turn(gateway: Gateway) -> None:
    messages: Any = [
        *user(image(), text("a")),
        {"role": "assistant", "content": [text("b"), image(OTHER_PNG)]},
        *user(text("c"), image()),
    ]
    await ask(gateway, messages)
    slots = gateway.pool.encode_jobs[0].slots
    assert [slot.param for slot in slots] == [
        "messages[0].content[0]",
        "messages[1].content[1]",
        "messages[2].content[1]",
    ]
    assert [slot.offset for slot in slots] == sorted(slot.offset for slot in slots)


async def test_embeddings_take_as_many_placeholders_as_they_have_rows(gateway: Gateway) -> None:
    gateway.encoder.of = lambda job: Artifact(
        "embeddings", "fp", job.slot.source.digest, rows=3, width=2, dtype="float32"
    )
    gateway.encoder.language = gateway.desk.models.get(DRAWS.id).language
    await ask(gateway, user(image()), model=DRAWS.id)
    (job,) = gateway.pool.jobs
    (embeds,) = job.embeds
    assert job.prompt_ids[embeds.offset - 1 : embeds.offset + 4] == [358, 0, 0, 0, 359]
    assert embeds.artifact == gateway.pool.encode_jobs[0].slot.artifact


async def test_requests_of_text_never_touch_encoders_decoders_or_the_store(gateway: Gateway) -> None:
    for model in (MODEL, CASCADE.id, DRAWS.id):
        await ask(gateway, [{"role": "user", "content": [text("only"), text("text")]}], model=model)
    assert {topic for topic, _, _ in gateway.pool.sent} == {f"generate.{MODEL}"}
    assert gateway.blobs._objects == {}


@pytest.mark.parametrize(
    ("part", "code", "words"),
    [
        (image(b"no picture at all"), "media_type_unsupported", "messages"),
        (image(WAV), "media_type_unsupported", "audio/wav"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}, "media_unreadable", "base64"),
        ({"type": "input_audio", "input_audio": {"data": "!!", "format": "wav"}}, "media_unreadable", "base64"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "media_unreadable", "empty"),
        ({"type": "input_audio", "input_audio": {"data": "\u00e9t\u00e9"}}, "media_unreadable", "neither base64"),
        ({"type": "file", "file": {"file_data": "./a.png"}}, "media_unreadable", "neither base64 nor a URL"),
        ({"type": "file", "file": {"file_data": ""}}, "media_unreadable", "empty"),
        ({"type": "file", "file": {"file_id": "file-" + "x" * 32}}, "file_not_found", "no file"),
        ({"type": "file", "file": {"filename": "a.png"}}, "invalid_request", "either"),
        ({"type": "file", "file": {"file_id": "a", "file_data": "b"}}, "invalid_request", "either"),
        (image(PNG + bytes(60_000)), "media_too_large", "50000 bytes"),
    ],
)
async def test_an_item_that_cannot_be_taken_is_refused_by_its_place(
    gateway: Gateway, part: dict[str, object], code: str, words: str
) -> None:
    with pytest.raises(openai.APIStatusError, match=words) as raised:
        await ask(gateway, user(text("look"), image(), part))
    assert raised.value.code == code
    assert str(raised.value.param).startswith("messages[0].content[2]")
    assert gateway.pool.sent == []


async def test_a_model_refuses_what_it_has_no_capability_for(gateway: Gateway) -> None:
    with pytest.raises(openai.BadRequestError, match=r"'tiny' has no capability 'image_in'") as raised:
        await ask(gateway, user(image()), model=MODEL)
    assert raised.value.param == "messages[0].content[0]"
    with pytest.raises(openai.BadRequestError, match=r"'tiny-draws' has no capability 'audio_in'"):
        await ask(gateway, user({"type": "file", "file": {"file_data": b64(WAV)}}), model=DRAWS.id)
    assert gateway.pool.sent == []


async def test_what_an_encoder_finds_wrong_is_a_400_that_names_the_item(gateway: Gateway) -> None:
    async def broken(run: Run) -> None:
        await gateway.results.end(
            run.encode.head, Failed(0, 0, "media_unreadable", "it is cut off", run.encode.slot.param)
        )

    gateway.pool.encoder = broken
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="cut off") as raised:
            await ask(gateway, user(image()), stream=stream)
        assert raised.value.param == "messages[0].content[0]"


async def test_media_that_make_the_prompt_too_long_are_refused_with_the_numbers(gateway: Gateway) -> None:
    await ask(gateway, user(image()))
    long = "many words " * 400

    def describe(job: EncodeJob) -> Artifact:
        return Artifact("text", "fp", job.slot.source.digest, text=long)

    gateway.encoder.of = describe

    async def encode_only(run: Run) -> None:
        try:
            await gateway.encoder(run)
        except TriptychError as error:
            await gateway.results.end(run.encode.head, Failed(0, 0, error.code, error.message, error.param))

    gateway.pool.encoder = encode_only
    with pytest.raises(openai.BadRequestError, match="of which the media are") as raised:
        await ask(gateway, user(image(OTHER_PNG)))
    assert raised.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="of which the media are"):  # and when it is known already
        await ask(gateway, user(image(OTHER_PNG)))


async def test_a_client_that_goes_away_while_encoders_work_cancels_the_request(gateway: Gateway) -> None:
    async def slow(run: Run) -> None: ...

    gateway.pool.encoder = slow
    client = gateway.client(timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        await client.chat.completions.create(model=CASCADE.id, messages=user(image()))
    head = gateway.pool.encode_jobs[0].head
    await until(lambda: gateway.hub.request(MODEL, head.request_id).cancelled, within_s=1.0)


async def test_a_bus_that_does_not_take_the_encode_jobs_is_a_503(gateway: Gateway) -> None:
    gateway.pool.refuse = TriptychError("overloaded", "the bus is full", retry_after_s=1)
    with pytest.raises(openai.InternalServerError, match="the bus is full") as raised:
        await ask(gateway, user(image(), image(OTHER_PNG)))
    assert raised.value.status_code == 503


async def test_the_trail_tells_of_media(gateway: Gateway) -> None:
    answer = await ask(gateway, user(image(), image(OTHER_PNG)))
    again = await ask(gateway, user(image()))
    film = await ask(gateway, user({"type": "video_url", "video_url": {"url": data_url(MP4, "video/mp4")}}))
    async with gateway.http() as client:
        first, second, third = [(await client.get(f"/v1/requests/{one.id}")).json() for one in (answer, again, film)]
    assert (first["media_items"], first["media_encoded"], first["model"]) == (2, 2, CASCADE.id)
    assert (second["media_items"], second.get("media_encoded", 0)) == (1, 0)
    assert (third["media_items"], third["media_encoded"]) == (1, 1)  # one item, though it is seen and heard
