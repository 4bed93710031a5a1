"""Prompt text -> token ids, such that control tokens come from the model's template and never from what a user wrote.

A rendered prompt is cut at its control tokens; what lies between is text, and is given to a tokenizer that knows no way
to spell a control token: all added tokens (special or not: `<think>` steers a model as well) bear random names there,
made when the process starts. Ids are those of the original tokenizer, for every text that spells no control token.
"""

import re
import secrets
import string
import sys
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from tokenizers import Tokenizer

from topics.byte_lru import ByteLru

# Letters only, lower case: no normalizer changes them and no pre-tokenizer has a reason to.
ALIAS_LETTERS = 24
# Conversations repeat their system prompt and their history with every turn; a piece is about one message of it. Its
# text and its ids take two bytes for each byte of plain English.
REMEMBERED_BYTES = 32 << 20


class UnusableTokenizer(Exception):
    """This tokenizer.json cannot be used; the message says why. A start-up error."""


class ChatTokenizer:
    """Built once per model from the bytes of its `tokenizer.json`. Safe to use from several threads.

    Raises:
        UnusableTokenizer: added tokens do not keep their ids under other names.
    """

    def __init__(self, tokenizer_json: bytes, remembered_bytes: int = REMEMBERED_BYTES) -> None:
        spec = msgspec.json.decode(tokenizer_json)
        # Runs of white space are how some tokenizers write plain text; they control nothing.
        added = [token for token in spec["added_tokens"] if token["content"].strip()]
        self._ids: dict[str, int] = {token["content"]: token["id"] for token in added}
        self._control = _matcher(added)
        aliases = _aliases_for(list(self._ids))
        self._anchor = _anchor(added, aliases)
        _rename(spec, aliases)
        self._tokenizer = Tokenizer.from_buffer(msgspec.json.encode(spec))
        for content, alias in aliases.items():
            if self._tokenizer.token_to_id(alias) != self._ids[content]:
                raise UnusableTokenizer(f"token {content!r} does not keep its id {self._ids[content]} under a new name")
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        self._longest = max(len(token.encode()) for token in vocabulary)
        self._remembered: ByteLru[tuple[str, bool], array[int]] = ByteLru(remembered_bytes)

    def least_tokens(self, text: str) -> int:
        """A lower bound that costs nothing: no token holds more bytes than the longest one."""
        return len(text) // self._longest

    def find_control(self, text: str) -> bool:
        """Whether the text spells out a control token."""
        return self._control.search(text) is not None

    def replace_control(self, text: str, replacement: Callable[[str], str]) -> str:
        """Every spelled-out control token, replaced by what the function makes of it."""
        return self._control.sub(lambda match: replacement(match.group()), text)

    def token_id(self, text: str) -> int:
        """The id of one token, by its text.

        Raises:
            UnusableTokenizer: the vocabulary has no such token.
        """
        found = self._ids.get(text, self._tokenizer.token_to_id(text))
        if found is None:
            raise UnusableTokenizer(f"there is no token {text!r} in its vocabulary")
        return found

    def encode(self, rendered: str, restore: Mapping[str, str], *, begins: bool = True) -> list[int]:
        """Ids of a rendered prompt, or, unless it `begins` one, of a piece that follows something else.

        `restore` maps the stand-ins that keep a user's words apart while rendering back to those words.
        """
        ids: list[int] = []
        for number, piece in enumerate(self._control.split(rendered)):
            if number % 2:
                ids.append(self._ids[piece.strip() if piece not in self._ids else piece])
            elif piece:
                for stand_in, text in restore.items():
                    piece = piece.replace(stand_in, text)
                ids.extend(self._piece(piece, begins and number == 0))
        return ids

    def _piece(self, text: str, first: bool) -> "array[int]":
        """What lies between control tokens has the same ids wherever it stands, unless it begins the prompt."""
        ids = self._remembered.get((text, first))
        if ids is None:
            ids = self._encode(text, first)
            self._remembered.put((text, first), ids, sys.getsizeof(text) + sys.getsizeof(ids))
        return ids

    def _encode(self, text: str, first: bool) -> "array[int]":
        # Some tokenizers treat the beginning of a prompt unlike the text after a control token.
        before = "" if first else self._anchor
        # The batch call lets other threads run and does not track offsets, which nobody needs.
        (encoding,) = self._tokenizer.encode_batch_fast([before + text], add_special_tokens=False)
        return array("I", encoding.ids if first else encoding.ids[1:])


def _aliases_for(contents: list[str]) -> dict[str, str]:
    # Fixed-width numbers, so that no alias is the beginning of another.
    secret = "".join(secrets.choice(string.ascii_lowercase) for _ in range(ALIAS_LETTERS))
    digits = str.maketrans(string.digits, "abcdefghij")
    return {content: secret + f"{number:06d}".translate(digits) for number, content in enumerate(contents)}


def _anchor(added: list[dict[str, Any]], aliases: dict[str, str]) -> str:
    """A control token that changes nothing about the text after it."""
    for token in added:
        if not token["rstrip"] and not token["single_word"]:
            return aliases[token["content"]]
    if added:
        raise UnusableTokenizer("each of its added tokens changes the text after it")
    return ""  # no control token, so no text after one


def _matcher(added: list[dict[str, Any]]) -> re.Pattern[str]:
    """Matches, as one group, as the tokenizer does: the longest token first, with what it swallows."""
    if not added:
        return re.compile(r"((?!))")
    longest_first = sorted(added, key=lambda token: -len(token["content"]))
    return re.compile("(" + "|".join(_pattern(token) for token in longest_first) + ")")


def _pattern(token: dict[str, Any]) -> str:
    left, right = r"\s*" if token["lstrip"] else "", r"\s*" if token["rstrip"] else ""
    pattern = re.escape(token["content"])
    return left + (rf"(?<!\w){pattern}(?!\w)" if token["single_word"] else pattern) + right


def _rename(spec: dict[str, Any], aliases: dict[str, str]) -> None:
    """Give the added tokens of a tokenizer.json other names, everywhere, so that no text can spell them."""
    for token in spec["added_tokens"]:
        token["content"] = aliases.get(token["content"], token["content"])
    model = spec["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {aliases.get(token, token): number for token, number in model["vocab"].items()}
    else:
        model["vocab"] = [[aliases.get(token, token), score] for token, score in model["vocab"]]
    if unknown := model.get("unk_token"):
        model["unk_token"] = aliases.get(unknown, unknown)
    if merges := model.get("merges"):
        model["merges"] = [pair for pair in merges if not _makes_control(pair, aliases)]
    spec["post_processor"] = None  # the template writes the control tokens, not the tokenizer
    spec["truncation"] = spec["padding"] = None


def _makes_control(pair: str | list[str], aliases: dict[str, str]) -> bool:
    left, right = pair.split(" ", 1) if isinstance(pair, str) else pair
    return left + right in aliases or left in aliases or right in aliases
