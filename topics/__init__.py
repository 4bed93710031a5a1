"""How work is planned, addressed and carried: topic table, producer, partition-owning consumer, dead letters."""
