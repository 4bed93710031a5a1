"""`python -m tests.e2e.group_processes`: a keeper, and members that need no services and say who they are.

Files in the folder TRIPTYCH_HOME say what becomes of a member when it starts: `<id>.cannot`, `<id>.later` (once),
`<id>.hold` (for as long as it is there).
"""

import asyncio
import signal
import sys
from pathlib import Path

import msgspec

from gateway.group import Group
from gateway.member import Member, Place
from infra import settings as config
from infra.lifecycle import Life, signals
from tests.waiting import until

COMMAND = [sys.executable, "-m", "tests.e2e.group_processes"]


async def keep(count: int, shares_ports: bool) -> int:
    group = Group(config.load(), count, command=COMMAND, shares_ports=shares_ports)
    print(group.port, flush=True)
    return await group.run()


async def serve(place: Place) -> int:
    settings, folder = config.load(), Path(config.other("HOME"))
    me = settings.gateway_name
    if (folder / f"{me}.cannot").exists():
        return 2
    if (folder / f"{me}.later").exists():
        (folder / f"{me}.later").unlink()
        return 1
    member, life = Member(place, settings), Life(settings.drain_s)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(me.encode())
        writer.close()

    async with signals(life, [signal.SIGTERM]), member.belonging(life):
        (folder / f"{me}.up").touch()
        await until(lambda: not (folder / f"{me}.hold").exists(), 60)
        if await member.may_listen(life):
            server = await asyncio.start_server(answer, sock=member.shared)
            member.listening()
            await life.stopped()
            server.close()
            (folder / f"{me}.drained").touch()
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--member":
        sys.exit(asyncio.run(serve(msgspec.json.decode(sys.argv[2], type=Place))))
    sys.exit(asyncio.run(keep(int(sys.argv[1]), sys.argv[2] == "shares")))
