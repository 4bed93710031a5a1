import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from cli.gateway_client import GatewayClient, GatewayRefused, GatewayUnreachable
from cli.local import ports, probes

EVENTS = b': a comment\n\ndata: {"n": 1}\n\ndata: {"n": 2}\n\ndata: [DONE]\n\ndata: {"after": "the end"}\n\n'


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(200, self.path.encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if body == b"refuse":
            error = {"error": {"message": "no such model", "type": "t", "param": None, "code": "model_not_found"}}
            self._answer(404, json.dumps(error).encode())
        elif body == b"crash":
            self._answer(500, b"<html>")
        elif body == b"break":
            self.send_response(200)
            self.send_header("content-length", "1000")
            self.end_headers()
            self.wfile.write(b"data: 1\n\n")
        else:
            self._answer(200, EVENTS.replace(b'{"n": 1}', (self.headers["authorization"] or "").encode()))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer((ports.LOOPBACK, 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://{ports.LOOPBACK}:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_get_gives_status_and_body_below_the_urls_path(url: str) -> None:
    assert GatewayClient(f"{url}/base/").get("/readyz") == (200, b"/base/readyz")


def test_events_are_the_data_up_to_the_end_mark(url: str) -> None:
    assert list(GatewayClient(url, "secret").events("/x", b"go")) == [b"Bearer secret", b'{"n": 2}']


def test_a_refusal_carries_the_gateways_words(url: str) -> None:
    with pytest.raises(GatewayRefused, match="no such model"):
        list(GatewayClient(url).events("/x", b"refuse"))


def test_an_error_without_words_names_the_status(url: str) -> None:
    with pytest.raises(GatewayRefused, match="HTTP 500"):
        list(GatewayClient(url).events("/x", b"crash"))


def test_nobody_there_is_said_with_the_command_that_starts_one() -> None:
    with pytest.raises(GatewayUnreachable, match="triptych up"):
        GatewayClient(f"http://{ports.LOOPBACK}:{ports.free()}").get("/")


def test_probes_tell_an_answer_from_silence(url: str) -> None:
    assert probes.http_status(f"{url}/x") == 200
    nobody = f"{ports.LOOPBACK}:{ports.free()}"
    assert probes.http_status(f"http://{nobody}") is None
    assert not probes.kafka(nobody)
    assert not probes.redis(f"redis://{nobody}/0")


def test_a_web_server_is_neither_a_broker_nor_redis(url: str) -> None:
    address = url.removeprefix("http://")
    assert not probes.kafka(address)
    assert not probes.redis(f"redis://{address}/0")
