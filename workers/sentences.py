"""Text cut into what is spoken at a time, while it streams in; made for English and Korean. Pure.

How the text is chopped up on its way here makes no difference to where it is cut.
"""

import re

# One breath, and what a speech model is sure to take; a longer sentence is cut at a comma, or between two words.
MOST_CHARS = 300
# So much more is waited for before a sentence is called too long: what follows a full stop decides what it is.
LOOKAHEAD_CHARS = 8

_WIDE = "\u3002\uff01\uff1f"  # the full-width . ! ? of East Asian text, after which there is no space
_COMMAS = ",;:\uff0c\u3001\u2014"
_END = re.compile(rf"[.!?\u2026{_WIDE}]+[\"'\u201d\u2019\u00bb)\]}}*_`~]*|\n")
_HANGUL = re.compile(r"[가-힣]")
_TITLES = frozenset(
    ["mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "gen", "col", "sgt", "capt", "rev", "hon", "mt"]
)
_NUMBERED = frozenset(["no", "nos", "fig", "vol", "ch", "sec", "eq", "p", "pp", "art"])  # before a number only
_INITIALS = re.compile(r"(?:^|[^\w.])(?:[A-HJ-Z]|(?:\w\.)+\w)$")  # "J. Smith", "U.S. Army"; but "so do I."
_ITEM = re.compile(r"\W*(?:\d{1,3}|[a-zA-Z])\.$")  # "1." in front of what it numbers
_PAUSE = re.compile(rf"[{_COMMAS}]\s|\s")

_FENCE = re.compile(r"^[ \t]*```.*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_BULLET = re.compile(r"^[ \t]*(?:#{1,6}|[-*+•>])[ \t]+", re.MULTILINE)
_STRONG = re.compile(r"\*{2,}|`+|~{2,}")
_EMPHASIS = re.compile(r"(?<!\w)[*_](?=\w)|(?<=[\w.,!?…)])[*_](?!\w)")
# Pictographs, flags, and what joins, colours or tags them. Signs that have a spoken name (°, ©, ₩) are not among them.
_EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\ufe0e\ufe0f\u200d\u20e3\U000e0000-\U000e007f]+")
_BLANKS = re.compile(r"[ \t]+")


def speakable(text: str) -> str:
    """The words without what is only for the eye: Markdown's signs, emoji. Lines stay lines; may be empty."""
    text = _LINK.sub(r"\1", _FENCE.sub("", text))
    text = _BULLET.sub("", text)
    text = _EMPHASIS.sub("", _STRONG.sub("", text))
    lines = (_BLANKS.sub(" ", line).strip() for line in _EMOJI.sub("", text).splitlines())
    return "\n".join(line for line in lines if line)


def can_be_said(text: str) -> bool:
    return any(char.isalnum() for char in speakable(text))


class Cutter:
    """Cuts one text. What cannot be said, a lone emoji for one, goes with the sentence after it."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> list[str]:
        """The sentences that are complete now; none is empty."""
        self._text += text
        return self._cut(last=False)

    def rest(self) -> list[str]:
        """No more comes: what is left."""
        pieces = self._cut(last=True)
        tail, self._text = self._text.strip(), ""
        return [*pieces, tail] if can_be_said(tail) else pieces

    def _cut(self, last: bool) -> list[str]:
        pieces = []
        while at := _next_cut(self._text, last):
            pieces.append(self._text[:at].strip())
            self._text = self._text[at:]
        return pieces


def sentences(text: str) -> list[str]:
    """All sentences of a text."""
    cutter = Cutter()
    return cutter.feed(text) + cutter.rest()


def _next_cut(text: str, last: bool) -> int | None:
    at = _sentence_end(text, last)
    long_enough = MOST_CHARS + (0 if last else LOOKAHEAD_CHARS)
    if len(text) <= long_enough or (at is not None and at <= MOST_CHARS):
        return at
    return _breath(text[:MOST_CHARS])


def _breath(text: str) -> int | None:
    """Where a sentence that is too long may be interrupted: at its last pause, if that is not too early."""
    pauses = [match.end() for match in _PAUSE.finditer(text) if match.end() > len(text) // 3]
    commas = [at for at in pauses if text[at - 2] in _COMMAS]
    return max(commas or pauses, default=len(text)) if can_be_said(text) else len(text)


def _sentence_end(text: str, last: bool) -> int | None:
    for match in _END.finditer(text):
        ends = _ends_sentence(text, match, last)
        if ends is None:
            return None
        if ends and can_be_said(text[: match.end()]):
            return match.end()
    return None


def _ends_sentence(text: str, match: re.Match[str], last: bool) -> bool | None:
    """None: what follows decides it, and has not come yet."""
    before, mark, after = text[: match.start()], match[0], text[match.end() :]
    follows = after.lstrip()
    if not follows and not last and not ("\n" in after and mark != "\n"):
        return None
    if mark == "\n":
        return "\n" in after[: len(after) - len(follows)] or not _goes_on(follows)
    if mark[0] in _WIDE or (after and _between_hangul(before, after)):
        return True
    if after and not after[0].isspace():
        return False  # 3.5, example.com
    if "\n" in after[: len(after) - len(follows)]:
        return True
    return not _goes_on(follows) and not (mark[0] == "." and _is_abbreviation(before, follows))


def _goes_on(follows: str) -> bool:
    """A small letter does not begin a sentence."""
    return follows[:1].islower()


def _between_hangul(before: str, after: str) -> bool:
    """Korean is often written without the space after a full stop."""
    return bool(_HANGUL.match(before[-1:]) and _HANGUL.match(after))


def _is_abbreviation(before: str, follows: str) -> bool:
    word = re.split(r"[^\w]", before)[-1].lower()
    if word in _TITLES or (word in _NUMBERED and follows[:1].isdigit()):
        return True
    line = before.rpartition("\n")[2] + "."
    return bool(_INITIALS.search(before[-24:]) or _ITEM.fullmatch(line))
