"""The ports of several gateways. The processes: tests/e2e/test_gateway_group.py."""

import socket

import pytest

from gateway.group import Group
from gateway.server import PortTaken, listen
from infra.settings import Settings


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_that_somebody_has_is_not_shared_with_him(shared: bool) -> None:
    with listen("127.0.0.1", 0, shared=shared) as theirs:
        theirs.listen()
        with pytest.raises(PortTaken, match="TRIPTYCH_PORT"):
            Group(Settings(port=theirs.getsockname()[1]), 2)


def _first_of_two_free() -> int:
    for first in range(23_000, 29_000, 2):  # below what the system gives to others by chance
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind(("127.0.0.1", first))
                two.bind(("127.0.0.1", first + 1))
            except OSError:
                continue
            return first
    raise AssertionError("no two free ports beside each other")


def test_members_have_the_private_ports_that_follow_the_one_set() -> None:
    first = _first_of_two_free()
    group = Group(Settings(port=0, metrics_port=first, gateway_id="gw"), 2)
    assert group._private == [("gw-0", first), ("gw-1", first + 1)]
    group._listener.close()
