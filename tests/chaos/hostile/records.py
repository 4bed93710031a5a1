"""Wrong records, made from right ones by a seeded dice: fields, bytes, topics, references and headers. Pure."""

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from schemas import codec
from schemas.jobs import DecodeJob, EncodeJob, GenerateJob, Head, Job, Offloaded, Sampling
from schemas.media import ImageOptions, Room, Slot, SpeechOptions
from schemas.refs import BlobRef, payload_ref
from topics import names
from topics.fingerprints import artifact_key

NEIGHBOUR_EVERY = 20
LIVES_S = 30.0
DEEP = 20_000

# What a field may hold that was never meant for it.
VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 0.0, -0.0, 1e300, -1e300, 5e-324,
    float("nan"), float("inf"), float("-inf"), "", " ", "\x00", "a\nb", "\u202e\U0001f9e8", "../../etc/passwd",
    "x" * 70_000, b"", b"\xff\xfe", b"x" * 70_000, [], {}, [[]], [None], {"": None}, {"type": "tomorrow"}, 
    list(range(5_000)), [2**64 - 1],
)  # fmt: skip
HEADERS: Sequence[Sequence[tuple[str, bytes | None]]] = (
    [], [("traceparent", b"\xff\xfe")], [("x-request-id", b"y" * 5_000)], [("content-type", b"application/json")],
    [("correlation_id", None)], [("", b"")], [(f"h{number}", b"v") for number in range(60)],
)  # fmt: skip


class Wrong(msgspec.Struct, frozen=True):
    """A record to be produced. `request_id`: of the job it was made from; `neighbour`: it is right as it is."""

    topic: str
    value: bytes | None
    request_id: str
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    neighbour: bool = False


class Forge:
    """For one model, whose media `picture` and `sound` are stored. `payload`: stores a large message's bytes."""

    def __init__(self, model: str, fingerprints: dict[str, str], picture: BlobRef, sound: BlobRef, seed: int) -> None:
        self._model = model
        self._fingerprints = fingerprints
        self._media = {"vision": picture, "audio": sound}
        self._dice = random.Random(seed)
        self._number = 0
        self.payloads: dict[str, bytes] = {}  # object key -> what must be stored before the records are produced

    def records(self, count: int, now: float) -> Iterator[Wrong]:
        """`now`: unix seconds, when they are produced."""
        for _ in range(count):
            self._number += 1
            topic, job = self._job(f"h-{self._model}-{self._number}", now)
            neighbour = self._number % NEIGHBOUR_EVERY == 0
            if neighbour:
                yield Wrong(topic, codec.encode(job), job.head.request_id, neighbour=True)
                continue
            key = self._dice.choice((None, b"", b"k", b"\xff" * 300))
            headers = self._dice.choice(HEADERS) if self._dice.random() < 0.2 else ()
            topic, value = self._spoilt(topic, job)
            if value is None and key is None:
                key = b"tombstone"  # clients refuse to send nothing at all
            yield Wrong(topic, value, job.head.request_id, key, headers)

    def _job(self, request_id: str, now: float) -> tuple[str, Job]:
        head = Head(request_id, self._model, now + LIVES_S, now, "hostile", streamed=self._dice.random() < 0.5)
        generate = GenerateJob(head, [1, 2, 3], Sampling(max_tokens=self._dice.randint(1, 8), ignore_eos=True))
        match self._dice.randrange(4):
            case 0:
                return names.generate(self._model), generate
            case 1:
                pool = self._dice.choice(("vision", "audio"))
                return f"encode.{pool}", self._encode(head, generate, pool)
            case 2:
                options = ImageOptions(width=16, height=16, steps=2, seed=1)
                return "decode.image", DecodeJob(head, f"{self._model}/image", options, codes=[1, 2])
            case _:
                return "decode.audio", DecodeJob(head, f"{self._model}/audio", SpeechOptions(), text="Good morning.")

    def _encode(self, head: Head, generate: GenerateJob, pool: Any) -> EncodeJob:
        source = self._media[pool]
        key = artifact_key(self._fingerprints[pool], source.digest)
        kind = "image" if pool == "vision" else "audio"
        slot = Slot(1, kind, pool, f"{self._model}/{pool}", source, key, "messages[0].content[0]")  # type: ignore[arg-type]  # one of its kinds
        return EncodeJob(head, [slot], 0, generate, Room(4_096))

    def _spoilt(self, topic: str, job: Job) -> tuple[str, bytes | None]:
        """One fault, or two, which may by chance be none."""
        how: Callable[[str, Job], tuple[str, bytes | None]] = self._dice.choice(
            (self._field, self._field, self._field, self._bytes, self._topic, self._reference, self._bomb)
        )
        return how(topic, job)

    def _field(self, topic: str, job: Job) -> tuple[str, bytes]:
        tree = msgspec.to_builtins(job, builtin_types=(bytes,))
        for _ in range(self._dice.choice((1, 1, 2))):
            holder, name = self._place(tree)
            self._change(holder, name)
        if self._dice.random() < 0.3:
            try:
                return topic, msgspec.json.encode(tree)
            except (ValueError, TypeError):  # bytes are no JSON key
                pass
        return topic, msgspec.msgpack.encode(tree)

    def _place(self, tree: Any) -> tuple[Any, Any]:
        """A field anywhere in it, with what holds it."""
        places: list[tuple[Any, Any]] = []

        def walk(node: Any) -> None:
            for name, inner in node.items() if isinstance(node, dict) else enumerate(node):
                places.append((node, name))
                if isinstance(inner, dict | list):
                    walk(inner)

        walk(tree)
        return self._dice.choice(places)

    def _change(self, holder: Any, name: Any) -> None:
        if isinstance(holder, dict) and self._dice.random() < 0.1:
            del holder[name]
        elif isinstance(holder, dict) and self._dice.random() < 0.05:
            holder[f"{name}_unknown"] = self._value()
        else:
            value = self._value()
            # Two records of one name are one request, which has one outcome: names stay apart.
            if name == "request_id" and isinstance(value, str | bytes) and value:
                number = str(self._number)
                value = value[:100] + (number if isinstance(value, str) else number.encode())
            holder[name] = value

    def _value(self) -> Any:
        """A copy: it may be changed itself, and must not come to hold itself."""
        return copy.deepcopy(self._dice.choice(VALUES))

    def _bytes(self, topic: str, job: Job) -> tuple[str, bytes]:
        raw = bytearray(codec.encode(job))
        match self._dice.randrange(4):
            case 0:
                del raw[self._dice.randrange(len(raw)) :]
            case 1:
                for _ in range(self._dice.randint(1, 8)):
                    raw[self._dice.randrange(len(raw))] ^= 1 << self._dice.randrange(8)
            case 2:
                at = self._dice.randrange(len(raw))
                raw[at:at] = self._dice.randbytes(self._dice.randint(1, 64))
            case _:
                raw *= 2
        return topic, bytes(raw)

    def _topic(self, topic: str, job: Job) -> tuple[str, bytes]:
        others = [names.generate(self._model), "encode.vision", "encode.audio", "decode.image", "decode.audio"]
        return self._dice.choice([one for one in others if one != topic]), codec.encode(job)

    def _reference(self, topic: str, job: Job) -> tuple[str, bytes]:
        """An offloaded message: whole, gone, forged, nested, of another kind, or of a size that nobody has."""
        body = codec.encode(job)
        ref = payload_ref(body)
        match self._dice.randrange(7):
            case 0:
                self.payloads[ref.key] = body
            case 1:
                pass  # leads nowhere
            case 2:
                self.payloads[ref.key] = body[:-1] + b"\x00"
            case 3:
                nested = codec.encode(Offloaded(ref))
                ref = payload_ref(nested)
                self.payloads[ref.key] = nested
            case 4:
                ref = self._media["vision"]
            case 5:
                ref = msgspec.structs.replace(ref, size_bytes=self._dice.choice((0, 2**40, 2**53)))
            case _:
                wrong = self._dice.choice(("", "payloads/", "x" * 1_000, "payloads/" + "é" * 64, "a b"))
                ref = msgspec.structs.replace(ref, key=wrong)
        return topic, codec.encode(Offloaded(ref))

    def _bomb(self, topic: str, job: Job) -> tuple[str, bytes | None]:
        return topic, self._dice.choice(
            (
                None,
                b"",
                b"\x00" * 65_536,
                b"\xff" * 65_536,
                b"\x91" * DEEP,
                b'{"type":' + b"[" * DEEP,
                b'{"type":' + b'{"a":' * DEEP,
                b'{"type":"generate"}',
                b'{"type":"tomorrow","head":{}}',
                b"\xdf\xff\xff\xff\xff",  # a map of four billion entries
                b"\xc6\xff\xff\xff\xff",  # four gigabytes to come
                b'{"type":"generate","head":' + b"9" * 5_000 + b"}",
                codec.encode(job) + self._dice.randbytes(32),
            )
        )
