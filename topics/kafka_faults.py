"""What an error of a broker, or of its client, means to those who asked: one of the words of infra/faults.py."""

from aiokafka import errors
from aiokafka.errors import KafkaError

from infra.faults import Missing, PortFault, Refused, Unavailable

# Wrong credentials, missing rights, or a request that no broker of this kind and these settings will ever accept.
# InvalidReplicationFactorError is not one of them: a cluster that is starting has too few brokers for a moment.
_REFUSED = (
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.ClusterAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.IllegalSaslStateError,
    errors.InvalidConfigurationError,
    errors.InvalidGroupIdError,
    errors.InvalidPartitionsError,
    errors.InvalidRequiredAcksError,
    errors.InvalidSessionTimeoutError,
    errors.InvalidTopicError,
    errors.MessageSizeTooLargeError,
    errors.PolicyViolationError,
    errors.RecordListTooLargeError,
    errors.SaslAuthenticationFailed,
    errors.SecurityDisabled,
    errors.TopicAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed,
    errors.UnsupportedSaslMechanismError,
)
_MISSING = (errors.GroupIdNotFound, errors.UnknownTopicOrPartitionError)


def fault_of(error: KafkaError, what: str) -> PortFault:
    """The fault that this error stands for. What is not known is an outage: brokers fail over in many words."""
    text = f"{what}: {error!r}"
    if isinstance(error, _REFUSED):
        return Refused(text)
    return Missing(text) if isinstance(error, _MISSING) else Unavailable(text)
