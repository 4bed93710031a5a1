"""Results, in memory and on Redis: who may run a request, and what is stored of it."""

import asyncio
from contextlib import aclosing

import msgspec
import pytest

from infra import keys
from infra.faults import Unavailable
from infra.ports import Claim, Incarnation, Outgoing
from schemas.events import Cancelled, Event, Failed, Made, Progress, Restarted
from schemas.refs import BlobRef
from schemas.signals import Cancel
from tests.contracts.result_worlds import ALICE, BOB, RedisWorld, World, finished, redis_world, tokens
from tests.waiting import until


async def stored(world: World, head_id: str) -> list[Event]:
    """Everything that can be read of a request by now, through a subscription that looks into the stream."""
    one = world.follower.follow(world.model, head_id, after_seq=1)
    try:
        return [event async for event in one]
    finally:
        one.close()


async def test_first_claim_is_mine_and_a_living_owner_keeps_all_others_out(world: World) -> None:
    head = await world.claimed()
    assert (await world.results.claim(head, BOB, 3)).state == "busy"


async def test_the_same_life_does_not_get_a_request_twice(world: World) -> None:
    head = await world.claimed()
    assert (await world.results.claim(head, ALICE, 3)).state == "busy"


async def test_request_of_a_dead_worker_is_taken_over_where_it_stood(world: World) -> None:
    head = await world.claimed()
    assert await world.append(head, *tokens(1, 3)) == "stored"
    await world.kill(ALICE)
    assert await world.results.claim(head, BOB, 3) == Claim("mine", 2, last_seq=3, emitted=True)


async def test_a_new_life_under_the_same_name_takes_over_from_the_earlier_one(world: World) -> None:
    head = await world.claimed()
    reborn = Incarnation(ALICE.worker, ALICE.epoch + 1)
    await world.revive(reborn)
    assert await world.results.claim(head, reborn, 3) == Claim("mine", 2)


async def test_emitted_means_tokens_and_nothing_else(world: World) -> None:
    head = await world.claimed()
    assert await world.append(head, Restarted(1, 1, "alice")) == "stored"
    await world.kill(ALICE)
    assert await world.results.claim(head, BOB, 3) == Claim("mine", 2, last_seq=1, emitted=False)


async def test_two_claims_at_once_give_one_winner(world: World) -> None:
    head = world.head()
    lives = [Incarnation(f"worker-{number}", 1) for number in range(8)]
    for life in lives:
        await world.revive(life)
    claims = await asyncio.gather(*(world.results.claim(head, life, 3) for life in lives))
    assert sorted(claim.state for claim in claims) == ["busy"] * 7 + ["mine"]


async def test_zombie_is_fenced_and_nothing_of_it_is_stored(world: World) -> None:
    head = await world.claimed()
    await world.kill(ALICE)
    await world.revive(BOB)
    assert (await world.results.claim(head, BOB, 3)).attempt == 2
    assert await world.append(head, *tokens(1, 2)) == "fenced"
    assert await world.append(head, *tokens(1, 1, attempt=2), finished(2, attempt=2)) == "stored"
    assert await stored(world, head.request_id) == [finished(2, attempt=2)]


async def test_nobody_appends_without_a_claim(world: World) -> None:
    assert await world.append(world.head(), *tokens(1, 1, attempt=0)) == "fenced"


async def test_requeued_request_goes_to_the_next_claim_also_of_the_same_life(world: World) -> None:
    head = await world.claimed()
    await world.results.requeue(head, 1, ALICE)
    assert await world.results.claim(head, ALICE, 3) == Claim("mine", 2)


async def test_requeue_of_an_attempt_that_is_over_changes_nothing(world: World) -> None:
    head = await world.claimed()
    await world.kill(ALICE)
    await world.revive(BOB)
    await world.results.claim(head, BOB, 3)
    await world.results.requeue(head, 1, ALICE)
    assert (await world.results.claim(head, ALICE, 3)).state == "busy"


async def test_late_repeat_of_a_requeue_does_not_free_the_next_attempt_of_the_same_life(world: World) -> None:
    head = await world.claimed()
    await world.results.requeue(head, 1, ALICE)
    assert (await world.results.claim(head, ALICE, 3)).attempt == 2
    await world.results.requeue(head, 1, ALICE)
    assert (await world.results.claim(head, BOB, 3)).state == "busy"


async def test_attempts_are_counted_until_they_are_exhausted(world: World) -> None:
    head = await world.claimed()
    await world.results.requeue(head, 1, ALICE)
    assert (await world.results.claim(head, ALICE, 2)).state == "mine"
    await world.results.requeue(head, 2, ALICE)
    assert await world.results.claim(head, ALICE, 2) == Claim("exhausted", 3)
    assert await world.append(head, Failed(3, 1, "too_many_attempts", "given up")) == "stored"


async def test_ended_request_can_neither_be_claimed_nor_continued(world: World) -> None:
    head = await world.claimed()
    assert await world.append(head, *tokens(1, 1), finished(2)) == "stored"
    assert await world.append(head, *tokens(3, 3)) == "ended"
    await world.kill(ALICE)
    assert (await world.results.claim(head, BOB, 3)).state == "done"


async def test_append_repeated_after_a_lost_reply_is_stored_once(world: World) -> None:
    head = await world.claimed()
    for _ in range(2):
        assert await world.append(head, *tokens(1, 2)) == "stored"
    for _ in range(2):
        assert await world.append(head, *tokens(3, 3), finished(4)) == "stored"
    assert await stored(world, head.request_id) == [*tokens(2, 3), finished(4)]


async def test_events_that_leave_a_hole_are_refused(world: World) -> None:
    head = await world.claimed()
    assert await world.append(head, *tokens(2, 3)) == "fenced"
    assert await world.append(head, *tokens(1, 1)) == "stored"
    assert await world.append(head, *tokens(3, 3)) == "fenced"


async def test_other_events_under_a_taken_seq_are_refused(world: World) -> None:
    head = await world.claimed()
    assert await world.append(head, *tokens(1, 1)) == "stored"
    assert await world.append(head, Restarted(1, 1)) == "fenced"


async def test_answers_come_per_request_and_only_stored_events_are_published(world: World) -> None:
    good, lost, over = [await world.claimed() for _ in range(3)]
    await world.append(over, finished(1))
    following = [world.follower.follow(world.model, head.request_id) for head in (good, lost)]
    states = await world.results.append(
        [Outgoing(good, tokens(1, 1)), Outgoing(lost, tokens(5, 5)), Outgoing(over, tokens(2, 2))]
    )
    assert states == ["stored", "fenced", "ended"]
    assert await anext(following[0]) == tokens(1, 1)[0]
    assert following[1].ready() == []


@pytest.mark.parametrize("requests", [15, 16, 17, 300])
async def test_step_of_many_requests_is_published_whole(world: World, requests: int) -> None:
    """More than 15 batches need another array header; more than 255 fill both bytes of its length."""
    heads = [await world.claimed() for _ in range(requests)]
    following = [world.follower.follow(world.model, head.request_id) for head in heads]
    states = await world.results.append([Outgoing(head, [*tokens(1, 1), finished(2)]) for head in heads])
    assert states == ["stored"] * requests
    for one in following:
        assert [event.seq async for event in one] == [1, 2]


async def test_nothing_to_append_is_no_trouble(world: World) -> None:
    assert await world.results.append([]) == []


async def test_cancel_of_a_running_request_is_told_with_the_next_append(world: World) -> None:
    head = await world.claimed()
    await world.results.cancel(world.model, head.request_id, "client left")
    assert await world.append(head, *tokens(1, 1)) == "cancelled"
    assert await world.append(head, Cancelled(1, 2, "client left")) == "stored"
    assert await stored(world, head.request_id) == [Cancelled(1, 2, "client left")]


async def test_cancel_before_the_claim_lets_the_worker_say_so(world: World) -> None:
    head = world.head()
    await world.results.cancel(world.model, head.request_id, "client left")
    assert await world.results.claim(head, ALICE, 3) == Claim("cancelled", 1)
    assert await world.append(head, Cancelled(1, 1)) == "stored"


async def test_cancel_reaches_the_workers_of_the_model_as_a_signal(world: World) -> None:
    head = await world.claimed()
    heard: list[Cancel] = []

    async def listen() -> None:
        async with aclosing(world.signals.listen(world.model)) as signals:  # type: ignore[type-var]  # a generator
            async for signal in signals:
                heard.append(signal)

    async def cancelled_and_heard() -> bool:
        await world.results.cancel(world.model, head.request_id, "client left")
        return bool(heard)

    listening = asyncio.create_task(listen())
    await until(cancelled_and_heard)
    listening.cancel()
    await asyncio.wait([listening])
    assert heard[0] == Cancel(head.request_id, "client left")


async def test_cancel_after_the_end_changes_nothing(world: World) -> None:
    head = await world.claimed()
    await world.append(head, *tokens(1, 1))
    await world.append(head, finished(2))
    await world.results.cancel(world.model, head.request_id, "late")
    assert await world.append(head, *tokens(1, 1)) == "stored"
    assert (await world.results.claim(head, BOB, 3)).state == "done"


async def test_gateways_last_word_ends_a_running_request_at_the_right_seq(world: World) -> None:
    head = await world.claimed()
    await world.append(head, *tokens(1, 3))
    assert await world.results.end(head, Failed(0, 0, "deadline_exceeded", "too late", None))
    assert await world.append(head, *tokens(4, 4)) == "ended"
    last = (await stored(world, head.request_id))[-1]
    assert last == Failed(1, 4, "deadline_exceeded", "too late", None)


async def test_gateways_last_word_ends_a_request_that_nobody_has_claimed(world: World) -> None:
    head = world.head()
    assert await world.results.end(head, Cancelled(0, 0, "client left"))
    assert (await world.results.claim(head, ALICE, 3)).state == "done"


async def test_last_word_is_said_once_and_its_repeat_is_recognised(world: World) -> None:
    head = await world.claimed()
    word = Failed(0, 0, "deadline_exceeded", "too late")
    assert [await world.results.end(head, word) for _ in range(2)] == [True, True]
    assert not await world.results.end(head, Cancelled(0, 0, "another"))


async def test_last_word_after_the_workers_own_is_refused(world: World) -> None:
    head = await world.claimed()
    await world.append(head, finished(1))
    assert not await world.results.end(head, Failed(0, 0, "deadline_exceeded", "too late"))


@pytest.mark.services
async def test_claim_whose_reply_was_lost_is_answered_the_same_when_asked_again(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        await world.revive(ALICE)
        head = world.head()
        results = world.far_results()
        await results.claim(world.head(), ALICE, 3)  # connects, and loads the script
        world.proxy.swallow_answers()
        asking = asyncio.create_task(results.claim(head, ALICE, 3))

        async def carried_out() -> bool:
            return await world.redis.exists(keys.request(world.model, head.request_id)) == 1

        await until(carried_out)
        world.proxy.cut()
        with pytest.raises(Unavailable):
            await asking
        world.proxy.restore()
        assert await results.claim(head, ALICE, 3) == Claim("mine", 1)
        assert (await results.claim(head, ALICE, 3)).state == "busy"


@pytest.mark.services
async def test_store_that_is_away_is_a_connection_error_for_every_verb(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        head, results = world.head(), world.far_results()
        world.proxy.cut()
        calls = [
            results.claim(head, ALICE, 3),
            results.requeue(head, 1, ALICE),
            results.append([Outgoing(head, tokens(1, 1))]),
            results.end(head, Cancelled(0, 0)),
            results.cancel(world.model, head.request_id, ""),
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Unavailable] * len(calls)


@pytest.mark.services
async def test_state_and_stream_live_past_the_deadline_and_for_the_replay_window_after_the_end(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        head = await world.claimed()
        await world.append(head, *tokens(1, 1))
        for lifetime_ms in await lifetimes_ms(world, head.request_id):
            assert keys.STATE_TTL_MS + 50_000 < lifetime_ms <= keys.STATE_TTL_MS + 60_000
        await world.append(head, finished(2))
        for lifetime_ms in await lifetimes_ms(world, head.request_id):
            assert keys.STATE_TTL_MS - 10_000 < lifetime_ms <= keys.STATE_TTL_MS


@pytest.mark.services
async def test_every_key_of_a_request_expires_whatever_happened_to_it(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        cancelled, ended = world.head(), world.head()
        await world.results.cancel(world.model, cancelled.request_id, "")
        await world.results.end(ended, Cancelled(0, 0))
        exhausted = await world.claimed()
        await world.append(exhausted, *tokens(1, 1))
        async for key in world.redis.scan_iter(match=f"tri:{{{world.model}}}:[ro]*"):
            assert await world.redis.pttl(key) > 0, key


@pytest.mark.services
async def test_server_that_has_forgotten_its_scripts_is_given_them_again(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        head = await world.claimed()
        await world.redis.script_flush()
        assert await world.append(head, *tokens(1, 1)) == "stored"


@pytest.mark.services
async def test_a_store_that_was_emptied_adopts_what_runs_and_a_live_client_misses_nothing(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        head = await world.claimed()
        following = world.follower.follow(world.model, head.request_id)
        await world.append(head, *tokens(1, 2))
        seen = [await anext(following), await anext(following)]
        await world.forget(head.request_id)
        assert await world.append(head, *tokens(3, 3)) == "stored"
        assert await world.append(head, finished(4)) == "stored"
        seen += [event async for event in following]
        assert [event.seq for event in seen] == [1, 2, 3, 4]
        assert min(await lifetimes_ms(world, head.request_id)) > 0


@pytest.mark.services
async def test_of_two_that_go_on_after_the_store_was_emptied_one_does(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        head = await world.claimed()
        await world.append(head, *tokens(1, 1))
        await world.forget(head.request_id)
        assert await world.append(head, *tokens(2, 2, attempt=1)) == "stored"
        assert await world.append(head, *tokens(2, 2, attempt=2)) == "fenced"
        assert await world.append(head, *tokens(3, 3, attempt=2)) == "fenced"
        assert await world.append(head, finished(3, attempt=1)) == "stored"
        assert await world.append(head, finished(4, attempt=1)) == "ended"


async def lifetimes_ms(world: RedisWorld, request_id: str) -> list[int]:
    names = (keys.request(world.model, request_id), keys.replay(world.model, request_id))
    return [await world.redis.pttl(name) for name in names]


def made(seq: int, number: int, attempt: int = 1) -> Made:
    ref = BlobRef(f"outputs/x/{number}.pcm", "0" * 64, 4)
    return Made(attempt, seq, "audio", ref, number)


async def test_who_takes_over_is_told_how_many_pieces_the_client_has(world: World) -> None:
    head = await world.claimed()
    assert await world.append(head, made(1, 0)) == "stored"
    assert await world.append(head, Progress(1, 2, 1, 3), made(3, 1), made(4, 2)) == "stored"
    assert await world.append(head, Progress(1, 2, 1, 3), made(3, 1), made(4, 2)) == "stored"  # a retried call
    await world.kill(ALICE)
    assert await world.results.claim(head, BOB, 3) == Claim("mine", 2, last_seq=4, made=3)


async def test_pieces_and_tokens_in_one_batch_are_both_noted(world: World) -> None:
    head = await world.claimed()
    assert await world.append(head, *tokens(1, 1), made(2, 0)) == "stored"
    await world.kill(ALICE)
    assert await world.results.claim(head, BOB, 3) == Claim("mine", 2, last_seq=2, emitted=True, made=1)


async def test_a_part_of_a_cancelled_request_does_not_run(world: World) -> None:
    head = world.head()
    part = msgspec.structs.replace(world.head(), parent=head.request_id)
    other = msgspec.structs.replace(world.head(), parent=world.head().request_id)
    await world.results.cancel(world.model, head.request_id, "the client went away")
    await world.revive(ALICE)
    assert (await world.results.claim(part, ALICE, 3)).state == "cancelled"
    assert (await world.results.claim(other, ALICE, 3)).state == "mine"
    assert await world.append(part, Cancelled(1, 1, "cancelled before it ran")) == "stored"


async def test_wishes_of_several_requests_are_told_at_once(world: World) -> None:
    wanted, ended, cancelled = world.head(), await world.claimed(), world.head()
    await world.append(ended, finished(1))
    await world.results.cancel(world.model, cancelled.request_id, "gone")
    heads = [wanted, ended, cancelled, wanted]
    assert await world.results.wishes(heads) == ["wanted", "ended", "cancelled", "wanted"]
    assert await world.results.wishes([]) == []


async def test_what_is_a_part_of_a_cancelled_request_is_not_wanted(world: World) -> None:
    whole = world.head()
    part = msgspec.structs.replace(world.head(), parent=whole.request_id)
    assert await world.results.wishes([part]) == ["wanted"]
    await world.results.cancel(world.model, whole.request_id, "gone")
    assert await world.results.wishes([part]) == ["cancelled"]
