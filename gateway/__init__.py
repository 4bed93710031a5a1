"""HTTP in, SSE out. Holds only the open streams."""
