"""A Spark session with the settings that the audit needs.

The JVM works in a folder of its own, which is removed at the end of the process: Spark makes folders (`artifacts`,
`spark-warehouse`) where it starts, and the user's folder must stay clean. All paths of the audit are absolute.

At its start the JVM writes some fifty lines to standard error: what it loads, and warnings that concern nobody. They
are shown only if the start fails. All that it writes later goes through.

House rule: each failure of Spark becomes a NothingRead with one line.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import coordinator
from coordinator.audit.audit import NothingRead

STDERR, COPIED_AT_ONCE = 2, 65_536
STARTED = b"\0tenure: started\0"
"""Written between what a process says at its start and what it says later."""
DEFAULT_MASTER = "local[*]"
KAFKA_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
KNOWN_TO_WORK = "4.0.0"
"""The newest version of pyspark whose Kafka connector is complete in Maven Central."""
SHUFFLE_PARTITIONS = 8
"""Spark's own default of 200 costs more than the work of most logs."""
JVM_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Without them, Arrow checks each access to each value. Our own workers made the values, and Spark knows the lengths.
"""
RECORDS_PER_BATCH = 500
"""Rows that a worker gets at once: a row of a large group has 100 kB and more, so Spark's 10,000 rows are 1 GB."""


@contextmanager
def spark_session(master: str | None, *, kafka: bool = False) -> Iterator[SparkSession]:
    """A session of `make_session` for the block; a failure of Spark in it becomes a NothingRead."""
    with reporting_spark_failures():
        session = make_session(master, kafka=kafka)
        try:
            yield session
        finally:
            # If the JVM is gone, nothing is left to stop, and the reason was reported.
            with suppress(Py4JError, OSError):
                session.stop()


@contextmanager
def reporting_spark_failures() -> Iterator[None]:
    """Turn a failure of Spark in the block into a NothingRead of one line."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise NothingRead(f"Spark: {_first_line(error)}") from error


def make_session(master: str | None, *, kafka: bool = False) -> SparkSession:
    """A session of that master; without one, of spark-submit's or of this machine. Raises NothingRead."""
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise NothingRead("Spark needs Java 17 or later, and there is no java here: install a JDK")
    # Workers run the same Python as this process, whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName("tenure audit")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(RECORDS_PER_BATCH),
        # The connector's newer way to ask for offsets leaves out internal topics, and reads nothing.
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.driver.defaultJavaOptions": JVM_OPTIONS,
        "spark.executor.defaultJavaOptions": JVM_OPTIONS,
    }
    if master is not None or not is_submitted:
        settings["spark.master"] = master or DEFAULT_MASTER
        if settings["spark.master"].startswith("local"):
            settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if kafka:
        settings["spark.jars.packages"] = f"{KAFKA_CONNECTOR}:{pyspark.__version__}"
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate() if is_submitted else _started_elsewhere(builder)
    except Exception as error:
        what = f"Spark could not start: {_first_line(error)}"
        if kafka and pyspark.__version__ != KNOWN_TO_WORK:
            what += f"; the Kafka connector for pyspark {pyspark.__version__} may be missing in Maven Central: "
            what += f"pip install pyspark=={KNOWN_TO_WORK}"
        raise NothingRead(what) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _started_elsewhere(builder: SparkSession.Builder) -> SparkSession:
    """Start the JVM in a folder of its own; PYTHONPATH lets its workers find this package."""
    root = str(Path(next(iter(coordinator.__path__))).absolute().parent)
    paths = [str(Path(each).absolute()) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *paths])
    scratch = tempfile.mkdtemp(prefix="tenure-audit-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    with chdir(scratch), quiet_start():
        return builder.getOrCreate()


@contextmanager
def quiet_start() -> Iterator[Copying]:
    """Keep back what a process that the block starts writes to standard error, until the block ends.

    The text is dropped if the block ends well, and shown if the block fails. Later text goes through at once.
    """
    sys.stderr.flush()
    own = os.dup(STDERR)
    reading, writing = os.pipe()
    os.dup2(writing, STDERR)
    os.close(writing)
    copying = Copying(reading, own)
    copying.start()
    try:
        yield copying
        copying.is_dropped = True
    finally:
        sys.stderr.flush()
        os.write(STDERR, STARTED)
        os.dup2(own, STDERR)
        copying.has_started.wait()


class Copying(threading.Thread):
    """Copies a pipe to a file descriptor, keeping back what comes before STARTED. It owns both.

    is_dropped: whether that is dropped. has_started: STARTED came.
    """

    def __init__(self, reading: int, writing: int) -> None:
        super().__init__(name="spark-stderr", daemon=True)
        self.is_dropped = False
        self.has_started = threading.Event()
        self._reading = reading
        self._writing = writing

    def run(self) -> None:
        """Copy until no process has the other end of the pipe."""
        kept = b""
        while data := os.read(self._reading, COPIED_AT_ONCE):
            if not self.has_started.is_set():
                kept += data
                before, mark, data = kept.partition(STARTED)
                if not mark:
                    continue
                data = data if self.is_dropped else before + data
            os.write(self._writing, data)
            self.has_started.set()
        os.close(self._reading)
        os.close(self._writing)


def _first_line(error: BaseException) -> str:
    """The line that explains the error: the last line of a Python worker's traceback, else the first line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    behind = [number for number, line in enumerate(lines) if line.lstrip().startswith("Traceback (most recent")]
    if behind:
        said = [line for line in lines[behind[0] + 1 :] if line and not line[0].isspace()]
        return said[0] if said else lines[0]
    return lines[0]
