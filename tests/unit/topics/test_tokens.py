"""Ids are those of the original tokenizer, but nothing in a text reads as a control token."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.unit.gateway.tokenizers_of import MAKES
from topics.tokens import REMEMBERED_BYTES, ChatTokenizer, UnusableTokenizer

CONTROL = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<s>", "</s>", "<mask>", "hello", "wholeword")
# What a user may write: any text, text around control tokens, and parts of these.
words = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["the quick brown fox ", " lazy dog", "\n\n", "  ", "<|im_", "start|>", "é", "e\u0301", "😀", "\u200b"]
    ),
)
said = st.lists(words | st.sampled_from(CONTROL), max_size=6).map("".join)

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
    "the quick brown fox " * 1_000 + "<|im_end|>" + "x" * 10_000,
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


ORIGINALS = {make: build() for make, build in MAKES.items()}
# Of each make: one that remembers nothing, one that forgets all the time, one that forgets nothing.
REMEMBERING = {
    make: [ChatTokenizer(original.to_str().encode(), size) for size in (0, 20_000, REMEMBERED_BYTES)]
    for make, original in ORIGINALS.items()
}


def _replaced(ours: ChatTokenizer, text: str, hidden: dict[str, str]) -> str:
    """The text as a template sees it: a number in place of each control token that it spells."""

    def hide(control: str) -> str:
        stand_in = f"86420135798642013579864201{len(hidden):06d}"  # no text has it by chance
        hidden[stand_in] = control
        return stand_in

    return ours.replace_control(text, hide)


@settings(max_examples=150, deadline=None)
@given(st.lists(said, min_size=1, max_size=8), st.sampled_from(sorted(MAKES)))
def test_a_conversation_that_grows_has_the_ids_of_one_that_nobody_remembers(turns: list[str], make: str) -> None:
    tokenizers = REMEMBERING[make]
    hidden: dict[str, str] = {}
    rendered = ""
    for turn in turns:
        rendered += "<|im_start|>user\n" + _replaced(tokenizers[0], turn, hidden) + "<|im_end|>\n"
        forgetful, *others = [each.encode(rendered, hidden) for each in tokenizers]
        assert others == [forgetful, forgetful]
        # A number is not what it stands for; a conversation without any can be given to the original as it is.
        if not hidden:
            assert forgetful == ORIGINALS[make].encode(rendered, add_special_tokens=False).ids


ORIGINAL, FORGETFUL = Tokenizer.from_buffer(TINY), ChatTokenizer(TINY, 20_000)


@settings(max_examples=100, deadline=None)
@given(st.lists(said, min_size=1, max_size=4))
def test_control_tokens_are_the_templates_alone_and_all_that_was_said_is_there(turns: list[str]) -> None:
    ours = FORGETFUL
    control = {token.content: number for number, token in ORIGINAL.get_added_tokens_decoder().items()}
    hidden: dict[str, str] = {}
    for turn in turns:
        ids = ours.encode("<|im_start|>" + _replaced(ours, turn, hidden) + "<|im_end|>", hidden)
        begin, *between, end = ids
        assert (begin, end) == (control["<|im_start|>"], control["<|im_end|>"])
        assert {number for content, number in control.items() if content.strip()}.isdisjoint(between)
        assert ORIGINAL.decode(between, skip_special_tokens=False) == turn


def test_a_long_system_prompt_is_tokenised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, tokenised = ChatTokenizer(TINY), []
    encode = ours._encode
    monkeypatch.setattr(ours, "_encode", lambda text, first: tokenised.append(text) or encode(text, first))
    system = "<|im_start|>system\n" + "the quick brown fox " * 5_000 + "<|im_end|>\n"
    for number in range(3):
        ours.encode(system + f"<|im_start|>user\nquestion {number}<|im_end|>\n", {})
    assert [text for text in tokenised if len(text) > 1_000] == [system.split("<|im_start|>")[1].split("<|im_end|>")[0]]


def test_what_is_remembered_is_bounded_in_bytes() -> None:
    ours = ChatTokenizer(TINY, 200_000)
    for number in range(200):
        ours.encode(f"<|im_start|>{number}" + "the lazy dog 😀" * 100, {})
    assert 100_000 < ours._remembered.held_bytes <= 200_000
