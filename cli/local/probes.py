"""Does a server on loopback answer in its own protocol? One round trip each, bounded, no client library."""

import http.client
import socket
import struct
from urllib.parse import urlsplit

LIMIT_S = 1.0

# Kafka protocol: length, then ApiVersions (key 18) version 0, correlation id, null client id.
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)


def _ask(host: str, port: int, question: bytes, answer_bytes: int) -> bytes:
    try:
        with socket.create_connection((host, port), LIMIT_S) as connection:
            connection.sendall(question)
            return connection.recv(answer_bytes)
    except OSError:
        return b""


def kafka(bootstrap: str) -> bool:
    """Whether the first of the bootstrap servers speaks Kafka."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    answer = _ask(host, int(port), struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS, 10)
    return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (1, 0)


def redis(url: str) -> bool:
    """Whether it answers PING; one that is still loading its data does not count. A password asked for does."""
    at = urlsplit(url)
    answer = _ask(at.hostname or "", at.port or 6379, b"PING\r\n", 64)
    return answer.startswith((b"+PONG", b"-NOAUTH"))


def http_status(url: str) -> int | None:
    """The status that a GET answers; None when nothing does."""
    at = urlsplit(url)
    kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
    connection = kind(at.hostname or "", at.port, timeout=LIMIT_S)
    try:
        connection.request("GET", at.path or "/")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
