import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from tests.waiting import until

# A parent with a child and a grandchild, forked as vLLM forks its engine and that its worker. It prints their ids, and
# then each signal that one of them hears.
PARENT = """
import asyncio, multiprocessing, os, signal, subprocess, time
from workers.engines.leash import Leash

def say(*words):
    print(*words, flush=True)

def grandchild():
    time.sleep(600)

def child(ids):
    signal.signal(signal.SIGTERM, lambda *_: say("child: TERM"))
    process = multiprocessing.get_context("fork").Process(target=grandchild)
    process.start()
    ids.put((os.getpid(), process.pid))
    process.join()

async def main():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, say, "parent: TERM")
    loop.add_signal_handler(signal.SIGUSR1, say, "parent: USR1")
    leash = Leash()
    context = multiprocessing.get_context("fork")
    ids = context.SimpleQueue()
    with leash.held():
        context.Process(target=child, args=(ids,)).start()
    subprocess.run(["true"], start_new_session=True, preexec_fn=lambda: None, check=True)
    say(*ids.get())
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def family() -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
    try:
        yield parent, children
    finally:
        for process in (parent, *children):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        parent.communicate()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


async def test_children_and_grandchildren_die_with_a_killed_parent() -> None:
    with family() as (parent, children):
        assert len(children) == 2
        parent.kill()
        await until(lambda: all(gone(child) for child in children), within_s=5)


async def test_a_signal_to_the_child_is_not_heard_by_the_parent() -> None:
    with family() as (parent, (child, _)):
        assert parent.stdout is not None
        child.terminate()
        assert parent.stdout.readline() == "child: TERM\n"
        parent.send_signal(signal.SIGUSR1)  # the parent hears signals in order: an earlier one would be printed first
        assert parent.stdout.readline() == "parent: USR1\n"


async def test_a_program_started_while_it_is_not_held_may_begin_a_session() -> None:
    with family() as (parent, children):  # the parent starts one, and would have died of it before it prints
        assert len(children) == 2
        assert parent.poll() is None


async def test_children_are_in_process_groups_of_their_own() -> None:
    with family() as (parent, children):
        assert os.getpgid(parent.pid) not in {os.getpgid(child.pid) for child in children}
