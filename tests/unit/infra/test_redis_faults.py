"""What Redis says, and which of the four words it becomes: by the literal answers of servers, on every way to ask."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError

from infra import redis_client
from infra.faults import Corrupt, PortFault, Refused, Unavailable
from infra.redis_client import Script, answered, connect, ping
from infra.redis_faults import code_of, fault_of
from tests.fake_redis import answering

ANSWERS: dict[str, type[PortFault]] = {
    "LOADING Valkey is loading the dataset in memory": Unavailable,
    "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.": Unavailable,
    "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk.": Unavailable,
    "MISCONF Errors writing to the AOF file: No space left on device script: on @user_script:1.": Unavailable,
    "NOREPLICAS Not enough good replicas to write.": Unavailable,
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": Unavailable,
    "READONLY You can't write against a read only replica.": Unavailable,
    "READONLY You can't write against a read only replica. script: 2f1, on @user_script:4.": Unavailable,
    "OOM command not allowed when used memory > 'maxmemory'.": Unavailable,
    "TRYAGAIN Multiple keys request during rehashing of slot": Unavailable,
    "CLUSTERDOWN The cluster is down": Unavailable,
    "CLUSTERDOWN Hash slot not served": Unavailable,
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)": Unavailable,
    "ERR max number of clients reached": Unavailable,
    "ERR Error running script (call to f_2f1): @user_script:17: @user_script: 17: -MISCONF Errors writing": Unavailable,
    "ERR Error running script (call to f_2f1): @user_script:4: -READONLY You can't write": Unavailable,
    "EXECABORT Transaction discarded because of: LOADING Redis is loading the dataset in memory": Unavailable,
    "NOAUTH Authentication required.": Refused,
    "WRONGPASS invalid username-password pair or user is disabled.": Refused,
    "ERR invalid password": Refused,
    "NOPERM User worker has no permissions to run the 'evalsha' command": Refused,
    "NOPERM User worker has no permissions to access a channel used as an argument": Refused,
    "DENIED Redis is running in protected mode because protected mode is enabled": Refused,
    "MOVED 3999 127.0.0.1:6381": Refused,
    "ASK 3999 127.0.0.1:6381": Refused,
    "WRONGTYPE Operation against a key holding the wrong kind of value": Corrupt,
}
BUGS = [
    "ERR unknown command 'FROBNICATE', with args beginning with: 'BUSY' 'LOADING'",
    "ERR value is not an integer or out of range",
    "ERR user_script:3: attempt to compare nil with number script: 2f1, on @user_script:3.",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "BUSYGROUP Consumer Group name already exists",
]


async def by_command(redis: Redis) -> None:
    async with answered():
        await redis.set("key", "value")


async def by_ping(redis: Redis) -> None:
    await ping(redis)


async def by_script(redis: Redis) -> None:
    await Script(redis, "requeue")(["key"], ["a:1", 1])


async def by_transaction(redis: Redis) -> None:
    await by_pipeline(redis, transaction=True)


async def by_pipeline(redis: Redis, transaction: bool = False) -> None:
    async with answered(), redis.pipeline(transaction=transaction) as batch:
        batch.set("LOADING of a key that is named so", "value")
        batch.get("key")
        await batch.execute()


WAYS: list[Callable[[Redis], Awaitable[None]]] = [by_command, by_ping, by_script, by_pipeline, by_transaction]


@pytest.fixture(autouse=True)
def _no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_client, "RETRIES", 0)


async def asked_on_all_ways(answer: str) -> dict[str, BaseException | None]:
    async with answering(b"-" + answer.encode()) as url, connect(url) as redis:
        came = await asyncio.gather(*(way(redis) for way in WAYS), return_exceptions=True)
    return {way.__name__: error for way, error in zip(WAYS, came, strict=True)}


@pytest.mark.parametrize(("answer", "fault"), ANSWERS.items(), ids=[answer[:60] for answer in ANSWERS])
async def test_every_answer_becomes_one_of_the_four_words_on_every_way(answer: str, fault: type[PortFault]) -> None:
    came = await asked_on_all_ways(answer)
    assert {way: type(error) for way, error in came.items()} == {way.__name__: fault for way in WAYS}


@pytest.mark.parametrize("answer", BUGS, ids=[answer[:60] for answer in BUGS])
async def test_what_no_waiting_and_no_operator_mends_stays_what_it_is(answer: str) -> None:
    for way, error in (await asked_on_all_ways(answer)).items():
        assert isinstance(error, ResponseError), way
        assert fault_of(error) is None, way


async def test_a_script_that_was_loaded_in_vain_is_asked_for_again_later() -> None:
    """A fail-over between loading and running it; the fake never has it."""
    async with answering(b"-NOSCRIPT No matching script. Please use EVAL.") as url, connect(url) as redis:
        with pytest.raises(Unavailable):
            await by_script(redis)


async def test_a_server_that_speaks_something_else_is_no_answer() -> None:
    async with answering(b"HTTP/1.1 503 Service Unavailable") as url, connect(url) as redis:
        with pytest.raises(Unavailable):
            await by_command(redis)


def test_an_error_of_the_first_word_is_found_behind_what_the_client_says_about_a_transaction() -> None:
    error = ResponseError(
        "Command # 1 (SET BUSY MISCONF) of pipeline caused error: ('NOREPLICAS Not enough good replicas to write.',)"
    )
    assert code_of(error) == "NOREPLICAS"


def test_several_at_once_are_a_bug_if_one_is_and_refused_if_one_is() -> None:
    away, refused, bug = RedisConnectionError("cut"), ResponseError("NOPERM no"), ResponseError("ERR syntax error")
    assert isinstance(fault_of(ExceptionGroup("", [away, away])), Unavailable)
    assert isinstance(fault_of(ExceptionGroup("", [away, refused])), Refused)
    assert fault_of(ExceptionGroup("", [away, ExceptionGroup("", [refused, bug])])) is None


def test_a_connection_that_has_been_closed_is_no_answer_on_uvloop_either() -> None:
    async def write_to_closed() -> None:
        async with asyncio.timeout(5):
            server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await reader.read()
            writer.close()
            await writer.wait_closed()
            server.close()
        writer.write(b"PING\r\n")

    with pytest.raises(RuntimeError) as caught:
        uvloop.run(write_to_closed())
    assert isinstance(fault_of(caught.value), Unavailable)


@pytest.mark.parametrize("error", [InvalidResponse("Protocol Error"), TimeoutError(), ConnectionResetError("cut")])
def test_no_answer_is_an_outage_however_it_shows(error: Exception) -> None:
    assert isinstance(fault_of(error), Unavailable)


def test_what_has_nothing_to_do_with_redis_is_left_alone() -> None:
    assert fault_of(KeyError("x")) is None
    assert code_of(KeyError("x")) == ""
