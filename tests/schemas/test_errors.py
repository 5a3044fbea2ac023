"""Kafka's error codes, compared with those of kio and of kafka-python."""

from __future__ import annotations

import warnings

from kio.schema.errors import ErrorCode as KioErrorCode

from schemas.errors import ErrorCode

with warnings.catch_warnings():
    # Importing kafka-python calls a function that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import errors as kafka_python


NEWER = {"GROUP_DELETION_FAILED", "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", "CONTROLLER_ID_NOT_REGISTERED"}
"""Codes of Kafka 4.4's Errors, which is newer than kio."""


def test_same_codes_as_kio() -> None:
    """Our error codes are exactly kio's, in name and number, but for those that are newer."""
    ours = {code.name: int(code) for code in ErrorCode if code.name not in NEWER}
    assert ours == {code.name.upper(): int(code) for code in KioErrorCode}


def test_codes_that_kafka_python_knows() -> None:
    """kafka-python has the same numbers for the names that both know; it spells some names as older Kafkas did."""
    known = {error.message: error.errno for error in vars(kafka_python).values() if hasattr(error, "errno")}
    shared = {code.name for code in ErrorCode} & set(known)
    assert len(shared) > 100
    assert {name: int(ErrorCode[name]) for name in shared} == {name: known[name] for name in shared}


def test_a_code_is_a_number() -> None:
    """An error code is an int, because messages hold plain numbers and compare them."""
    assert int(ErrorCode.FENCED_INSTANCE_ID) == 82
    assert [82].index(ErrorCode.FENCED_INSTANCE_ID) == 0
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
