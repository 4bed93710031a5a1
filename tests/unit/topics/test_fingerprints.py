import msgspec
import pytest

from schemas.manifest import Encoder, Limits, Manifest, MediaLimits, Source
from topics.fingerprints import artifact_key, content_digest, fingerprint

WEIGHTS = Source("hf", repo="a/b", revision="1")
VISION = Encoder("digits", "embeddings", weights="eye", placeholder="<image>")
MANIFEST = Manifest("m", Source("hf"), Limits(512), encoders={"vision": VISION}, weights={"eye": WEIGHTS})


def changed(**fields: object) -> Manifest:
    return msgspec.structs.replace(MANIFEST, **fields)


def test_a_fingerprint_is_16_hex_digits_and_always_the_same() -> None:
    assert fingerprint(MANIFEST, "vision") == fingerprint(changed(), "vision")
    assert len(fingerprint(MANIFEST, "vision")) == 16


@pytest.mark.parametrize(
    "other",
    [
        changed(encoders={"vision": msgspec.structs.replace(VISION, engine="labels-ocr")}),
        changed(weights={"eye": msgspec.structs.replace(WEIGHTS, revision="2")}),
        changed(weights={"eye": msgspec.structs.replace(WEIGHTS, sha256="aa")}),
        changed(encoders={"vision": msgspec.structs.replace(VISION, yields="text")}),
        changed(media=MediaLimits(video_frames=8)),
    ],
)
def test_whatever_changes_the_result_changes_the_fingerprint(other: Manifest) -> None:
    assert fingerprint(other, "vision") != fingerprint(MANIFEST, "vision")


@pytest.mark.parametrize(
    "other",
    [
        changed(id="another"),
        changed(encoders={"vision": msgspec.structs.replace(VISION, placeholder="<x>", before="<y>")}),
        changed(media=MediaLimits(item_bytes=1)),
    ],
)
def test_models_that_differ_elsewhere_share_artifacts(other: Manifest) -> None:
    assert fingerprint(other, "vision") == fingerprint(MANIFEST, "vision")


def test_token_ids_belong_to_one_vocabulary() -> None:
    codes = changed(encoders={"vision": msgspec.structs.replace(VISION, yields="token_ids")})
    assert fingerprint(codes, "vision") != fingerprint(msgspec.structs.replace(codes, id="another"), "vision")


def test_the_language_asked_for_makes_another_artifact() -> None:
    assert artifact_key("f", "d") == "artifacts/f/d.safetensors"
    assert artifact_key("f", "d", "ko") == "artifacts/f/d.ko.safetensors"
    with pytest.raises(ValueError, match="ISO 639"):
        artifact_key("f", "d", "../x")


def test_the_sound_of_a_video_is_not_taken_for_a_sound() -> None:
    # A video may have no sound, and a longer one than it may be of: what is made of it is no answer about a sound.
    assert artifact_key("f", "d", of_video=True) == "artifacts/f/d.video.safetensors"


def test_another_encoder_makes_other_content_of_the_same_item() -> None:
    assert content_digest("f", "d") == content_digest("f", "d") != content_digest("g", "d")
