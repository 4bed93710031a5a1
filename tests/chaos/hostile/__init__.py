"""Records that are wrong in every way we could think of, against live pools."""
