"""What a port may raise: four words, whatever library or service is behind it, and nothing else.

    PortFault
    |- Unavailable  nobody can say now, time may heal it       wait and ask again
    |- Missing      what was asked for is not there            say so, or make it
    |- Corrupt      it is there and is not what it should be   say so, or make it anew
    `- Refused      the service understood and will not        an operator must change something

Builtin exceptions carry no meaning between packages: a KeyError or a ConnectionError that comes out of a port is a bug,
and is treated as one.
"""


class PortFault(Exception):
    """One of the four; never raised itself."""


class Unavailable(PortFault):
    """No answer in time, or an answer that says "not now": an outage, a fail-over, a full disk."""


class Missing(PortFault):
    """The object, bucket or topic is not there."""


class Corrupt(PortFault):
    """It is there, but is not what its reference says, or nothing that we could have written."""


class Refused(PortFault):
    """Wrong credentials, missing rights, or a request that the service does not accept."""
