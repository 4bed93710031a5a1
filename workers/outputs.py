"""What of an answer has to be decoded: watches its tokens and says so, per choice. Pure.

The engine's text has nothing of a picture in it: `begin`, `end` and the codes are special tokens, whose text it leaves
out (workers/engine.py, Delta). So text is shown as it comes, while the ids of all tokens stay in the events: they are
what was generated, and what an attempt that continues would begin with.
"""

from collections.abc import Sequence

import msgspec

from schemas.errors import TriptychError
from schemas.events import FinishReason, TokenLogprob
from schemas.media import DecoderKind, ImageOptions, Output, SpeechOptions
from workers.engine import Delta
from workers.sentences import Cutter, can_be_said, speakable


class Malformed(TriptychError):
    """The model has not written what its decoder can take; the message is for the client."""

    def __init__(self, message: str) -> None:
        super().__init__("decoder_failed", message)


class Piece(msgspec.Struct, frozen=True):
    """Something to decode: `number` counts the pieces of choice `index`, in the order in which they belong."""

    index: int
    number: int
    output: Output
    codes: list[int] = []
    text: str = ""

    @property
    def kind(self) -> DecoderKind:
        return "image" if isinstance(self.output.options, ImageOptions) else "audio"


class Watch:
    """Watches one attempt at an answer."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self._pictures = {one.begin: one for one in outputs if isinstance(one.options, ImageOptions)}
        self._speech = next((one for one in outputs if isinstance(one.options, SpeechOptions)), None)
        self._choices: dict[int, _Choice] = {}

    def take(self, delta: Delta) -> tuple[Delta, list[Piece]]:
        """What the client may see of it, and the pieces that are complete now.

        Raises:
            Malformed: the answer cannot be decoded; it has failed.
        """
        if delta.index not in self._choices:
            self._choices[delta.index] = _Choice(delta.index, self._pictures, self._speech)
        choice = self._choices[delta.index]
        drawn = [choice.token(token_id) for token_id in delta.token_ids]
        choice.say(delta.text)
        if delta.finish_reason is not None:
            choice.end(delta.finish_reason)
        if delta.logprobs is not None and any(drawn):
            delta = msgspec.structs.replace(delta, logprobs=_of_text(delta.logprobs, drawn))
        return delta, choice.pieces()


def _of_text(logprobs: list[TokenLogprob], drawn: list[bool]) -> list[TokenLogprob]:
    # There may be one less of them than tokens: that which ended the answer has none.
    return [one for one, is_drawn in zip(logprobs, drawn, strict=False) if not is_drawn]


class _Choice:
    """One of the n answers."""

    def __init__(self, index: int, pictures: dict[int, Output], speech: Output | None) -> None:
        self._index = index
        self._pictures = pictures
        self._speech = speech
        self._chunked = speech is not None and isinstance(speech.options, SpeechOptions) and speech.options.chunked
        self._cutter = Cutter()
        self._said: list[str] = []
        self._open: Output | None = None  # the picture that is being written
        self._codes: list[int] = []
        self._made: list[Piece] = []
        self._number = 0

    def token(self, token_id: int) -> bool:
        """True when it belongs to a picture.

        Raises:
            Malformed
        """
        if self._open is None:
            return self._outside(token_id)
        if token_id == self._open.end:
            if not self._codes:
                raise Malformed("the model wrote a picture without content")
            self._add(Piece(self._index, self._number, self._open, codes=self._codes))
            self._open, self._codes = None, []
        elif self._open.first <= token_id <= self._open.last:
            self._codes.append(token_id - self._open.first)
        else:
            raise Malformed("the model wrote something else in the middle of a picture")
        return True

    def say(self, text: str) -> None:
        if self._speech is None or not text:
            return
        if self._chunked:
            self._speak(self._cutter.feed(text))
        else:
            self._said.append(text)

    def end(self, reason: FinishReason) -> None:
        """Raises Malformed when a picture is open still."""
        if self._open is not None and reason == "length":
            raise Malformed("the answer reached its length limit in the middle of a picture; allow it more tokens")
        if self._open is not None:
            raise Malformed("the model stopped in the middle of a picture")
        self._speak(self._cutter.rest() if self._chunked else ["".join(self._said)])

    def pieces(self) -> list[Piece]:
        """Those that are new."""
        made, self._made = self._made, []
        return made

    def _outside(self, token_id: int) -> bool:
        self._open = self._pictures.get(token_id)
        if self._open is None and any(one.first <= token_id <= one.last for one in self._pictures.values()):
            raise Malformed("the model wrote a part of a picture outside of one")
        return self._open is not None

    def _speak(self, texts: list[str]) -> None:
        for text in texts:
            if self._speech is not None and can_be_said(text):
                self._add(Piece(self._index, self._number, self._speech, text=speakable(text)))

    def _add(self, piece: Piece) -> None:
        self._made.append(piece)
        self._number += 1
