"""A draft and the artifacts of all its media -> the generate job. Pure, and the same wherever it happens: the gateway
joins when everything is there already, else the encoder that completes the set does."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from schemas.errors import TriptychError
from schemas.jobs import GenerateJob
from schemas.media import Artifact, Embeds, Room, Slot
from topics.fingerprints import content_digest
from topics.tokens import ChatTokenizer

_STAND_IN = "x"


class Language(msgspec.Struct, frozen=True):
    """What an LLM's side of a prompt is made of. `placeholders`: the id of each encoder's placeholder token, by
    `Slot.encoder`; those whose artifacts are no embeddings have none."""

    tokenize: Callable[[str], list[int]]
    placeholders: Mapping[str, int]


def plain(tokenizer: ChatTokenizer) -> Callable[[str], list[int]]:
    """Tokenise what was read or heard: whatever it spells, no control token comes out of it."""
    return lambda text: tokenizer.encode(_STAND_IN, {_STAND_IN: text}, begins=False) if text else []


def assemble(
    draft: GenerateJob, slots: Sequence[Slot], artifacts: Sequence[Artifact], room: Room, language: Language
) -> GenerateJob:
    """Put each artifact where its slot is. Equal arguments give an equal job.

    Raises:
        TriptychError: context_length_exceeded, naming what would have to change; invalid_request, when min_tokens no
            longer fits.
    """
    ids: list[int] = []
    embeds: list[Embeds] = []
    lengths: list[int] = []
    done = 0
    for slot, artifact in zip(slots, artifacts, strict=True):
        ids += draft.prompt_ids[done : slot.offset]
        done = slot.offset
        media = _ids(slot, artifact, language)
        if artifact.kind == "embeddings" and media:
            digest = content_digest(artifact.encoder, artifact.source)
            embeds.append(Embeds(len(ids), len(media), slot.artifact, digest))
        ids += media
        lengths.append(len(media))
    ids += draft.prompt_ids[done:]
    sampling = msgspec.structs.replace(draft.sampling, max_tokens=_answer_tokens(len(ids), room, slots, lengths))
    return msgspec.structs.replace(draft, prompt_ids=ids, embeds=embeds, sampling=sampling)


def _ids(slot: Slot, artifact: Artifact, language: Language) -> list[int]:
    match artifact.kind:
        case "text":
            return language.tokenize(artifact.text)
        case "token_ids":
            return artifact.token_ids
        case "embeddings":
            return [language.placeholders[slot.encoder]] * artifact.rows


def _answer_tokens(prompt_tokens: int, room: Room, slots: Sequence[Slot], lengths: Sequence[int]) -> int:
    """How many tokens the answer may have: what was asked for, or what is left of the context."""
    left = room.context_tokens - prompt_tokens
    if left < (room.asked_tokens or 1):
        longest = max(range(len(slots)), key=lengths.__getitem__)
        items = ", ".join(f"{slot.param} ({slot.kind}): {length}" for slot, length in zip(slots, lengths, strict=True))
        shorter = f"'{room.asked_as}' to at most {left}, or the length of the messages" if left > 0 else "the messages"
        raise TriptychError(
            "context_length_exceeded",
            f"This model's maximum context length is {room.context_tokens} tokens. However, you requested "
            f"{prompt_tokens + (room.asked_tokens or 0)} tokens ({prompt_tokens} in the messages, of which the media "
            f"are {sum(lengths)}: {items}; {room.asked_tokens or 0} in the completion). Please reduce {shorter} or "
            "media.",
            param=room.asked_as if left > 0 else slots[longest].param,
        )
    most = room.asked_tokens or left
    if room.min_tokens > most:
        message = f"Invalid value for 'min_tokens': must be at most the {most} tokens the answer may have."
        raise TriptychError("invalid_request", message, param="min_tokens")
    return most
