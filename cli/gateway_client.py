"""HTTP to a gateway, for the command line: plain requests and server-sent events, on the standard library."""

import http.client
from collections.abc import Generator
from contextlib import closing
from urllib.parse import urlsplit

import msgspec

from cli.errors import CommandFailed
from schemas.errors import ErrorBody

DONE = b"[DONE]"


class GatewayUnreachable(CommandFailed):
    """Nobody answers at the URL; the message says how to start one."""


class GatewayRefused(CommandFailed):
    """The gateway answered with an error; the message is the gateway's."""


class GatewayClient:
    def __init__(self, url: str, api_key: str = "", timeout_s: float = 10.0) -> None:
        """`timeout_s`: for connecting and for every silence while reading."""
        self.url = url.rstrip("/")
        self._api_key = api_key
        self._timeout_s = timeout_s

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body.

        Raises:
            GatewayUnreachable: nobody answers.
        """
        with closing(self._connection()) as connection:
            answer = self._request(connection, "GET", path, None)
            return answer.status, answer.read()

    def events(self, path: str, body: bytes) -> Generator[bytes]:
        """The data of each server-sent event, up to the end mark. Closing the iterator closes the connection.

        Raises:
            GatewayUnreachable: nobody answers, or the answer breaks off.  GatewayRefused: it is an error.
        """
        with closing(self._connection()) as connection:
            answer = self._request(connection, "POST", path, body)
            if answer.status != http.client.OK:
                raise GatewayRefused(reason(answer.read(), answer.status))
            try:
                for line in answer:
                    if line.startswith(b"data:"):
                        data = line[5:].strip()
                        if data == DONE:
                            return
                        yield data
            except (OSError, http.client.HTTPException) as error:
                raise GatewayUnreachable(f"the answer broke off: {error}") from None

    def _connection(self) -> http.client.HTTPConnection:
        at = urlsplit(self.url)
        kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
        return kind(at.hostname or "", at.port, timeout=self._timeout_s)

    def _request(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> http.client.HTTPResponse:
        headers = {"content-type": "application/json"}
        if self._api_key:
            headers["authorization"] = f"Bearer {self._api_key}"
        try:
            connection.request(method, urlsplit(self.url).path + path, body, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise GatewayUnreachable(f"no gateway answers at {self.url} ({error}); start one: triptych up") from None


def reason(body: bytes, status: int) -> str:
    """The gateway's own words where the body holds some."""
    try:
        return msgspec.json.decode(body, type=ErrorBody).error.message
    except msgspec.DecodeError:
        return f"HTTP {status}"
