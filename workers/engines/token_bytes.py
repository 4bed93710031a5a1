"""The exact bytes of a token. Its text alone cannot tell: a character may be spread over several tokens."""

import re

import msgspec
from tokenizers import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_MARK = "\u2581"  # how SentencePiece vocabularies write a space


class TokenBytes:
    """Maps a token id to its bytes, for byte-level BPE and for SentencePiece vocabularies with byte fallback."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._added = {i: token.content for i, token in added.items()}
        self.special = frozenset(i for i, token in added.items() if token.special)  # no text of an answer
        state = msgspec.json.decode(tokenizer.to_str())["decoder"]
        self._byte_level = "ByteLevel" in _decoder_types(state)
        self._bytes = _byte_alphabet()

    def of(self, token_id: int) -> bytes:
        """The bytes; empty for an id that is no token (padding rows of the vocabulary)."""
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        if self._byte_level:
            return bytes(self._bytes[char] for char in token)
        if byte := _BYTE_TOKEN.fullmatch(token):
            return bytes([int(byte[1], 16)])
        return token.replace(_SPACE_MARK, " ").encode()


def text_of(raw: bytes) -> str:
    """For people; U+FFFD where the bytes are only part of a character."""
    return raw.decode("utf-8", errors="replace")


def _decoder_types(state: object) -> set[str]:
    match state:
        case {"type": "Sequence", "decoders": list(parts)}:
            return set().union(*(_decoder_types(part) for part in parts))
        case {"type": str(name)}:
            return {name}
        case _:
            return set()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's rule: a printable byte stands for itself, the others for U+0100 onwards, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
