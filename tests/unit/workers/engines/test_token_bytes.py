import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from infra import gguf_tokenizer
from tests.unit.infra import tiny_gguf
from workers.engines.token_bytes import TokenBytes, text_of


@pytest.mark.parametrize("text", ["the  cat", "한글 😀é\n\t", "\x00\x1f\x7f\xa0\xad"])
def test_the_bytes_of_byte_level_tokens_add_up_to_the_text(text: str) -> None:
    tokenizer = gguf_tokenizer.build(tiny_gguf.metadata())
    token_bytes = TokenBytes(tokenizer)
    assert b"".join(token_bytes.of(i) for i in tokenizer.encode(text).ids) == text.encode()


def test_a_control_token_is_its_own_name_and_a_padding_row_is_nothing() -> None:
    token_bytes = TokenBytes(gguf_tokenizer.build(tiny_gguf.metadata()))
    assert token_bytes.of(1) == b"<|im_start|>"
    assert token_bytes.of(99_999) == b""


def test_sentencepiece_vocabularies_mark_spaces_and_fall_back_to_bytes() -> None:
    vocabulary = {"<unk>": 0, "<s>": 1, "\u2581the": 2, "<0xF0>": 3, "x": 4}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    token_bytes = TokenBytes(tokenizer)
    assert [token_bytes.of(i) for i in (1, 2, 3, 4)] == [b"<s>", b" the", b"\xf0", b"x"]


def test_part_of_a_character_shows_as_such() -> None:
    assert text_of(b"\xf0\x9f") == "\ufffd" and text_of(b"a") == "a"
