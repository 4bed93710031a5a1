"""Tesseract, which reads what is written in pictures: a program of its own, in a process of its own."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LANGUAGES = ("kor", "eng")
INSTALL = "install it: apt-get install tesseract-ocr tesseract-ocr-kor, or brew install tesseract tesseract-lang"
START_TIMEOUT_S = 30.0
# Two cores are shared by all stages: more threads of its own cost Tesseract more than they save.
_ONE_THREAD = "OMP_THREAD_LIMIT=1"


class Output(NamedTuple):
    """`text` has a form feed after each picture; `words` is Tesseract's table (TSV) of all of them."""

    text: str
    words: str


class Unusable(Exception):
    """Tesseract or one of its languages is not installed; the message says which."""


class Failed(Exception):
    """It ended badly, or not in time; the message says how."""


def find(languages: Sequence[str] = LANGUAGES) -> str:
    """The path of the program.

    Raises:
        Unusable
    """
    program = shutil.which("tesseract")
    if program is None:
        raise Unusable("tesseract is not installed")
    try:
        listed = subprocess.run(
            [program, "--list-langs"], capture_output=True, text=True, timeout=START_TIMEOUT_S, check=True
        ).stdout.split()
    except (subprocess.SubprocessError, OSError) as error:
        raise Unusable(f"{program} does not run: {error}") from error
    missing = [one for one in languages if one not in listed]
    if missing:
        raise Unusable(f"tesseract has no language {', '.join(missing)}")
    return program


def run(program: str, pictures: bytes, layout: str, timeout_s: float) -> Output:
    """Read a file of one picture (PNG) or several (TIFF). `layout` is a page segmentation mode of Tesseract's.

    Raises:
        Failed
    """
    with tempfile.TemporaryDirectory(prefix="triptych-ocr-") as folder:
        base = Path(folder) / "read"
        command = ["env", _ONE_THREAD, program, "stdin", str(base), "-l", "+".join(LANGUAGES), "--psm", layout]
        try:
            subprocess.run([*command, "txt", "tsv"], input=pictures, capture_output=True, timeout=timeout_s, check=True)
        except subprocess.CalledProcessError as error:
            said = error.stderr[-200:].decode("utf-8", "replace")
            raise Failed(f"tesseract ended with {error.returncode}: {said}") from error
        except subprocess.TimeoutExpired as error:
            raise Failed(f"tesseract took longer than {timeout_s:.0f} s") from error
        text, words = (base.with_suffix(suffix).read_text("utf-8", "replace") for suffix in (".txt", ".tsv"))
    return Output(text, words)
