"""What a broker says, and which of the four words it becomes."""

import pytest
from aiokafka import errors
from aiokafka.errors import KafkaError

from infra.faults import Missing, PortFault, Refused, Unavailable
from topics import admin
from topics.kafka_faults import fault_of

ERRORS: dict[type[KafkaError], type[PortFault]] = {
    errors.KafkaConnectionError: Unavailable,
    errors.KafkaTimeoutError: Unavailable,
    errors.RequestTimedOutError: Unavailable,
    errors.NodeNotReadyError: Unavailable,
    errors.LeaderNotAvailableError: Unavailable,
    errors.NotLeaderForPartitionError: Unavailable,
    errors.NotEnoughReplicasError: Unavailable,
    errors.NotEnoughReplicasAfterAppendError: Unavailable,
    errors.NotControllerError: Unavailable,
    errors.NotCoordinatorForGroupError: Unavailable,
    errors.GroupCoordinatorNotAvailableError: Unavailable,
    errors.GroupLoadInProgressError: Unavailable,
    errors.RebalanceInProgressError: Unavailable,
    errors.KafkaStorageError: Unavailable,
    errors.UnknownError: Unavailable,
    errors.InvalidReplicationFactorError: Unavailable,
    errors.OutOfOrderSequenceNumber: Unavailable,
    errors.TopicAuthorizationFailedError: Refused,
    errors.GroupAuthorizationFailedError: Refused,
    errors.ClusterAuthorizationFailedError: Refused,
    errors.SaslAuthenticationFailed: Refused,
    errors.MessageSizeTooLargeError: Refused,
    errors.InvalidTopicError: Refused,
    errors.PolicyViolationError: Refused,
    errors.UnknownTopicOrPartitionError: Missing,
}


@pytest.mark.parametrize(("error", "fault"), ERRORS.items(), ids=[error.__name__ for error in ERRORS])
def test_every_error_becomes_one_of_the_four_words(error: type[KafkaError], fault: type[PortFault]) -> None:
    found = fault_of(error("so it is"), "producing to t")
    assert type(found) is fault
    assert str(found).startswith("producing to t: ")


class Client:
    """Of a broker that does not let us in; what it says when it is closed helps nobody."""

    async def start(self) -> None:
        raise errors.SaslAuthenticationFailed("no")

    async def close(self) -> None:
        raise errors.KafkaConnectionError("was never open")


async def test_wrong_credentials_are_refused_whatever_closing_says() -> None:
    client = Client()
    with pytest.raises(Refused, match="SaslAuthenticationFailed"):
        async with admin._opened(client, client.close, "broker:9092"):
            pass
