"""Tokenizers of every make, trained on a sentence: what control tokens do to the text beside them differs."""

from collections.abc import Callable

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = ["the quick brown fox jumps over the lazy dog and says hello to the capital of france <s> user system"] * 20
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]


def _bytes_bpe() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    return made


def _metaspace(scheme: str) -> Callable[[], Tokenizer]:
    def make() -> Tokenizer:
        made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        made.train_from_iterator(
            CORPUS, trainers.BpeTrainer(vocab_size=120, special_tokens=SPECIAL, show_progress=False)
        )
        return made

    return make


def _prepending() -> Tokenizer:
    made = _metaspace("never")()
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.pre_tokenizer = None
    return made


def _unigram() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(
        CORPUS,
        trainers.UnigramTrainer(vocab_size=80, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False),
    )
    return made


def _words() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="<unk>"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIAL, show_progress=False)
    )
    return made


def _swallowing() -> Tokenizer:
    """Added tokens that swallow white space, that are whole words only, and that are no special ones."""
    made = _bytes_bpe()
    made.add_tokens(
        [
            AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("hello", single_word=True, normalized=False),
            AddedToken("<think>", normalized=False),
            AddedToken("  ", normalized=False),
        ]
    )
    return made


MAKES: dict[str, Callable[[], Tokenizer]] = {
    "byte-level BPE": _bytes_bpe,
    "SentencePiece, space before the first": _metaspace("first"),
    "SentencePiece, space before each": _metaspace("always"),
    "SentencePiece, space by normalizer": _prepending,
    "unigram": _unigram,
    "word piece": _words,
    "swallowing": _swallowing,
}
