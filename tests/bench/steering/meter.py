"""Whether the pipeline's processes kept up: what CPU they took while requests arrived."""

from collections.abc import Mapping

import msgspec
import psutil

# Above this share of a core, or of the whole machine, waiting for a CPU is a visible part of every latency.
BUSY = 0.85


class Usage(msgspec.Struct, frozen=True):
    cores: float  # taken by the pipeline's processes together
    busiest: str
    busiest_share: float  # of one core: each process has one event loop
    machine_share: float  # of all cores, by anybody

    @property
    def pipeline_bound(self) -> bool:
        """The processes, not the modelled workers, may have set the pace."""
        return max(self.busiest_share, self.machine_share) >= BUSY


class Meter:
    """Starts when built; `read` gives the mean since then. `pids`: the processes of the pipeline, by name."""

    def __init__(self, pids: Mapping[str, int], now: float) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._began_at = now
        self._before = self._seconds()
        self._idle_before = psutil.cpu_times().idle

    def read(self, now: float) -> Usage:
        passed = now - self._began_at
        shares = {name: (after - self._before[name]) / passed for name, after in self._seconds().items()}
        busiest = max(shares, key=lambda name: shares[name])
        idle = (psutil.cpu_times().idle - self._idle_before) / (passed * (psutil.cpu_count() or 1))
        return Usage(sum(shares.values()), busiest, shares[busiest], 1.0 - min(1.0, idle))

    def _seconds(self) -> dict[str, float]:
        return {name: sum(process.cpu_times()[:2]) for name, process in self._processes.items()}
