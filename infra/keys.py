"""Every Redis key and channel: who writes it, who reads it, how long it lives. `{model}` puts one model in one slot.

| key                              | type    | TTL              | written by              | read by                   |
|----------------------------------|---------|------------------|-------------------------|---------------------------|
| tri:{model}:epochs               | string  | none             | worker at start         | worker at start           |
| tri:{model}:life:<worker>        | string  | LIFE_TTL_MS      | worker, every tick      | worker, every tick        |
| tri:{model}:alive:<worker>       | string  | LEASE_TTL_MS     | worker, every tick      | claims of other workers   |
| tri:{model}:workers              | zset    | LEASE_TTL_MS     | worker, every tick      | workers, gateways         |
| tri:{model}:beats                | hash    | none (bounded)   | worker, every tick      | gateways, `status`        |
| tri:{model}:lease:<partition>    | string  | LEASE_TTL_MS     | the owning worker       | workers, gateways         |
| tri:{model}:req:<request id>     | hash    | see below        | claim, append, cancel   | claim, append, `requests` |
| tri:{model}:out:<request id>     | stream  | see below        | append                  | followers catching up     |
| tri:{model}:ix:...               | several | hours            | decisions, LLM workers  | decisions: prefix_index.py |
| tri:{pools}:members:<pool>       | zset    | LEASE_TTL_MS     | worker, every tick      | gateways, `status`        |
| tri:{model}:signals              | channel | -                | gateways (cancel)       | workers of the model      |
| tri:gw:<gateway id>              | channel | -                | append                  | that gateway              |
| tri:{media}:note:<artifact>      | string  | NOTE_TTL_MS      | encoders, gateways      | encoders, gateways        |
| tri:{media}:flight:<artifact>    | string  | FLIGHT_TTL_MS    | the encoder at work     | encoders                  |
| tri:{media}:tries:<artifact>     | string  | TRIES_TTL_MS     | the encoder at work     | encoders                  |
| tri:{media}:joined:<request id>  | string  | JOINED_TTL_MS    | encoders, after joining | encoders                  |
| tri:{files}:file:<file id>       | string  | file_ttl_s       | gateways (/v1/files)    | gateways                  |
| tri:{files}:of:<owner>           | zset    | file_ttl_s       | gateways (/v1/files)    | gateways (listing)        |
| tri:{store}:sweep                | string  | sweep_every_s    | the gateway that sweeps | gateways                  |

State and stream of a request live until its deadline + STATE_TTL_MS while it runs, and STATE_TTL_MS from its end on; a
cancel that comes before any claim makes a state for UNCLAIMED_TTL_MS.
"""

LEASE_TTL_MS = 3_000
TICK_S = 0.5
# How long the epoch of a name is remembered after its last tick: a process that stood still for longer, and whose name
# had another life meanwhile, is not told so. Nothing of a request is kept for as long.
LIFE_TTL_MS = 86_400_000
# How long a result can be read again after its last event: the replay window of promise P4.
STATE_TTL_MS = 600_000
# A cancelled job may wait in its topic for as long as the longest deadline; its flag must outlive that.
UNCLAIMED_TTL_MS = 4_200_000
# Entries kept per replay stream; one entry is one engine step of one request.
REPLAY_MAX_ENTRIES = 8_192

# A note is a copy of what the object store knows; without one an encoder or gateway asks the store.
NOTE_TTL_MS = 600_000
# An encoder that has died is replaced after this; a living one renews it every third of it.
FLIGHT_TTL_MS = 3_000
# How long it is remembered that encoders have died at an item.
TRIES_TTL_MS = 600_000
JOINED_TTL_MS = 600_000


def _of(model: str, rest: str) -> str:
    return f"tri:{{{model}}}:{rest}"


def epochs(model: str) -> str:
    """The last epoch that was given to anybody."""
    return _of(model, "epochs")


def life(model: str, worker: str) -> str:
    """The epoch of the latest life of that name."""
    return _of(model, f"life:{worker}")


def alive(model: str, worker: str) -> str:
    return _of(model, f"alive:{worker}")


def workers(model: str) -> str:
    return _of(model, "workers")


def beats(model: str) -> str:
    return _of(model, "beats")


def lease(model: str, partition: int) -> str:
    return _of(model, f"lease:{partition}")


def request(model: str, request_id: str) -> str:
    return _of(model, f"req:{request_id}")


def replay(model: str, request_id: str) -> str:
    return _of(model, f"out:{request_id}")


def index(model: str) -> str:
    """What all keys of the model's prefix index begin with."""
    return _of(model, "ix:")


def signals(model: str) -> str:
    return _of(model, "signals")


def gateway(gateway_id: str) -> str:
    return f"tri:gw:{gateway_id}"


def file(file_id: str) -> str:
    return _of("files", f"file:{file_id}")


def files_of(owner: str) -> str:
    return _of("files", f"of:{owner}")


def pool_members(pool: str) -> str:
    """Of a stateless pool, by its topic. Those of all pools share a slot: they are looked at together."""
    return _of("pools", f"members:{pool}")


# Artifacts are shared by all models, so they have a slot of their own.


def note(artifact: str) -> str:
    return _of("media", f"note:{artifact}")


def flight(artifact: str) -> str:
    return _of("media", f"flight:{artifact}")


def tries(artifact: str) -> str:
    return _of("media", f"tries:{artifact}")


def joined(request_id: str) -> str:
    return _of("media", f"joined:{request_id}")


def sweep() -> str:
    """Whoever sets it sweeps the object store; nobody else does until it has expired."""
    return _of("store", "sweep")
