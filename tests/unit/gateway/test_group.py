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


def test_members_have_the_private_ports_that_follow_the_one_set() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        first = probe.getsockname()[1]
    group = Group(Settings(port=0, metrics_port=first, gateway_id="gw"), 2)
    assert group._private == [("gw-0", first), ("gw-1", first + 1)]
    group._listener.close()
