"""What a command says when it cannot do its work."""


class CommandFailed(Exception):
    """The message is for the person at the terminal: what is wrong and what to do about it."""
