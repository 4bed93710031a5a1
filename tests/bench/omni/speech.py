"""smollm2-cascade: recorded human speech with known words, and its own voice heard again."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.bench.omni.asking import client
from tests.stack import Stack

MODEL = "smollm2-cascade"
# LibriVox readings with their words, of Debian's pocketsphinx-testdata.
CLIPS = Path("/usr/share/pocketsphinx/test/data/librivox")
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "A picture is worth a thousand words.",
    "The train to the mountains leaves in the morning.",
    "Please open the window and let the fresh air in.",
    "She sells fresh bread at the market every Friday.",
)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower().replace("-", " "))


def errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """Levenshtein distance in words: substitutions, insertions and deletions."""
    row = list(range(len(heard) + 1))
    for i, one in enumerate(said, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


def heard(stack: Stack, size: int) -> dict[str, object]:
    asker, wrong, total, clips = client(stack.url), 0, 0, _clips()
    for clip, said in clips:
        answer = asker.audio.transcriptions.create(model=MODEL, file=clip, language="en")
        wrong += errors(words(said), words(answer.text))
        total += len(words(said))
    return {"wer": wrong / total, "clips": len(clips), "words": total}


def spoken(stack: Stack, size: int) -> dict[str, object]:
    asker, same = client(stack.url), 0
    for sentence in SENTENCES:
        sound = asker.audio.speech.create(model=MODEL, voice="heart", input=sentence, response_format="wav").read()
        back = asker.audio.transcriptions.create(model=MODEL, file=("said.wav", sound), language="en")
        same += words(back.text) == words(sentence)
    return {"speech_roundtrip": same / len(SENTENCES), "sentences": len(SENTENCES)}


def _clips() -> list[tuple[Path, str]]:
    """Each clip with its words."""
    if not CLIPS.is_dir():
        raise SystemExit(f"no {CLIPS}: apt-get install pocketsphinx-testdata")
    said: dict[str, str] = {}
    for line in (CLIPS / "transcription").read_text().splitlines():
        text, _, name = line.rpartition("(")
        said[name.rstrip(")").strip()] = re.sub(r"</?s>", "", text).strip()
    return [(path, said[path.stem]) for path in sorted(CLIPS.glob("*.wav")) if path.stem in said]
