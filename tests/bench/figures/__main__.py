"""`python -m tests.bench.figures`: write every published figure into the README and the pages under docs.

Tables, numbers and pictures are made from docs/bench/data, and from nothing else. `--check` writes nothing, and exits
with 1 when a page or a picture is not what the data say.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from PIL import Image

from tests.bench.benches import BY_NAME
from tests.bench.figures import markers, registry
from tests.bench.figures.data import FOLDER, NotYet, Published, link, origin
from tests.bench.published import ROOT

README = "README.md"
PICTURES = Path("docs/bench")
# In a picture: the file of figures that it was made from.
SOURCE = "Source"


class Unknown(Exception):
    """A page asks for a block or a number that nothing makes."""


class Pages:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._published = Published(root)

    def stale(self) -> list[str]:
        """What differs from the data, as paths from the root."""
        pages = [path for path, text in self._texts() if path.read_text("utf-8") != text]
        pictures = [path for path, source, _ in self._pictures() if _source(path) != source]
        return [str(path.relative_to(self._root)) for path in [*pages, *pictures]]

    def write(self) -> list[str]:
        """Make anew what is stale; returns what that was."""
        stale = self.stale()
        for path, text in self._texts():
            path.write_text(text, encoding="utf-8")
        for path, source, picture in self._pictures():
            if not source:
                path.unlink(missing_ok=True)
            elif _source(path) != source:
                picture.draw(self._published.get(picture.bench), path, {SOURCE: source})
        return stale

    def _texts(self) -> Iterator[tuple[Path, str]]:
        """Raises Unknown, markers.Malformed."""
        for path in [self._root / README, *sorted((self._root / "docs").rglob("*.md"))]:
            table = partial(self._table, brief=path.name == README and path.parent == self._root)
            yield path, markers.filled(path.read_text("utf-8"), table, self._number)

    def _pictures(self) -> Iterator[tuple[Path, str, registry.Picture]]:
        """Each picture's path and what it is to be made from; "" when there is nothing."""
        for each in registry.PICTURES:
            try:
                source = f"{each.bench} {self._published.digest(each.bench)}"
            except NotYet:
                source = ""
            yield self._root / PICTURES / each.file, source, each

    def _table(self, name: str, *, brief: bool) -> str:
        if name in registry.LISTS:
            return registry.LISTS[name]()
        if name not in registry.BLOCKS:
            raise Unknown(f"no block {name}: {', '.join([*registry.LISTS, *registry.BLOCKS])}")
        block = registry.BLOCKS[name]
        try:
            head = self._published.head(block.bench)
            told = link(block.bench, head) if brief else origin(head)
            return f"{block.table(self._published.get(block.bench))}\n{told}\n"
        except NotYet:
            return f"*No figures yet: `{BY_NAME[block.bench].command(FOLDER)}` makes them.*\n"

    def _number(self, bench: str, name: str, how: str) -> str:
        if bench not in BY_NAME:
            raise Unknown(f"no bench {bench}: {', '.join(BY_NAME)}")
        try:
            known = registry.numbers(bench, self._published.get(bench))
        except NotYet:
            return "(not measured yet)"
        if name not in known:
            raise Unknown(f"no number {name} of {bench}: {', '.join(known)}")
        return format(known[name], how)


def _source(path: Path) -> str:
    """What a picture says it was made from; "" when there is none."""
    if not path.exists():
        return ""
    with Image.open(path) as image:
        return str(image.info.get(SOURCE, "unknown"))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench.figures", description=__doc__)
    made.add_argument("--check", action="store_true", help="only say what differs")
    return made


def main() -> None:
    pages = Pages(ROOT)
    if not parser().parse_args().check:
        print("\n".join(f"made anew: {path}" for path in pages.write()) or "nothing to do")
        return
    stale = pages.stale()
    if stale:
        raise SystemExit("\n".join(f"not what docs/bench/data says: {path}; run `make figures`" for path in stale))


if __name__ == "__main__":
    main()
