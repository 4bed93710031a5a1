"""The wire: msgspec types only, no IO. Everything two processes say to each other is defined here and nowhere else."""
