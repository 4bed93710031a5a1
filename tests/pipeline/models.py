"""Models of the pipeline tests: one of text, one that shares its LLM and hears, sees and speaks, one that draws."""

from schemas.manifest import Decoder, Encoder, Limits, Manifest, MediaLimits, Source

MODEL = "tiny"
LIMITS = Limits(context_tokens=600, max_n=4, max_logprobs=5)
SOURCE = Source("hf", repo="tests/tiny")

PLAIN = Manifest(MODEL, SOURCE, LIMITS, created=7)
CASCADE = Manifest(
    "tiny-cascade",
    SOURCE,
    LIMITS,
    created=8,
    llm=MODEL,
    handoff="text",
    capabilities=(
        "chat",
        "json",
        "logprobs",
        "image_in",
        "audio_in",
        "video_in",
        "speech_out",
        "transcription",
    ),
    encoders={
        "vision": Encoder("labels-ocr", "text", before="[", after="]"),
        "audio": Encoder("whisper", "text"),
    },
    decoders={"audio": Decoder("hibari", voices=("heart", "sky"))},
    media=MediaLimits(items=4, item_bytes=50_000),
)
DRAWS = Manifest(
    "tiny-draws",
    SOURCE,
    LIMITS,
    created=9,
    llm=MODEL,
    capabilities=("chat", "image_in", "image_out", "image_edit"),
    encoders={
        "vision": Encoder("digits", "embeddings", placeholder="<|endoftext|>", before="<think>", after="</think>")
    },
    decoders={"image": Decoder("digits", begin="<think>", end="</think>", first="A", last="Z")},
)
