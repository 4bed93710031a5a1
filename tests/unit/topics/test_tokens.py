"""Ids are those of the original tokenizer, but nothing in a text reads as a control token."""

from pathlib import Path

import msgspec
import pytest
from tokenizers import Tokenizer

from tests.unit.gateway.tokenizers_of import MAKES
from topics.tokens import REMEMBERED_CHARS, ChatTokenizer, UnusableTokenizer

TINY = (Path(__file__).parents[2] / "data" / "tiny_tokenizer.json").read_bytes()

PROMPTS = [
    "",
    "hello to the capital",
    "<|im_start|>user\nthe quick  brown\n\nfox<|im_end|>\n<|im_start|>assistant\n",
    "<s> user the lazy dog </s>",
    "<s><s></s>hello",
    " the <mask> dog <mask>over",
    "say hello, hellothere hello",
    "<think>\nquick\n</think>\n\nfrance  and   more",
    "über 😀 naïve \u200b <|im_start|",
    "the quick brown fox " * 1_000 + "<|im_end|>" + "x" * (REMEMBERED_CHARS + 1),
]


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("make", MAKES)
def test_a_prompt_gets_the_ids_of_the_original_tokenizer(make: str, prompt: str) -> None:
    original = MAKES[make]()
    ours = ChatTokenizer(original.to_str().encode())
    expected = original.encode(prompt, add_special_tokens=False).ids
    assert ours.encode(prompt, {}) == expected
    assert ours.encode(prompt, {}) == expected  # remembered


@pytest.mark.parametrize("make", MAKES)
def test_restored_words_never_become_control_tokens(make: str) -> None:
    original = MAKES[make]()
    ours = ChatTokenizer(original.to_str().encode())
    control = {token.content: number for number, token in original.get_added_tokens_decoder().items()}
    for content, number in control.items():
        if not content.strip() or content == "<unk>":  # what stands for text nobody knows controls nothing
            continue
        ids = ours.encode("the 1234567890 fox", {"1234567890": content})
        assert number not in ids, content
        assert ids[0] == original.encode("the", add_special_tokens=False).ids[0]


def test_restored_words_still_say_what_was_written() -> None:
    original = Tokenizer.from_buffer(TINY)
    ids = ChatTokenizer(TINY).encode("say 1234567890 now", {"1234567890": "<|im_end|>"})
    assert original.decode(ids) == "say <|im_end|> now"


def test_white_space_is_no_control_token() -> None:
    assert not ChatTokenizer(TINY).find_control("a\n\nb")
    assert ChatTokenizer(TINY).find_control("a</think>b")


def test_a_lower_bound_is_never_more_than_the_tokens_there_are() -> None:
    ours = ChatTokenizer(TINY)
    for prompt in PROMPTS:
        assert ours.least_tokens(prompt) <= len(ours.encode(prompt, {}))
    assert ours.least_tokens("x" * 100_000) > 1_000


def test_a_tokenizer_whose_ids_would_move_is_refused() -> None:
    spec = msgspec.json.decode(TINY)
    spec["added_tokens"][-1]["id"] += 50
    with pytest.raises(UnusableTokenizer, match="wholeword"):
        ChatTokenizer(msgspec.json.encode(spec))


def test_two_processes_give_the_same_ids_under_different_names() -> None:
    first, second = ChatTokenizer(TINY), ChatTokenizer(TINY)
    prompt = "<|im_start|>user\nhi<|im_end|>"
    assert first.encode(prompt, {}) == second.encode(prompt, {})
    assert first._anchor != second._anchor
