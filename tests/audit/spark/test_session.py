"""If Spark can't start, one line says what to install."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress

import pyspark
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from coordinator.audit.audit import NothingRead
from coordinator.audit.spark.session import KNOWN_TO_WORK, make_session, quiet_start, reporting_spark_failures

pytestmark = pytest.mark.spark


def test_java_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program looks for Java before it imports Spark."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(NothingRead, match="install a JDK"):
        make_session(None)


def test_connector_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the connector can't be loaded, the error names it with the version of pyspark that it belongs to."""

    def fails(_builder: object) -> SparkSession:
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited.\nmore")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fails)
    monkeypatch.setattr(shutil, "which", lambda _name: "java")
    monkeypatch.setattr(pyspark, "__version__", "4.9.9")
    with pytest.raises(NothingRead, match=f"could not start.*pip install pyspark=={KNOWN_TO_WORK}"):
        make_session(None, kafka=True)
    with pytest.raises(NothingRead, match=r"exited\.$"):
        make_session(None)


def test_failure_is_one_line() -> None:
    """Of a worker's traceback the error keeps the one line with the reason."""
    for text, reason in (
        ("[NOT_FOUND] There is no such thing.\nmore", "[NOT_FOUND] There is no such thing."),
        (
            "  An exception was thrown:\nTraceback (most recent call last):\n  File 1\nOSError: [Errno 2] x\n",
            "OSError: [Errno 2] x",
        ),
        ("", "Py4JError"),
    ):
        with pytest.raises(NothingRead) as raised, reporting_spark_failures():
            raise Py4JError(text)
        assert str(raised.value) == f"Spark: {reason}"


def test_noise_of_a_start_is_shown_only_if_it_fails(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines of the start are dropped if it goes well; later lines, such as errors, always go through."""
    says = ["sh", "-c", "echo noise >&2; echo up; read line; echo later >&2"]
    for fails in (False, True):
        with suppress(NothingRead), quiet_start() as copying:
            process = subprocess.Popen(says, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            if fails:
                raise NothingRead("no")
        process.communicate(b"go on\n")
        copying.join()
        assert capfd.readouterr().err == ("noise\nlater\n" if fails else "later\n")
