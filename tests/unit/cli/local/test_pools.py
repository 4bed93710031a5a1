from pathlib import Path

import pytest

from cli.errors import CommandFailed
from cli.local.pools import Pool, Surroundings, parse_scale, parts, pools
from schemas.manifest import Decoder, Encoder, Limits, Manifest, Source

SOURCE, LIMITS = Source("hf", repo="o/m", revision="r"), Limits(1_024)
TEXT = Manifest("text", SOURCE, LIMITS)
CASCADE = Manifest(
    "cascade",
    SOURCE,
    LIMITS,
    llm="text",
    encoders={"vision": Encoder("labels-ocr", "text"), "audio": Encoder("whisper", "text")},
    decoders={"audio": Decoder("hibari")},
)
OMNI = Manifest(
    "omni",
    SOURCE,
    LIMITS,
    encoders={"vision": Encoder("digits", "embeddings", placeholder="<|image|>")},
    decoders={"image": Decoder("digits")},
)


def of(models: list[Manifest], workers: int = 2, scale: dict[str, int] | None = None) -> list[Pool]:
    return pools(
        models,
        workers=workers,
        scale=scale or {},
        llm_arguments=["--engine", "stub"],
        media_arguments=["--engine", "sim"],
    )


def sizes(models: list[Manifest], workers: int = 2, scale: dict[str, int] | None = None) -> dict[str, int]:
    return {pool.name: pool.workers for pool in of(models, workers, scale)}


def test_a_text_model_needs_llm_workers_only() -> None:
    assert of([TEXT]) == [Pool("text", ["llm", "--model", "text", "--engine", "stub"], 2)]


def test_models_that_share_an_llm_share_its_workers() -> None:
    assert sizes([TEXT, CASCADE], workers=3) == {"text": 3, "encode.vision": 1, "encode.audio": 1, "decode.audio": 1}


def test_llm_workers_are_shared_out_and_every_llm_gets_one() -> None:
    assert sizes([TEXT, OMNI], workers=3)["text"] == 2
    assert sizes([TEXT, OMNI], workers=3)["omni"] == 1
    assert sizes([TEXT, OMNI], workers=1)["omni"] == 1


def test_a_pool_serves_all_models_that_need_it() -> None:
    commands = {pool.name: pool.command for pool in of([CASCADE, OMNI])}
    assert commands["encode.vision"] == ["encode", "--pool", "vision", "--engine", "sim"]
    assert commands["decode.image"] == ["decode", "--kind", "image", "--engine", "sim"]


def test_each_pool_scales_alone() -> None:
    scaled = sizes([TEXT, CASCADE, OMNI], scale={"encode.vision": 3, "decode.image": 0, "omni": 2})
    assert scaled == {
        "text": 1, "omni": 2, "encode.vision": 3, "encode.audio": 1, "decode.audio": 1, "decode.image": 0,
    }  # fmt: skip


def test_a_pool_that_nobody_needs_is_refused_by_name() -> None:
    with pytest.raises(CommandFailed, match=r"no pool encode\.audio; there are omni, encode\.vision, decode\.image"):
        sizes([OMNI], scale={"encode.audio": 1})


def test_workers_bear_stable_names_and_know_their_own_port(tmp_path: Path) -> None:
    around = Surroundings(tmp_path, {"TRIPTYCH_MODELS": "cascade"}, 5.0)
    found = parts(of([TEXT, CASCADE], scale={"encode.vision": 2}), around)
    assert [part.name for part in found] == [
        "llm-0", "llm-1", "encode-vision-0", "encode-vision-1", "encode-audio-0", "decode-audio-0",
    ]  # fmt: skip
    for part in found:
        assert part.environment["TRIPTYCH_WORKER"] == part.name
        assert part.environment["TRIPTYCH_METRICS_PORT"] == str(part.port)
        assert part.environment["TRIPTYCH_MODELS"] == "cascade"
    assert len({part.port for part in found}) == len(found)


def test_scale_is_read_from_the_command_line() -> None:
    assert parse_scale("encode.vision=2, decode.image=0") == {"encode.vision": 2, "decode.image": 0}
    assert parse_scale("") == {}


@pytest.mark.parametrize("text", ["encode.vision", "encode.vision=", "encode.vision=-1", "a=x", "a=65"])
def test_a_scale_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed, match="should read POOL=N"):
        parse_scale(text)
