"""What a field of a wire type holds, in the words beside it in the source: it is explained there and nowhere else."""

import inspect
import re

import msgspec

_FIELD = re.compile(r"^ {4}(\w+): .*?  # (.+)$", re.MULTILINE)


def of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """By field, for readers who know JSON. Raises OSError: the source is not there."""
    words = dict(_FIELD.findall(inspect.getsource(kind)))
    return {name: words[name].replace("None", "null") for name in kind.__struct_fields__ if name in words}
