"""A Spark session with what the audit needs of it.

House rule: whatever Spark can't do here is one line that says what to install.
"""

from __future__ import annotations

import os
import shutil
import sys

import pyspark
from pyspark.sql import SparkSession

from coordinator.audit.audit import NothingRead

DEFAULT_MASTER = "local[*]"
KAFKA_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
KNOWN_TO_WORK = "4.0.0"
"""The version of pyspark whose Kafka connector, and all that this needs, is in Maven Central."""
SHUFFLE_PARTITIONS = 8
"""Spark's own default of 200 costs more than the work of most logs."""


def make_session(master: str | None, *, kafka: bool = False) -> SparkSession:
    """A session of that master; with none, of spark-submit's, or of this machine. Raises NothingRead."""
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise NothingRead("Spark needs Java 17 or later, and there is no java here: install a JDK")
    # Workers run what runs here, whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tenure audit")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # The connector's newer way of asking for offsets leaves internal topics out, and reads nothing.
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
        "spark.python.worker.faulthandler.enabled": "true",
    }
    if master is not None or "PYSPARK_GATEWAY_PORT" not in os.environ:
        settings["spark.master"] = master or DEFAULT_MASTER
        if settings["spark.master"].startswith("local"):
            settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if kafka:
        settings["spark.jars.packages"] = f"{KAFKA_CONNECTOR}:{pyspark.__version__}"
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        what = f"Spark could not start: {_first_line(error)}"
        if kafka and pyspark.__version__ != KNOWN_TO_WORK:
            what += f"; the Kafka connector for pyspark {pyspark.__version__} may not be there to be fetched: "
            what += f"pip install pyspark=={KNOWN_TO_WORK}"
        raise NothingRead(what) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
