"""Places in a Markdown page that figures are written into.

    <!-- figures: NAME -->            a table, and below it what made it
    <!-- /figures -->

    <!--f:BENCH.NAME FORMAT-->1.10<!--/f-->      one number; FORMAT is Python's

What stands between the markers is replaced; all else is the writer's.
"""

import re
from collections.abc import Callable, Iterator

BLOCK = re.compile(r"(<!-- figures: (?P<name>[a-z0-9_]+) -->\n)(?P<text>.*?)(<!-- /figures -->)", re.DOTALL)
VALUE = re.compile(r"(<!--f:(?P<bench>[a-z_]+)\.(?P<name>[\w.]+) (?P<format>\S+)-->)(?P<text>[^<\n]*)(<!--/f-->)")
MARK = re.compile(r"<!-- /?figures.*?-->|<!--/?f\b.*?-->")

Table = Callable[[str], str]  # of a block's name
Number = Callable[[str, str, str], str]  # of a bench's name, a number's and its format


class Malformed(Exception):
    """A marker without its other half, or misspelt."""


def filled(page: str, table: Table, number: Number) -> str:
    """The page with everything between markers made anew.

    Raises:
        Malformed
    """
    _whole(page)
    page = BLOCK.sub(lambda found: f"{found[1]}{table(found['name'])}{found[4]}", page)

    def value(found: re.Match[str]) -> str:
        return f"{found[1]}{number(found['bench'], found['name'], found['format'])}{found[6]}"

    return VALUE.sub(value, page)


def benches_by_paragraph(page: str) -> Iterator[tuple[str, set[str]]]:
    """Each paragraph that has numbers of its own, without the markers, and the benches they come from."""
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*] )", page):
        benches = {found["bench"] for found in VALUE.finditer(paragraph)}
        if benches:
            yield MARK.sub("", paragraph), benches


def without(page: str) -> str:
    """The page without what figures are written into."""
    return VALUE.sub("", BLOCK.sub("", page))


def _whole(page: str) -> None:
    left = MARK.search(without(page))
    if left:
        raise Malformed(left[0])
