"""Every exception of the floors has an error code that somebody chose."""

from collections.abc import Iterator

import pytest

import ottla.storage.disk.start_errors
from ottla.broker.handlers.security.acl_codes import failure_code
from ottla.config.errors import ConfigConflictError, ConfigError, ConfigValueError
from ottla.controller.errors import AdminTimeout, ControllerError, NoNode, RequestTooLong, StoreError, TopicExists
from ottla.coordination.error_map import ERROR_CODES, FLOORS, api_error, error_code
from ottla.protocol.errors import ErrorCode
from ottla.replication.errors import ReplicationError
from ottla.storage.errors import LogDirFailure, StorageError

BASES = {StorageError, ReplicationError, ControllerError, StoreError, ConfigError}
"""What each floor's own exceptions descend from. The base's row is for what no client can do anything about."""

WITHOUT_A_CODE_OF_THEIR_OWN = {
    # the metadata store: Apache Kafka says no more of ZooKeeper's errors either
    "BadArguments",
    "BadVersion",
    "NoAuth",
    "NoChildrenForEphemerals",
    "NoNode",
    "NodeExists",
    "NotEmpty",
    "SessionExpired",
    "StoreUnavailable",
    # the controller: AdminOperationException and KafkaException in Apache Kafka
    "ProducerIdsExhausted",
    "RackInformationIncomplete",
    # storage: a broken log, or a follower that was given nonsense; never a client's fault
    "CorruptCheckpoint",
    "CorruptIndex",
    "CorruptSnapshot",
    "OffsetsOutOfOrder",
    "ProducerStateError",
    "SegmentOffsetOverflow",
    "UnexpectedAppendOffset",
}

AT_START_ONLY = {
    each for each in vars(ottla.storage.disk.start_errors).values() if isinstance(each, type) and issubclass(each, StorageError)
}


def exceptions() -> Iterator[type[Exception]]:
    for floor in FLOORS:
        for found in vars(floor).values():
            if isinstance(found, type) and issubclass(found, Exception) and found.__module__ == floor.__name__:
                yield found


def base_with_a_row(exception: type[Exception]) -> type[Exception]:
    return next(base for base in exception.__mro__ if base in ERROR_CODES)


@pytest.mark.parametrize("exception", sorted(set(exceptions()) - BASES, key=lambda each: (each.__module__, each.__name__)))
def test_every_exception_of_a_floor_has_a_code_that_was_chosen(exception: type[Exception]) -> None:
    row = base_with_a_row(exception)
    if issubclass(exception, ConfigError):
        assert ERROR_CODES[row] == ErrorCode.INVALID_CONFIG
    elif exception.__name__ in WITHOUT_A_CODE_OF_THEIR_OWN:
        assert ERROR_CODES[row] == ErrorCode.UNKNOWN_SERVER_ERROR
    else:
        assert row not in BASES, f"{exception.__name__} has no row in coordination/error_map.py and is not listed here either"


def test_the_list_of_those_without_a_code_has_nothing_that_is_gone() -> None:
    assert {each.__name__ for each in exceptions()} >= WITHOUT_A_CODE_OF_THEIR_OWN


def test_a_subclass_that_stands_elsewhere_narrows_one_with_a_code_or_comes_up_at_the_start_only() -> None:
    elsewhere = []
    waiting = list(BASES)
    while waiting:
        each = waiting.pop()
        waiting.extend(each.__subclasses__())
        if not each.__module__.startswith(("tests.", "test_")):
            elsewhere.append(each)
    without = [each for each in set(elsewhere) - set(exceptions()) - AT_START_ONLY if base_with_a_row(each) in BASES]
    assert {each.__name__ for each in without} <= {"UnreadableRecords"}, "these belong into the errors module of their floor"


def test_an_exception_takes_the_code_of_its_nearest_base() -> None:
    class Narrower(TopicExists):
        """A kind of its own."""

    assert error_code(Narrower("")) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_what_nobody_raises_on_purpose_is_an_unknown_server_error() -> None:
    assert error_code(KeyError("x")) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_text_goes_with_the_code() -> None:
    assert api_error(TopicExists("Topic 't' already exists.")) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")


@pytest.mark.parametrize(
    "error",
    [
        AdminTimeout(""),
        AdminTimeout(ErrorCode.REQUEST_TIMED_OUT.message),
        NoNode("/secret/path"),
        LookupError("what only the log is to tell"),
    ],
)
def test_a_text_that_says_nothing_or_too_much_is_left_out(error: Exception) -> None:
    assert api_error(error)[1] is None


def test_configuration_errors_carry_the_text_for_clients() -> None:
    assert api_error(ConfigConflictError("a < b"))[1] == "requirement failed: a < b"
    assert api_error(ConfigValueError("k", 1, "too small"))[1] == "Invalid value 1 for configuration k: too small"


def test_a_failed_directory_is_a_storage_error() -> None:
    assert error_code(LogDirFailure("/d", "/d/t-0", "gone")) == ErrorCode.KAFKA_STORAGE_ERROR


def test_acls_that_are_too_many_for_zookeeper_are_refused_with_the_reason() -> None:
    assert failure_code(None) == (ErrorCode.NONE, None)
    assert failure_code(NoNode("/kafka-acl/Topic/t")) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    too_long = RequestTooLong("/kafka-acl/Topic/t", "is too long")
    assert failure_code(too_long) == (ErrorCode.INVALID_REQUEST, "/kafka-acl/Topic/t: is too long")
