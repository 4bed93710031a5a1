"""The topics for people: an HTML page of the AsyncAPI document, made once, at start.

It runs no script and loads nothing, and its Content-Security-Policy allows nothing but its own style sheet.
"""

import base64
import hashlib
import re

import jinja2
import msgspec
from markupsafe import Markup, escape

from gateway import type_words
from gateway.asyncapi_types import Document, Schema
from gateway.models import Served
from topics import names

PROMPT = "The capital of France is"
_CODE = re.compile(r"`([^`]+)`")
_FLAT_ARRAY = re.compile(r"\[\n([^\[\]{}]*?)\n *\]")
# A name, another string, or a number or word of JSON.
_JSON = re.compile(r'(?P<key>"(?:[^"\\]|\\.)*")(?=:)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<atom>-?\d[\d.eE+-]*|\b[a-z]+\b)')


class Trial(msgspec.Struct, frozen=True):
    """What the page proposes to send: a prompt for an LLM pool, and its token ids there."""

    model: str
    prompt: str
    prompt_ids: tuple[int, ...]

    @property
    def topic(self) -> str:
        return names.generate(self.model)


def trial_of(served: Served) -> Trial:
    return Trial(served.manifest.pool, PROMPT, tuple(served.language.tokenize(PROMPT)))


class AsyncApiPage:
    """`document` is JSON; `html` shows it, and is to be sent with `headers`."""

    def __init__(self, document: bytes, trial: Trial) -> None:
        self.document = document
        pages = _environment()
        style = pages.get_template("asyncapi.css").render()
        described = msgspec.json.decode(document, type=Document)
        servers = ",".join(one.host for one in described.servers.values())
        script = pages.get_template("send_a_job.py.jinja").render(trial=trial, servers=servers)
        self.html = pages.get_template("asyncapi.html").render(
            described=described,
            servers=servers,
            style=Markup(style),
            trial=trial,
            script=script,
            dead_letters=names.DEAD_LETTERS,
        )
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        self.headers = {
            "content-security-policy": f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "x-content-type-options": "nosniff",
        }


class _Field(msgspec.Struct, frozen=True):
    """A row of the table of a type's fields."""

    name: str
    type: list[type_words.Piece]
    required: bool
    default: str  # as JSON; empty = none
    description: str


def _environment() -> jinja2.Environment:
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("gateway", "pages"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.filters |= {"fields": _fields, "json": _json, "prose": _prose, "days": _days, "kib": _kib}
    return pages


def _fields(schema: Schema) -> list[_Field]:
    return [
        _Field(
            name,
            type_words.of(one),
            name in schema.required,
            "" if isinstance(one.default, msgspec.UnsetType) else bytes(one.default).decode(),
            one.description,
        )
        for name, one in schema.properties.items()
    ]


def _prose(text: str) -> Markup:
    """Paragraphs, with code between backticks."""
    paragraphs = (_CODE.sub(r"<code>\1</code>", str(escape(one))) for one in text.split("\n\n"))
    return Markup("".join(f"<p>{one}</p>" for one in paragraphs))  # every piece of it is escaped


def _json(raw: msgspec.Raw) -> Markup:
    """Indented and coloured; arrays of numbers and words in one line."""
    text = msgspec.json.format(bytes(raw), indent=2).decode()
    text = _FLAT_ARRAY.sub(lambda found: f"[{' '.join(found[1].split())}]", text)
    pieces, at = [], 0
    for token in _JSON.finditer(text):
        pieces += [
            escape(text[at : token.start()]),
            Markup('<span class="{}">{}</span>').format(token.lastgroup, token[0]),
        ]
        at = token.end()
    return Markup("").join([*pieces, escape(text[at:])])


def _days(duration_ms: int) -> str:
    days = duration_ms / names.DAY_MS
    return f"{days:g} day{'s' if days != 1 else ''}"


def _kib(size_bytes: int) -> str:
    return f"{size_bytes / 1024:g} KiB"
