"""What chat templates may rely on: jinja2 as transformers runs it, in a sandbox."""

import json
from datetime import UTC, datetime

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from infra.clock import Clock


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's words for training; here it only has to be understood."""

    tags = {"generation"}  # noqa: RUF012  # jinja2's own type of this attribute

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def environment(clock: Clock) -> jinja2.Environment:
    """For the templates of all models; `clock` tells them the date."""

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # jinja2's own escapes HTML, which a prompt is not.
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form: str) -> str:
        return datetime.fromtimestamp(clock.now(), UTC).astimezone().strftime(form)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return environment
