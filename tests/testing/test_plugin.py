"""The plugin for pytest, in runs of pytest of their own.

The plugin may be registered by its entry point too, where this program is installed anew; `-p no:tenure` makes both
cases the same.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from coordinator.testing.plugin import GROUPS_SHOWN
from tests.support import preloaded

ROOT = Path(__file__).parents[2]

JOIN = '''
from coordinator.client.client import Client
from protocol.messages import JoinGroupRequest

def join(tenure, group_id, instance):
    """One request that makes a rebalance under way."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\\0\\0\\0\\0\\0\\0")
    request = JoinGroupRequest(group_id=group_id, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
        group_instance_id=instance, protocol_type="consumer", protocols=[protocol])
    with tenure.client() as client:
        assert client.request(request).error_code == 0
'''


def run(folder: Path, code: str, *options: str, ini: str = "") -> str:
    """Run pytest on a file with this code; returns its output."""
    (folder / "test_it.py").write_text(JOIN + textwrap.dedent(code))
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n" + ini)
    plugin = ("-p", "no:tenure", "-p", "coordinator.testing.plugin", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", *plugin, *options, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    return preloaded.run(command, cwd=folder, env=environment).stdout


def test_fixtures_give_servers_with_what_markers_and_ini_options_say(tmp_path: Path) -> None:
    """The nearest marker wins; ini options are for all; a session has one server; the factory makes more."""
    output = run(
        tmp_path,
        """
        import pytest
        from coordinator.client.topics import Leaders

        pytestmark = pytest.mark.tenure(topics={"orders": 12, "both": 1}, settings={"group.max.size": 3})
        sessions = []

        def counts(tenure):
            with tenure.client() as client:
                return Leaders().counts(client, ["orders", "both", "of-ini"])

        @pytest.mark.tenure(topics={"both": 2})
        def test_marked(tenure):
            assert counts(tenure) == {"orders": 12, "both": 2, "of-ini": 4}

        @pytest.mark.parametrize("n", [1, 2])
        def test_session(tenure_session, tenure, n):
            sessions.append(tenure_session)
            assert sessions[0] is tenure_session is not tenure
            assert counts(tenure_session) == {"of-ini": 4}

        def test_factory(tenure_factory, tmp_path):
            one, other = tenure_factory({"orders": 1}), tenure_factory(data_dir=tmp_path / "data")
            assert counts(one) == {"orders": 1, "of-ini": 4}
            other.kill()
            other.start()
            assert counts(other) == {"of-ini": 4}
            assert one.timeout != other.timeout or one.bootstrap_servers != other.bootstrap_servers

        def test_settings(tenure):
            groups = tenure._configs[0].group
            assert (groups.group_max_size, groups.group_initial_rebalance_delay_ms) == (3, 7)
        """,
        ini="tenure_topics = of-ini=4\n"
        "tenure_settings =\n    group.initial.rebalance.delay.ms=7\n    group.max.size=2\n",
    )
    assert "5 passed" in output, output


def test_a_failed_test_has_the_timeline_of_each_group_that_it_touched(tmp_path: Path) -> None:
    """A section for each group with events in this test, and none for a test that passes, or another test's group."""
    output = run(
        tmp_path,
        """
        def test_that_passes(tenure, tenure_session):
            join(tenure, "quiet", "one")
            join(tenure_session, "before", "one")

        def test_that_fails(tenure, tenure_session):
            join(tenure, "payments", "one")
            join(tenure_session, "orders", "two")
            with tenure.group("payments").no_rebalance():
                pass

        def test_of_no_group(tenure):
            assert False
        """,
    )
    assert "2 failed, 1 passed" in output, output
    titles = re.findall(r"-+ Tenure: group (\S+) \(127\.0\.0\.1:\d+\) -+", output)
    assert titles == ["payments", "orders"]
    assert "rebalance, generation 0: new member one-" in output
    assert "new member two-" in output
    # The trace ends in the test, not in the kit.
    assert re.search(r"> +with tenure\.group\(\"payments\"\)\.no_rebalance\(\)", output)
    assert "rebalances already" in output
    assert "contextlib.py" not in output
    assert "coordinator/testing" not in output


@pytest.mark.long
def test_the_report_has_the_newest_groups_of_many(tmp_path: Path) -> None:
    """At most GROUPS_SHOWN timelines, those with the newest events, and a line about the others."""
    output = run(
        tmp_path,
        f"""
        def test_that_fails(tenure):
            for number in range({GROUPS_SHOWN + 2}):
                join(tenure, f"g-{{number}}", "one")
            first = tenure.group("g-0")
            first.expire(first.members[0].member_id)
            assert False
        """,
    )
    titles = re.findall(r"-+ Tenure: group (\S+) \(127\.0\.0\.1:\d+\) -+", output)
    assert titles == [*(f"g-{number}" for number in range(3, GROUPS_SHOWN + 2)), "g-0"]
    assert f"2 of {GROUPS_SHOWN + 2} groups have no timeline here" in output


@pytest.mark.long
def test_a_fault_that_never_fired_is_told(tmp_path: Path) -> None:
    """As a warning, which a run may make an error; a failed test shows the plan, so that it can be repeated."""
    output = run(
        tmp_path,
        """
        def test_that_misses(tenure, tenure_session):
            tenure.faults.add("SyncGroup -> disconnect")
            tenure_session.faults.add("Heartbeat -> delay 5")

        def test_after_it(tenure_session):
            assert list(tenure_session.faults) == []

        def test_that_fails(tenure):
            tenure.faults.add("* client_id=one -> delay 5")
            assert False
        """,
    )
    assert "1 failed, 2 passed, 3 warnings" in output, output
    assert "FaultNeverFired: this planned fault never fired: SyncGroup -> disconnect" in output
    assert "FaultNeverFired: this planned fault never fired: Heartbeat -> delay 5" in output
    assert re.search(r"-+ Tenure: faults \(127\.0\.0\.1:\d+\) -+\nfired 0: \* client_id=one -> delay 5", output)


@pytest.mark.long
def test_two_processes_run_side_by_side(tmp_path: Path) -> None:
    """With pytest-xdist each worker has servers of its own, and sections come through."""
    output = run(
        tmp_path,
        """
        import pytest

        @pytest.mark.parametrize("n", range(6))
        def test_each(tenure, tenure_session, n):
            join(tenure, "workers", "one")
            assert tenure.group("workers").generation == (0 if n == 3 else 1)
        """,
        "-n",
        "2",
    )
    assert "1 failed, 5 passed" in output, output
    assert "Tenure: group workers" in output


@pytest.mark.long
def test_mistakes_in_markers_are_named(tmp_path: Path) -> None:
    """A slip fails its test with one line."""
    output = run(
        tmp_path,
        """
        import pytest

        @pytest.mark.tenure(topic={"t": 1})
        def test_name(tenure): ...

        @pytest.mark.tenure("t")
        def test_position(tenure): ...

        @pytest.mark.tenure(settings={"group.max.sise": 1})
        def test_setting(tenure): ...

        @pytest.mark.tenure(topics=["t"])
        def test_list(tenure): ...
        """,
    )
    assert "4 errors" in output, output
    assert """takes topics={"orders": 12}, not ['t']""" in output
    assert "takes topics= and settings=, not topic\n" in output
    assert "takes topics= and settings=, not 't'\n" in output
    assert "group.max.sise: no such setting" in output


@pytest.mark.long
@pytest.mark.parametrize(("option", "form"), [("tenure_topics", "NAME=PARTITIONS"), ("tenure_settings", "NAME=VALUE")])
def test_mistakes_in_ini_options_are_named(tmp_path: Path, option: str, form: str) -> None:
    """A line without a value is shown with its form."""
    output = run(tmp_path, "def test_it(tenure): ...\n", ini=f"{option} = t")
    assert "1 error" in output
    assert f"{option}: 't' is not {form}" in output


def test_a_run_without_the_fixtures_imports_no_server(tmp_path: Path) -> None:
    """The plugin and its package are all that a run pays for, at collection and in a test."""
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n"
        "    ours = {name for name in sys.modules if name.split('.')[0] in "
        "{'coordinator', 'protocol', 'schemas', 'uvloop'}}\n"
        "    assert ours == {'coordinator', 'coordinator.testing', 'coordinator.testing.plugin'}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:tenure", "-p", "coordinator.testing.plugin", "."]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout


def test_the_entry_point_brings_the_fixtures(tmp_path: Path) -> None:
    """An installed Tenure needs no option of pytest; the extra brings pytest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"tenure": "coordinator.testing.plugin"}
    assert project["optional-dependencies"]["testing"] == ["pytest>=8"]
    installed = tmp_path / "tenure_of_a_test-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tenure-of-a-test\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(
        f"[pytest11]\ntenure = {project['entry-points']['pytest11']['tenure']}\n"
    )
    (tmp_path / "test_it.py").write_text("def test_it(tenure):\n    assert tenure.is_running\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "pytest", "-q", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout
