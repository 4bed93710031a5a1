"""As reply.py, for answers with media: spoken ones, and those with pictures in them.

A spoken answer is `audio` in OpenAI's shape; its text is the transcript, and streams ahead of the sound. A picture is
an `image_url` part of the content; in a stream it comes when it is ready. A choice ends after its media.
"""

import base64
from collections.abc import Iterable

import msgspec

from gateway.delivery import Piece, Told, data_url
from gateway.reply import Chunks, ReplyHead, logprobs_of, usage_of
from schemas import codec
from schemas.events import Finished, FinishReason, Part, Progress, Restarted, Token, TokenLogprob, Usage
from schemas.openai_reply import (
    AudioDelta,
    ChatCompletion,
    Choice,
    ChunkChoice,
    Delta,
    ReplyAudio,
    ReplyImage,
    ReplyMessage,
    ReplyText,
    ReplyUrl,
)

# Six bytes are three samples of pcm16 and eight characters of base64: whoever joins the base64 of deltas, as SDKs do,
# gets valid base64.
PCM_GROUP_BYTES = 6


class Speech(msgspec.Struct, frozen=True):
    """What is told of a spoken answer beside its sound."""

    id: str  # of the first choice; the others have their number behind it
    expires_at: int  # unix seconds

    def id_of(self, index: int) -> str:
        return f"{self.id}-{index}" if index else self.id


class OmniChunks(Chunks):
    """The chunks of one streamed answer. `speech` is set when it is spoken."""

    def __init__(self, head: ReplyHead, include_usage: bool, speech: Speech | None) -> None:
        super().__init__(head, include_usage)
        self._speech = speech
        self._reasons: dict[int, FinishReason] = {}

    def _lines(self, event: Told) -> list[bytes]:
        match event:
            case Piece():
                return [*self._begin(event.part.index), self._piece(event)]
            case Progress():
                # A comment, for who looks on; the first line of a stream must not be one, or an error would be too late
                # for its status.
                return [b": step %d of %d\n\n" % (event.done, event.total)] if self._begun else []
            case Finished():
                return [*(self._last(index) for index in sorted(self._reasons)), *super()._lines(event)]
            case _:
                return super()._lines(event)

    def _token(self, event: Token) -> list[bytes]:
        if event.finish_reason is not None:
            self._reasons[event.index] = event.finish_reason
        lines = self._begin(event.index)
        if event.text or event.logprobs:
            lines.append(self._choice(event.index, self._text(event.text), event.logprobs))
        return lines

    def _begin(self, index: int) -> list[bytes]:
        if index in self._begun:
            return []
        self._begun.add(index)
        if self._speech is None:
            return [self._choice(index, Delta(role="assistant", content=""))]
        audio = AudioDelta(id=self._speech.id_of(index), transcript="")
        return [self._choice(index, Delta(role="assistant", audio=audio))]

    def _text(self, text: str) -> Delta:
        if not text:
            return Delta()
        return Delta(content=text) if self._speech is None else Delta(audio=AudioDelta(transcript=text))

    def _piece(self, piece: Piece) -> bytes:
        if piece.made.kind == "image":
            return self._choice(piece.part.index, Delta(content=[_image(piece)]))
        # Padded with a moment of silence, at most two samples.
        pcm = piece.data + bytes(-len(piece.data) % PCM_GROUP_BYTES)
        return self._choice(piece.part.index, Delta(audio=AudioDelta(data=base64.b64encode(pcm).decode())))

    def _last(self, index: int) -> bytes:
        delta = Delta() if self._speech is None else Delta(audio=AudioDelta(expires_at=self._speech.expires_at))
        return self._chunk([ChunkChoice(index, delta, None, self._reasons[index])])

    def _choice(self, index: int, delta: Delta, logprobs: list[TokenLogprob] | None = None) -> bytes:
        return self._chunk([ChunkChoice(index, delta, logprobs_of(logprobs))])


class OmniBody:
    """The one body of a whole answer, as reply.Body."""

    def __init__(self, head: ReplyHead, n: int, speech: Speech | None) -> None:
        self._head = head
        self._speech = speech
        self._choices = [_Collected() for _ in range(n)]

    def add(self, events: Iterable[Told]) -> None:
        for event in events:
            match event:
                case Token() | Part():
                    self._choices[event.index].add(event)
                case Piece():
                    self._choices[event.part.index].add(event)
                case Restarted():
                    self._choices = [_Collected() for _ in self._choices]
                case _:
                    pass

    def encode(self, usage: Usage) -> bytes:
        head = self._head
        return codec.to_json(
            ChatCompletion(
                id=head.id,
                created=head.created,
                model=head.model,
                choices=[one.as_choice(index, self._speech) for index, one in enumerate(self._choices)],
                usage=usage_of(usage),
                system_fingerprint=head.system_fingerprint,
            )
        )


class _Collected:
    """One choice so far: text, and in it where each picture was asked for."""

    def __init__(self) -> None:
        self._content: list[str | int] = []  # int: the picture of the part with this number
        self._pieces: dict[int, list[Piece]] = {}
        self._logprobs: list[TokenLogprob] | None = None
        self._finish_reason: FinishReason = "stop"

    def add(self, told: Token | Part | Piece) -> None:
        match told:
            case Part(kind="image", number=number):
                self._content.append(number)
            case Part():
                pass
            case Piece():
                self._pieces.setdefault(told.part.number, []).append(told)
            case Token():
                self._content.append(told.text)
                if told.logprobs is not None:
                    self._logprobs = (self._logprobs or []) + told.logprobs
                self._finish_reason = told.finish_reason or self._finish_reason

    def as_choice(self, index: int, speech: Speech | None) -> Choice:
        text = "".join(one for one in self._content if isinstance(one, str))
        sound = b"".join(one.data for one in self._in_order() if one.made.kind == "audio")
        pictures = any(isinstance(one, int) for one in self._content)
        spoken = speech is not None and bool(sound)
        message = ReplyMessage(self._parts(with_text=not spoken) if pictures else None if spoken else text)
        if speech is not None and spoken:
            audio = ReplyAudio(speech.id_of(index), base64.b64encode(sound).decode(), speech.expires_at, text)
            message = msgspec.structs.replace(message, audio=audio)
        return Choice(index, message, logprobs_of(self._logprobs), self._finish_reason)

    def _in_order(self) -> list[Piece]:
        return [piece for number in sorted(self._pieces) for piece in self._pieces[number]]

    def _parts(self, with_text: bool) -> list[ReplyText | ReplyImage]:
        parts: list[ReplyText | ReplyImage] = []
        text = ""
        for one in [*self._content, -1]:
            if isinstance(one, str):
                text += one
                continue
            if text and with_text:
                parts.append(ReplyText(text))
            text = ""
            parts += [_image(piece) for piece in self._pieces.get(one, ())]
        return parts


def _image(piece: Piece) -> ReplyImage:
    return ReplyImage(ReplyUrl(piece.url or data_url(piece.made.ref.media_type, piece.data)))
