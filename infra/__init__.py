"""Everything else a process talks to: Redis, the object store, settings, process life, metrics."""
