from pathlib import Path

import msgspec
import pytest

from schemas.errors import TriptychError
from schemas.jobs import GenerateJob, Head, Sampling
from schemas.media import Artifact, Embeds, Room, Slot
from schemas.refs import BlobRef
from topics.fingerprints import content_digest
from topics.join import Language, assemble, plain
from topics.tokens import ChatTokenizer

HEAD = Head("r", "m", deadline_at=2e9, created_at=1.8e9, reply_to="gw")
DRAFT = GenerateJob(HEAD, list(range(10)), Sampling(max_tokens=1, temperature=0.5))
ROOM = Room(context_tokens=100)
LANGUAGE = Language(lambda text: [500 + len(word) for word in text.split()], {"m/vision": 99})


def slot(offset: int, name: str = "a", param: str = "messages[0].content[1]") -> Slot:
    return Slot(offset, "image", "vision", "m/vision", BlobRef(f"media/{name}", name, 3), f"artifacts/{name}", param)


def text(words: str) -> Artifact:
    return Artifact("text", "fp", "a", text=words)


def rows(count: int, source: str = "a") -> Artifact:
    return Artifact("embeddings", "fp", source, rows=count, width=4, dtype="float32")


def test_text_stands_where_its_slot_is() -> None:
    job = assemble(DRAFT, [slot(4)], [text("one three")], ROOM, LANGUAGE)
    assert job.prompt_ids == [0, 1, 2, 3, 503, 505, 4, 5, 6, 7, 8, 9]
    assert job.embeds == []
    assert job.sampling == Sampling(max_tokens=88, temperature=0.5)


def test_token_ids_are_taken_as_they_are() -> None:
    found = Artifact("token_ids", "fp", "a", token_ids=[71, 72])
    assert assemble(DRAFT, [slot(10)], [found], ROOM, LANGUAGE).prompt_ids == [*range(10), 71, 72]


def test_embeddings_get_placeholders_and_the_offsets_they_have_in_the_end() -> None:
    slots = [slot(0, "a"), slot(4, "b"), slot(4, "c"), slot(10, "a")]
    artifacts = [rows(2), text("word"), rows(1, "c"), rows(2)]
    job = assemble(DRAFT, slots, artifacts, ROOM, LANGUAGE)
    assert job.prompt_ids == [99, 99, 0, 1, 2, 3, 504, 99, 4, 5, 6, 7, 8, 9, 99, 99]
    assert job.embeds == [
        Embeds(0, 2, "artifacts/a", content_digest("fp", "a")),
        Embeds(7, 1, "artifacts/c", content_digest("fp", "c")),
        Embeds(14, 2, "artifacts/a", content_digest("fp", "a")),
    ]


def test_an_item_in_which_nothing_was_found_leaves_no_trace() -> None:
    job = assemble(DRAFT, [slot(4), slot(5)], [text(""), rows(0)], ROOM, LANGUAGE)
    assert (job.prompt_ids, job.embeds) == (DRAFT.prompt_ids, [])


def test_the_answer_has_what_was_asked_for_or_what_is_left() -> None:
    assert assemble(DRAFT, [slot(4)], [rows(20)], Room(100, 30), LANGUAGE).sampling.max_tokens == 30
    assert assemble(DRAFT, [slot(4)], [rows(20)], Room(100), LANGUAGE).sampling.max_tokens == 70
    assert assemble(DRAFT, [slot(4)], [rows(60)], Room(100, 30), LANGUAGE).sampling.max_tokens == 30


def test_a_prompt_that_grew_too_long_names_its_media() -> None:
    slots = [slot(4, param="messages[0].content[0]"), slot(4, param="messages[1].content[2]")]
    with pytest.raises(TriptychError, match=r"messages\[0\].content\[0\] \(image\): 2") as caught:
        assemble(DRAFT, slots, [rows(2), rows(59)], Room(71, 30), LANGUAGE)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages[1].content[2]")
    assert "you requested 101 tokens" in caught.value.message
    assert caught.value.message.endswith("Please reduce the messages or media.")


def test_an_answer_that_may_be_too_long_beside_media_is_named_as_the_client_named_it() -> None:
    for room in (Room(100, 30), Room(100, 30, asked_as="max_completion_tokens")):
        with pytest.raises(TriptychError, match="of which the media are 61") as caught:
            assemble(DRAFT, [slot(4)], [rows(61)], room, LANGUAGE)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", room.asked_as)
        assert f"Please reduce '{room.asked_as}' to at most 29, or" in caught.value.message


def test_a_prompt_may_fill_the_context_but_for_one_token() -> None:
    assert assemble(DRAFT, [slot(4)], [rows(89)], Room(100), LANGUAGE).sampling.max_tokens == 1
    with pytest.raises(TriptychError, match="maximum context length"):
        assemble(DRAFT, [slot(4)], [rows(90)], Room(100), LANGUAGE)


def test_min_tokens_must_still_fit() -> None:
    with pytest.raises(TriptychError, match="min_tokens"):
        assemble(DRAFT, [slot(4)], [rows(80)], Room(100, min_tokens=20), LANGUAGE)


def test_all_else_of_the_draft_stays() -> None:
    draft = msgspec.structs.replace(DRAFT, sampling=Sampling(max_tokens=1, seed=7, stop=["x"]))
    job = assemble(draft, [slot(4)], [text("word")], ROOM, LANGUAGE)
    assert msgspec.structs.replace(job.sampling, max_tokens=1) == draft.sampling
    assert job.head == draft.head


def test_no_control_token_comes_out_of_a_picture() -> None:
    tokenizer = ChatTokenizer((Path(__file__).parents[2] / "data" / "tiny_tokenizer.json").read_bytes())
    tokenize = plain(tokenizer)
    control = set(tokenizer._ids)
    assert control
    for spelled in sorted(control):
        assert not set(tokenize(f"sign: {spelled} end")) & set(tokenizer._ids.values())
    assert tokenize("") == []
