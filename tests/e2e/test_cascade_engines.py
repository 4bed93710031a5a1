"""The real ears, eyes and voice of smollm2-cascade, each alone; figures of the whole path are tests.bench.omni's."""

import re
import wave
from pathlib import Path

import numpy as np
import pytest
import sklearn
from PIL import Image, ImageDraw, ImageFont

from infra import manifests, model_store, settings, tesseract
from schemas.manifest import Manifest
from tests import models
from workers.encoder import Clip, Encoded, EncoderEngine, Picture, Sound
from workers.engines import media_catalog

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

CLIPS = Path(
    "/usr/share/pocketsphinx/test/data/librivox"
)  # Debian's pocketsphinx-testdata: LibriVox, with transcription
FONT = Path("/usr/share/fonts/truetype/nanum/NanumGothic.ttf")  # Debian's fonts-nanum
PHOTO = Path(sklearn.__file__).parent / "datasets" / "images" / "china.jpg"
SENTENCES = (
    "The weather will be sunny tomorrow.",
    "Please bring your own water and a warm coat.",
    "She sells fresh bread at the market every Friday morning.",
)


@pytest.fixture(scope="module")
def cascade() -> Manifest:
    found = manifests.find(settings.load({}), "smollm2-cascade")
    model_store.pull(found, models.MODEL_DIR, lambda phase, done, total: None)
    return found


@pytest.fixture(scope="module")
def ears(cascade: Manifest) -> EncoderEngine:
    engine = media_catalog.encoder(cascade, "audio", models.MODEL_DIR)
    engine.load(lambda line: None)
    return engine


@pytest.fixture(scope="module")
def eyes(cascade: Manifest) -> EncoderEngine:
    try:
        tesseract.find()
    except tesseract.Unusable as error:
        pytest.skip(f"{error}; {tesseract.INSTALL}")
    engine = media_catalog.encoder(cascade, "vision", models.MODEL_DIR)
    engine.load(lambda line: None)
    return engine


def recorded() -> list[tuple[Sound, list[str]]]:
    """Human speech and its words."""
    if not CLIPS.is_dir():
        pytest.skip("install pocketsphinx-testdata: its clips are what is listened to")
    found = []
    for line in (CLIPS / "transcription").read_text().splitlines():
        text, _, name = line.rpartition("(")
        with wave.open(str(CLIPS / f"{name.rstrip(')')}.wav")) as file:
            pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
        found.append((Sound(pcm, "en"), words(text.replace("<s>", "").replace("</s>", ""))))
    return found


def words(text: str) -> list[str]:
    plain = text.lower().replace("-", " ").replace("mr.", "mister")
    return re.findall(r"[a-z0-9']+", plain)


def errors(said: list[str], heard: list[str]) -> int:
    """How many words have to be changed, left out or put in."""
    row = list(range(len(heard) + 1))
    for place, word in enumerate(said, start=1):
        last, row[0] = row[0], place
        for other, candidate in enumerate(heard, start=1):
            last, row[other] = row[other], min(row[other] + 1, row[other - 1] + 1, last + (word != candidate))
    return row[-1]


def encoded(engine: EncoderEngine, *items: Sound | Picture | Clip) -> list[Encoded]:
    found = engine.encode(items)
    assert all(isinstance(one, Encoded) for one in found), found
    return [one for one in found if isinstance(one, Encoded)]


def written(text: str, size: int = 36, ink: str = "black", paper: str = "white") -> Picture:
    if not FONT.is_file():
        pytest.skip("install fonts-nanum: the Korean text is drawn with it")
    image = Image.new("RGB", (max(map(len, text.split("\n"))) * size + 60, text.count("\n") * 2 * size + 120), paper)
    ImageDraw.Draw(image).multiline_text((30, 40), text, ink, ImageFont.truetype(FONT, size), spacing=size // 2)
    return Picture(np.asarray(image))


def test_human_speech_is_heard_with_at_most_a_tenth_of_its_words_wrong(ears: EncoderEngine) -> None:
    clips = recorded()
    heard = [one for at in range(0, len(clips), ears.batch) for one in encoded(ears, *(s for s, _ in clips[at:][:4]))]
    wrong = sum(errors(said, words(one.text)) for (_, said), one in zip(clips, heard, strict=True))
    assert wrong / sum(len(said) for _, said in clips) <= 0.10
    for (sound, _), one in zip(clips, heard, strict=True):
        assert one.language == "en" and one.duration_s == pytest.approx(len(sound.pcm) / 16_000, abs=0.01)
        assert one.segments and one.segments[-1].end_s <= one.duration_s


def test_the_language_is_found_where_nobody_says_it(ears: EncoderEngine) -> None:
    ((sound, _), *_) = recorded()
    (told,), (found,) = encoded(ears, sound), encoded(ears, Sound(sound.pcm))
    assert (found.language, found.text) == ("en", told.text)


def test_what_else_is_in_a_batch_changes_nothing(ears: EncoderEngine) -> None:
    sounds = [sound for sound, _ in recorded()][:3]
    assert encoded(ears, *sounds) == [encoded(ears, one)[0] for one in sounds]


def test_speech_longer_than_a_window_is_heard_to_its_end_at_the_right_times(ears: EncoderEngine) -> None:
    clips = recorded()
    pause = np.zeros(16_000, np.float32)
    (heard,) = encoded(
        ears, Sound(np.concatenate([part for sound, _ in clips * 2 for part in (sound.pcm, pause)]), "en")
    )
    said = [word for _, one in clips * 2 for word in one]
    assert heard.duration_s > 30 and errors(said, words(heard.text)) / len(said) <= 0.10
    starts = [one.start_s for one in heard.segments]
    assert starts == sorted(starts) and starts[-1] > 40


@pytest.mark.parametrize("level", [0.0, 0.05])
def test_silence_and_noise_have_no_words(ears: EncoderEngine, level: float) -> None:
    noise = np.random.default_rng(0).normal(0, 1, 16_000 * 12).astype(np.float32) * level
    (heard, empty) = encoded(ears, Sound(noise), Sound(np.zeros(0, np.float32)))
    assert (heard.text, heard.segments, heard.language) == ("", [], "") and empty.text == ""


def test_what_the_voice_says_the_ears_hear(cascade: Manifest, ears: EncoderEngine) -> None:
    voice = media_catalog.speech(cascade, models.MODEL_DIR)
    voice.load(lambda line: None)
    for sentence in SENTENCES:
        (spoken,) = voice.speak(sentence, "", 1.0)
        assert spoken.text == sentence and spoken.sample_rate == 24_000
        at = np.arange(round(len(spoken.pcm) / 1.5)) * 1.5
        (heard,) = encoded(ears, Sound(np.interp(at, np.arange(len(spoken.pcm)), spoken.pcm).astype(np.float32), "en"))
        assert words(heard.text) == words(sentence)
    slow, fast = (sum(len(one.pcm) for one in voice.speak(SENTENCES[0], "heart", speed)) for speed in (0.5, 2.0))
    assert 3 < slow / fast < 4.5


def test_a_photo_is_named(eyes: EncoderEngine) -> None:
    photo = Picture(np.asarray(Image.open(PHOTO)))
    (seen,) = encoded(eyes, photo)
    assert seen.text.startswith("The picture shows: palace (30%)") and "Text" not in seen.text


@pytest.mark.parametrize(
    "text",
    [
        "안녕하세요 멀티모달 서빙\nTotal: 12,300 KRW",
        "오늘은 도서관이 쉽니다",
        "Wet paint, do not touch",
        "회의는 오후 3시에\n시작합니다",
    ],
)
def test_korean_and_english_writing_is_read_exactly(eyes: EncoderEngine, text: str) -> None:
    plain, turned = encoded(eyes, written(text), written(text, ink="white", paper="navy"))
    assert f'Text in the picture: "{text}"' in plain.text
    assert f'Text in the picture: "{text}"' in turned.text


def test_a_batch_of_pictures_gives_each_what_it_gives_alone(eyes: EncoderEngine) -> None:
    photo, sign = Picture(np.asarray(Image.open(PHOTO))), written("OPEN 24 HOURS")
    clip = Clip([photo, photo, sign], [0.0, 0.5, 1.0])
    together = encoded(eyes, photo, sign, clip)
    assert together == [encoded(eyes, one)[0] for one in (photo, sign, clip)]
    assert together[2].text.startswith("The video shows:\nAt 0.0 s: palace.\nAt 1.0 s: ")
    assert together[2].text.endswith('with the text "OPEN 24 HOURS".')
