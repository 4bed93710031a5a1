"""Wrong credentials end a process with one line and with the code that says: do not start it again as it is."""

from typing import NoReturn

import pytest

from gateway import __main__ as gateway
from infra.faults import Refused, Unavailable
from workers import __main__ as workers

WORKER = ["llm", "--model", "smollm2-135m", "--engine", "stub"]


@pytest.mark.parametrize(("fault", "code"), [(Refused, 2), (Unavailable, 1)])
def test_the_exit_code_says_whether_trying_again_may_help(
    fault: type[Exception],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def refused(*_: object) -> NoReturn:
        raise fault("redis: WRONGPASS")

    monkeypatch.setattr("sys.argv", ["gateway"])
    monkeypatch.setattr("infra.log.setup", lambda level: None)  # they are the process's, and this one has others
    monkeypatch.setattr("infra.settings.set_library_environment", lambda variables: None)
    monkeypatch.setattr(gateway, "serve", refused)
    monkeypatch.setattr(workers, "run", refused)
    assert (gateway.main(), workers.main(WORKER)) == (code, code)
    assert capsys.readouterr().err.splitlines() == ["gateway: redis: WRONGPASS", "workers: redis: WRONGPASS"]
