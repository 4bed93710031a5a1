"""Bytes to what a model sees or hears, and back. Other modules here know of no queue, store or engine."""
