"""One sample of everything that one process says to another, and its bytes as they were when it was first sent.

`python -m tests.unit.schemas.samples` adds what is new to golden/: bytes of new samples, names of new fields. It never
changes what is there: a sample whose bytes must change gets a new name beside the old one.
"""

import inspect
import json
from pathlib import Path

import msgspec

from schemas import codec, events, jobs, media, refs, signals, steering
from schemas.events import (
    Alternative,
    Cancelled,
    EventBatch,
    Failed,
    Finished,
    Made,
    Part,
    Progress,
    Restarted,
    Steered,
    Token,
    TokenLogprob,
    Transcript,
    Usage,
)
from schemas.jobs import (
    DeadLetter,
    DecodeJob,
    EncodeJob,
    GenerateJob,
    Head,
    JsonObject,
    JsonSchema,
    Offloaded,
    Placement,
    Sampling,
)
from schemas.media import Artifact, Embeds, ImageOptions, Output, Room, Segment, Slot, SpeechOptions
from schemas.refs import BlobRef
from schemas.signals import Beat, Cancel
from schemas.steering import Decision

GOLDEN = Path(__file__).parent / "golden"
FIELDS = GOLDEN / "fields.json"
WIRE = [
    one
    for module in (events, jobs, media, refs, signals)
    for one in vars(module).values()
    if inspect.isclass(one) and issubclass(one, msgspec.Struct) and one.__module__ == module.__name__
] + [steering.Decision]

HEAD = Head(
    request_id="chatcmpl-1",
    model="m",
    deadline_at=1_800_000_060.5,
    created_at=1_800_000_000.25,
    reply_to="gw-1",
    streamed=True,
    priority=-3,
    tenant="acme",
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)
PART = msgspec.structs.replace(HEAD, request_id="chatcmpl-1.1.0.2", parent="chatcmpl-1")
REF = BlobRef(key="payloads/ab", digest="ab", size_bytes=70_000, media_type="application/msgpack")
SAMPLING = Sampling(
    max_tokens=16,
    n=2,
    temperature=0.5,
    top_p=0.9,
    top_k=40,
    min_p=0.05,
    seed=-7,
    stop=["\n", "END"],
    presence_penalty=0.5,
    frequency_penalty=-0.5,
    repetition_penalty=1.25,
    logit_bias={5: -100.0, 49_151: 2.5},
    logprobs=3,
    constraint=JsonSchema('{"type":"object"}'),
    min_tokens=2,
    ignore_eos=True,
)
SLOT = Slot(
    offset=5,
    kind="image",
    pool="vision",
    encoder="m/vision",
    source=BlobRef("media/cd", "cd", 1_000, "image/png"),
    artifact="artifacts/f/cd.safetensors",
    param="messages[0].content[1]",
)
DECISION = Decision("worker-2", 7, "second_home", 1_504, 1, {"worker-1:3": 0.25, "worker-3:1": 1.5})
LOGPROB = TokenLogprob("é", b"\xc3\xa9", -0.25, [Alternative("e", b"e", -1.5)])

SAMPLES: dict[str, msgspec.Struct] = {
    "generate_full": GenerateJob(HEAD, [0, 1, 49_151], SAMPLING),
    "generate_least": GenerateJob(Head("r", "m", 2.0, 1.0, "gw"), [], Sampling(max_tokens=1)),
    "generate_json_object": GenerateJob(HEAD, [7], Sampling(max_tokens=1, constraint=JsonObject())),
    "generate_placed": GenerateJob(
        HEAD, [7], Sampling(max_tokens=1), Placement("chatcmpl-1", "worker-1", 1_504, "home")
    ),
    "generate_handed_off": GenerateJob(
        HEAD, [7], Sampling(max_tokens=1), Placement("chatcmpl-1#1", "worker-2", 32, "cold", 1)
    ),
    "generate_telling": GenerateJob(HEAD, [7], Sampling(max_tokens=1), decision=DECISION),
    "offloaded": Offloaded(REF),
    "dead_letter_full": DeadLetter(
        "undecodable", "why", "generate.m", 3, 42, 1_800_000_000.0, b"key", b"\xff", REF, [("h", b"v")]
    ),
    "dead_letter_least": DeadLetter("undecodable", "why", "generate.m", 3, 42, 1_800_000_000.0),
    "events": EventBatch(
        "chatcmpl-1",
        [
            Restarted(2, 1, "worker-1"),
            Token(2, 2, 1, "é", [5, 6], "length", [LOGPROB]),
            Token(2, 3, 0, "", [7]),
            Finished(2, 4, Usage(10, 2, 8), "worker-1", 11, 0.125),
        ],
    ),
    "events_failed": EventBatch("chatcmpl-1", [Failed(1, 1, "engine_died", "why", "messages")]),
    "events_cancelled": EventBatch("chatcmpl-1", [Cancelled(1, 1, "the client has gone")]),
    "encode_full": EncodeJob(HEAD, [SLOT, SLOT], 1, GenerateJob(HEAD, [7], SAMPLING), Room(2_048, 16, 2), "en"),
    "encode_least": EncodeJob(HEAD, [SLOT], 0),
    "encode_named": EncodeJob(
        HEAD, [SLOT], 0, GenerateJob(HEAD, [7], SAMPLING), Room(2_048, 16, asked_as="max_completion_tokens")
    ),
    "generate_omni": GenerateJob(
        HEAD,
        [1, 2, 2, 3],
        SAMPLING,
        embeds=[Embeds(1, 2, "artifacts/f/cd.safetensors", "ef")],
        outputs=[
            Output("m/image", ImageOptions("webp", 512, 384, 50, 3.5, 7, 80), 49_152, 49_153, 49_160, 49_199),
            Output("m/audio", SpeechOptions("heart", "pcm16", 1.5, True)),
        ],
    ),
    "decode_image": DecodeJob(HEAD, "m/image", ImageOptions(), codes=[3, 11]),
    "decode_speech": DecodeJob(
        msgspec.structs.replace(HEAD, request_id="chatcmpl-1.1.0.2", parent="chatcmpl-1"),
        "m/audio",
        SpeechOptions(),
        text="Hello.",
    ),
    "artifact_speech": Artifact(
        "text", "f", "cd", text="hello", segments=[Segment(0.0, 0.5, "hello")], language="en", duration_s=0.5
    ),
    "artifact_embeddings": Artifact("embeddings", "f", "cd", rows=4, width=576, dtype="float32"),
    "artifact_tokens": Artifact("token_ids", "f", "cd", token_ids=[1, 2]),
    "events_media": EventBatch(
        "chatcmpl-1",
        [
            Part(1, 1, 0, 2, "image", "chatcmpl-1.1.0.2"),
            Progress(1, 2, 5, 25),
            Made(1, 3, "audio", REF, 1, 1.5, 0, 0, "Hello."),
            Made(1, 4, "image", REF, 0, 0.0, 256, 512),
            Transcript(1, 5, "hello", [Segment(0.0, 0.5, "hello")], "en", 0.5),
        ],
    ),
    "events_steered": EventBatch("chatcmpl-1", [Steered(2, 1, DECISION)]),
    "cancel": Cancel("chatcmpl-1", "the client has gone"),
    "beat": Beat("worker-1", 3, 1_800_000_000.5, 4, 5, 16, 0.75, 123.5, "vllm"),
}


def field_names(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def record() -> None:
    for name, sample in SAMPLES.items():
        path = GOLDEN / f"{name}.msgpack"
        if not path.exists():
            path.write_bytes(codec.encode(sample))
    known: dict[str, list[str]] = json.loads(FIELDS.read_text()) if FIELDS.exists() else {}
    for kind in WIRE:
        old = known.get(kind.__name__, [])
        known[kind.__name__] = old + field_names(kind)[len(old) :]
    FIELDS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    record()
