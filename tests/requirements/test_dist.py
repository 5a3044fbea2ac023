"""What `make dist` built works where nothing of this tree is: in new environments, and from empty folders.

An environment has no packages but those that the wheel names, in the versions of the locks. No hash is compared: pip
compares hashes only if each requirement has one, and the wheel's own requirements have none.

House rule: a program of an environment runs without this tree's variables, in a folder that holds none of its code.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import urllib.request
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import confluent_kafka
import pytest

from requirements.dist import ROOT, WHEEL, build, copy_tree
from tests.support.patience import WITHIN_S
from tests.support.tenure import READY_LINE, wait_until

pytestmark = pytest.mark.dist

DIST = ROOT / "dist"
PACKAGES = ("coordinator", "protocol", "schemas")
LOCKS = ("run", "dev", "audit")
SETTINGS = ("--set", "group.initial.rebalance.delay.ms=0", "--set", "tenure.topics=orders:3")
PAGE = re.compile(r"HTTP: (\S+)")
LOCKED = re.compile(r"^[a-z0-9-]+==\S+", re.MULTILINE)

TEST_OF_A_USER = """
def test_a_restart_moves_nothing(tenure):
    tenure.create_topic("orders", partitions=12)
    members = tenure.group("workers").fill(3, topics=["orders"])
    group = tenure.group("workers").wait_until_stable(members=3)
    with group.no_rebalance():
        members.restart(0)
        group.wait_until(restarts=1)
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    """Return the wheel in dist/."""
    (path,) = DIST.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist() -> Path:
    """Return the sdist in dist/."""
    (path,) = DIST.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """Return what the wheel says about itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


class Environment:
    """A new virtual environment with the wheel, and the extras given; `bin` has its programs."""

    def __init__(self, folder: Path, wheel: Path, extras: str = "") -> None:
        self.bin = folder / "environment" / "bin"
        self.empty = folder / "empty"
        self.empty.mkdir(parents=True)
        self.log = folder / "log"
        constraints = folder / "constraints.txt"
        texts = (ROOT / "requirements" / f"{name}.txt" for name in LOCKS)
        constraints.write_text("\n".join({line for text in texts for line in LOCKED.findall(text.read_text())}))
        python = str(self.bin / "python")
        self._run(sys.executable, "-m", "venv", "--without-pip", str(self.bin.parent))
        options = ("--quiet", "--no-warn-script-location", "--only-binary", ":all:", "--constraint", str(constraints))
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", python)
        self._run(*pip, "install", *options, f"{wheel}{extras}")
        self._run(*pip, "check")

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of the environment in the empty folder; return its output."""
        return self._run(str(self.bin / program), *arguments)

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.empty, env=self.variables(), capture_output=True, text=True, check=False, timeout=WITHIN_S
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @staticmethod
    def variables() -> dict[str, str]:
        """The variables of this process, without those that lead to this tree."""
        left_out = {"PYTHONPATH", "VIRTUAL_ENV"}
        return {name: value for name, value in os.environ.items() if name not in left_out}

    @contextmanager
    def serve(self, *options: str) -> Iterator[str]:
        """Serve in the empty folder, with `tenure serve` and its default data folder; yield HOST:PORT."""
        command = [str(self.bin / "tenure"), "serve", "--listen", "127.0.0.1:0", *options]
        with (
            self.log.open("w") as log,
            subprocess.Popen(
                command, cwd=self.empty, env=self.variables(), stdout=subprocess.PIPE, stderr=log, text=True
            ) as server,
        ):
            try:
                assert server.stdout is not None
                ready = READY_LINE.match(server.stdout.readline())
                assert ready is not None, self.log.read_text()
                assert ready["data"] == "data"
                yield ready["listen"]
                server.terminate()
                assert server.wait(WITHIN_S) == 0, self.log.read_text()
            finally:
                server.kill()


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with the wheel alone."""
    return Environment(tmp_path_factory.mktemp("plain"), wheel)


def lead_a_group(bootstrap: str) -> list[int]:
    """Join a group as its only member; return the partitions of topic `orders` that the member got."""
    got: list[int] = []
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": str(uuid.uuid4())})
    consumer.subscribe(["orders"], on_assign=lambda _, given: got.extend(each.partition for each in given))
    try:
        while not got:
            consumer.poll(1.0)
    finally:
        consumer.close()
    return sorted(got)


def files_of(archive: zipfile.ZipFile) -> dict[str, bytes]:
    """The content of each file of a wheel, by name."""
    return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_is_the_packages_and_nothing_else(wheel: Path) -> None:
    """Each file of the packages is in the wheel, types and pages among them, and what else is in it is about it."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        about = {name.partition(".dist-info/")[2] for name in archive.namelist()} - {""}
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    assert names == {path.relative_to(ROOT).as_posix() for path in found if path.parent.name != "__pycache__"}
    assert {f"{package}/py.typed" for package in PACKAGES} < names
    assert {"protocol/messages.pyi", "coordinator/site/report.js"} < names
    assert {f"coordinator/site/page.{kind}" for kind in ("css", "html", "js")} < names
    assert about == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}


def test_the_sdist_is_what_the_wheel_is_made_of(sdist: Path, wheel: Path) -> None:
    """The sdist has the wheel's files, licence, readme and the build's own files; no tests, images or locks."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    with zipfile.ZipFile(wheel) as archive_of_files:
        assert {name for name in archive_of_files.namelist() if ".dist-info/" not in name} < names
    beside = {name for name in names if name.partition("/")[0] not in PACKAGES}
    assert {name for name in beside if not name.startswith("tenure.egg-info/")} == {
        *("LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"),
    }


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """The wheel in dist/ was built from the sdist, and a wheel that is built from the tree has the same bytes."""
    copy_tree(tmp_path / "tree")
    from_tree = build(WHEEL, tmp_path / "tree", tmp_path)
    assert from_tree.name == wheel.name
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(from_tree) as other:
        assert files_of(one) == files_of(other)


def test_the_wheel_alone_serves_a_client(plain: Environment, metadata: Message) -> None:
    """`tenure` says the wheel's version, and serves a Kafka client and a browser from an empty folder."""
    assert plain.run("tenure", "--version") == f"tenure {metadata['Version']}\n"
    with plain.serve("--http", "127.0.0.1:0", *SETTINGS) as bootstrap:
        assert lead_a_group(bootstrap) == [0, 1, 2]
        assert "Empty" in plain.run("tenure", "groups", "list", "--bootstrap-server", bootstrap)
        page = wait_until(lambda: PAGE.search(plain.log.read_text()), "the address of the page", WITHIN_S)[1]
        for name, kind in (("", "text/html"), ("page.css", "text/css"), ("page.js", "text/javascript")):
            with urllib.request.urlopen(page + name, timeout=WITHIN_S) as answer:
                assert answer.headers.get_content_type() == kind


def test_without_its_extra_the_audit_says_what_to_install(plain: Environment) -> None:
    """The command that a user needs then is in the answer."""
    done = subprocess.run([plain.bin / "tenure", "audit", "."], cwd=plain.empty, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert b"pip install 'tenure[audit]'" in done.stderr


def test_the_extra_audit_audits(wheel: Path, tmp_path: Path) -> None:
    """With the extra `audit`, the folder of a server that had a group is audited, with tables and a page."""
    environment = Environment(tmp_path, wheel, "[audit]")
    with environment.serve(*SETTINGS) as bootstrap:
        lead_a_group(bootstrap)
    assert "1 group" in environment.run("tenure", "audit", "data", "--out", "found")
    assert {".html", ".parquet"} <= {path.suffix for path in (environment.empty / "found").rglob("*")}


def test_the_extra_testing_brings_its_fixture(wheel: Path, tmp_path: Path) -> None:
    """With the extra `testing`, pytest finds the fixture `tenure` by itself."""
    environment = Environment(tmp_path, wheel, "[testing]")
    (environment.empty / "test_user.py").write_text(TEST_OF_A_USER)
    assert "1 passed" in environment.run("python", "-m", "pytest", "-q")
