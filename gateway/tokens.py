"""Prompt text -> token ids, such that control tokens come from the model's template and never from what a user wrote.

A tokenizer cannot tell who wrote `<|im_end|>`. So ours knows every added token (special or not: `<think>` steers a
model as well) only under a random alias that is made when the process starts. Whoever renders the prompt replaces the
template's control tokens by their aliases; all that is left is plain text. Ids are those of the original tokenizer.
"""

import re
import secrets
import string
from collections.abc import Callable
from typing import Any

import msgspec
from tokenizers import Tokenizer

# Letters only, lower case: no normalizer changes them and no pre-tokenizer has a reason to.
ALIAS_LETTERS = 24


class UnusableTokenizer(Exception):
    """This tokenizer.json cannot be used; the message says why. A start-up error."""


class ChatTokenizer:
    """Built once per model from the bytes of its `tokenizer.json`. Safe to use from several threads.

    Raises:
        UnusableTokenizer: aliased control tokens do not get the ids of the original ones.
    """

    def __init__(self, tokenizer_json: bytes) -> None:
        spec = msgspec.json.decode(tokenizer_json)
        # Runs of white space are how some tokenizers write plain text; they control nothing.
        added = [token for token in spec["added_tokens"] if token["content"].strip()]
        ids = {token["content"]: token["id"] for token in added}
        self._aliases = _aliases_for([token["content"] for token in added])
        self._control = _matcher(added)
        _rename(spec, self._aliases)
        self._tokenizer = Tokenizer.from_buffer(msgspec.json.encode(spec))
        for content, alias in self._aliases.items():
            if self._tokenizer.token_to_id(alias) != ids[content]:
                raise UnusableTokenizer(f"control token {content!r} does not keep its id {ids[content]} under an alias")
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        self._longest = max(len(token.encode()) for token in vocabulary)

    def least_tokens(self, text: str) -> int:
        """A lower bound that costs nothing: no token holds more bytes than the longest one."""
        return len(text) // self._longest

    def find_control(self, text: str) -> bool:
        """Whether the text spells out a control token."""
        return self._control.search(text) is not None

    def replace_control(self, text: str, replacement: Callable[[str], str]) -> str:
        """Every spelled-out control token, replaced by what the function makes of it."""
        return self._control.sub(lambda match: replacement(match.group()), text)

    def encode(self, rendered: str, restore: dict[str, str]) -> list[int]:
        """Ids of a rendered prompt.

        `restore` maps the stand-ins that keep a user's words apart while rendering back to those words.
        """
        aliased = self._control.sub(lambda match: self._aliases[match.group()], rendered)
        for stand_in, text in restore.items():
            aliased = aliased.replace(stand_in, text)
        # The batch call lets other threads run and does not track offsets: a third faster than `encode`.
        ids: list[int] = self._tokenizer.encode_batch_fast([aliased], add_special_tokens=False)[0].ids
        return ids


def _aliases_for(contents: list[str]) -> dict[str, str]:
    # Fixed-width numbers, so that no alias is the beginning of another.
    secret = "".join(secrets.choice(string.ascii_lowercase) for _ in range(ALIAS_LETTERS))
    digits = str.maketrans(string.digits, "abcdefghij")
    return {content: secret + f"{number:06d}".translate(digits) for number, content in enumerate(contents)}


def _matcher(added: list[dict[str, Any]]) -> re.Pattern[str]:
    """Matches as the tokenizer does: the longest token first, and whole words only where it says so."""
    if not added:
        return re.compile(r"(?!)")
    longest_first = sorted(added, key=lambda token: -len(token["content"]))
    return re.compile(
        "|".join(
            rf"(?<!\w){re.escape(token['content'])}(?!\w)" if token["single_word"] else re.escape(token["content"])
            for token in longest_first
        )
    )


def _rename(spec: dict[str, Any], aliases: dict[str, str]) -> None:
    """Give the added tokens of a tokenizer.json other names, everywhere, so that no text can spell them."""
    for token in spec["added_tokens"]:
        token["content"] = aliases.get(token["content"], token["content"])
    model = spec["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {aliases.get(token, token): number for token, number in model["vocab"].items()}
    else:
        model["vocab"] = [[aliases.get(token, token), score] for token, score in model["vocab"]]
    if merges := model.get("merges"):
        model["merges"] = [pair for pair in merges if not _makes_control(pair, aliases)]
    spec["post_processor"] = None  # the template writes the control tokens, not the tokenizer
    spec["truncation"] = spec["padding"] = None


def _makes_control(pair: str | list[str], aliases: dict[str, str]) -> bool:
    left, right = pair.split(" ", 1) if isinstance(pair, str) else pair
    return left + right in aliases or left in aliases or right in aliases
