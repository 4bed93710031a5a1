import pytest

from infra import gguf_tokenizer
from infra.gguf_tokenizer import UnsupportedGguf
from tests.unit.infra import tiny_gguf


def cut(text: str, pre: str = "smollm") -> list[str]:
    return gguf_tokenizer.build(tiny_gguf.metadata(pre)).encode(text, add_special_tokens=False).tokens


def test_smollm_takes_digits_alone_so_that_spaces_before_one_stay_together() -> None:
    assert cut("a  2") == ["a", "ĠĠ", "2"]
    assert cut("a  2", pre="gpt-2") == ["a", "Ġ", "Ġ", "2"]


def test_merges_are_applied_in_order() -> None:
    assert cut("a the") == ["a", "Ġthe"]


def test_control_tokens_are_matched_whole_and_skipped_when_decoding() -> None:
    tokenizer = gguf_tokenizer.build(tiny_gguf.metadata())
    ids = tokenizer.encode("<|im_start|>x<|im_end|>").ids
    assert ids[0] == 1 and ids[-1] == 2 and len(ids) == 3
    assert tokenizer.decode(ids) == "x"


@pytest.mark.parametrize("text", ["plain", "  two  spaces\n\t", "한글 😀 é", "3.14", "\x00\x7f"])
def test_what_is_encoded_decodes_to_itself(text: str) -> None:
    tokenizer = gguf_tokenizer.build(tiny_gguf.metadata())
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_an_unknown_rule_or_tokenizer_is_refused_rather_than_guessed() -> None:
    with pytest.raises(UnsupportedGguf, match=r"tokenizer\.ggml\.pre 'llama-bpe'"):
        gguf_tokenizer.build(tiny_gguf.metadata("llama-bpe"))
    with pytest.raises(UnsupportedGguf, match=r"tokenizer\.ggml\.model 'llama'"):
        gguf_tokenizer.build(tiny_gguf.metadata() | {"tokenizer.ggml.model": "llama"})


def test_the_description_names_the_special_tokens_and_a_class_that_keeps_the_rule() -> None:
    described = gguf_tokenizer.describe(tiny_gguf.metadata())
    assert described["eos_token"] == "<|im_end|>" and "pad_token" not in described
    assert described["tokenizer_class"] == "PreTrainedTokenizerFast"
