"""What the head of a request may be: pure checks, and how an offer is taken out of one."""

from collections.abc import Sequence

import msgspec

from schemas.errors import TriptychError

Fields = Sequence[tuple[bytes, bytes]]  # names in lower case

_OF_OFFERS = (b"upgrade", b"http2-settings")


class WireLimits(msgspec.Struct, frozen=True):
    """What one request may take on the wire."""

    head_bytes: int = 64 << 10
    head_fields: int = 128
    head_s: float = 30.0  # from the first byte of a head to its last; also from connecting to the first byte
    idle_s: float = 30.0  # between two pieces of a body, while we read it
    body_s: float = 120.0
    form_s: float = 630.0  # of a body that is a form, which may hold a large file, or that is an upload itself

    def check_size(self, url: bytes, fields: Fields) -> None:
        """Raises TriptychError: headers_too_large."""
        if len(url) + sum(len(name) + len(value) + 4 for name, value in fields) > self.head_bytes:
            raise self.too_large()

    def too_large(self) -> TriptychError:
        message = f"The request's header fields have more than {self.head_bytes} bytes."
        return TriptychError("headers_too_large", message)

    def check(self, version: str, hosts: int, fields: Fields) -> None:
        """`hosts`: how many of the fields are `host`. Raises TriptychError: headers_too_large, invalid_request."""
        if len(fields) > self.head_fields:
            raise TriptychError("headers_too_large", f"The request has more than {self.head_fields} header fields.")
        if version == "1.1":
            if hosts != 1:
                raise TriptychError("invalid_request", "An HTTP/1.1 request has exactly one Host header.", param="host")
        elif version != "1.0":
            raise TriptychError("invalid_request", f"HTTP/{version} is not spoken here; HTTP/1.1 is.")
        elif any(name == b"transfer-encoding" for name, _ in fields):
            raise TriptychError("invalid_request", "An HTTP/1.0 request cannot have a Transfer-Encoding.")

    def time_for_body_s(self, method: bytes, fields: Fields) -> float:
        """Bodies of PUT are uploads."""
        is_form = method == b"PUT" or any(
            name == b"content-type" and value[:19].lower() == b"multipart/form-data" for name, value in fields
        )
        return self.form_s if is_form else self.body_s


def without_offer(first_line: bytes, fields: Fields) -> bytes:
    """The same head without any word of another protocol."""
    lines = [first_line]
    for name, value in fields:
        if name == b"connection":
            options = [option.strip() for option in value.split(b",")]
            value = b", ".join(option for option in options if option.lower() not in _OF_OFFERS)
        if name not in _OF_OFFERS:
            lines.append(name + b": " + value)
    return b"\r\n".join([*lines, b"", b""])
