import socket

from cli.local import ports


def test_a_port_with_a_listener_is_taken_and_another_is_found_instead() -> None:
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert ports.taken(port)
        assert ports.preferred(port) not in (0, port)


def test_a_free_port_is_not_taken_and_preferred() -> None:
    port = ports.free()
    assert not ports.taken(port)
    assert ports.preferred(port) == port
