"""What Spark can't do here is one line that says what to install."""

from __future__ import annotations

import shutil

import pyspark
import pytest
from pyspark.sql import SparkSession

from coordinator.audit.audit import NothingRead
from coordinator.audit.spark.session import KNOWN_TO_WORK, make_session


def test_java_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for before Spark is."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(NothingRead, match="install a JDK"):
        make_session(None)


def test_connector_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the version of pyspark whose connector is there."""

    def fails(_builder: object) -> SparkSession:
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited.\nmore")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fails)
    monkeypatch.setattr(shutil, "which", lambda _name: "java")
    monkeypatch.setattr(pyspark, "__version__", "4.9.9")
    with pytest.raises(NothingRead, match=f"could not start.*pip install pyspark=={KNOWN_TO_WORK}"):
        make_session(None, kafka=True)
    with pytest.raises(NothingRead, match=r"exited\.$"):
        make_session(None)
