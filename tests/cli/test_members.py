"""`tenure members remove` against Tenure and against Apache Kafka (KIP-345, removal by an admin)."""

from __future__ import annotations

import pytest

from coordinator.cli.groups import MEMBER_COLUMNS
from coordinator.cli.groups import app as groups_app
from coordinator.cli.members import app
from tests.cli.conftest import TOPIC, MakeGroup, Ran, Run
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

ALL_ABSENT = ("--all-absent", "--absent-after", "0.5")
ABSENT = "nobody-made-this-group"


def members_of(run: Run, group: str) -> list[str]:
    """The instance ids of a group's members."""
    (described,) = run(groups_app, "describe", group, "--members", "--output", "json").json
    return [member["group_instance_id"] for member in described["members"]]


def test_dry_run_shows_who_would_be_removed_and_removes_nobody(run: Run, make_group: MakeGroup) -> None:
    """The dry run shows the member with its assignment, and changes nothing, not even the group's state."""
    group = make_group(["a", "b"])
    ran = run(app, "remove", "--group", group, "--instance-id", "a", "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0].split() == list(MEMBER_COLUMNS)
    (row,) = ran.rows
    assert (row["GROUP-INSTANCE-ID"], row["ASSIGNMENT"]) == ("a", f"{TOPIC}(0,1)")
    (described,) = run(groups_app, "describe", group, "--members", "--output", "json").json
    assert described["state"] == "Stable"
    assert [member["group_instance_id"] for member in described["members"]] == ["a", "b"]


def test_dry_run_as_json(run: Run, make_group: MakeGroup) -> None:
    """The document has the member as in describe, and its group."""
    group = make_group(["a"])
    ran = run(app, "remove", "--group", group, "--instance-id", "a", "--dry-run", "--output", "json")
    assert ran.code == 0
    (member,) = ran.json
    assert member.pop("member_id").startswith("a-")
    assert member == {
        "group_id": group,
        "group_instance_id": "a",
        "client_id": "client-a",
        "client_host": "/127.0.0.1",
        "assignment": {TOPIC: [0, 1, 2, 3]},
    }


def test_dry_run_of_absent_ones(run: Run, make_group: MakeGroup) -> None:
    """An unknown instance id and an unknown group give exit code 3, as without --dry-run."""
    group = make_group(["a"])
    ran = run(app, "remove", "--group", group, "--instance-id", "a", "--instance-id", "z", "--dry-run")
    assert ran.code == 3
    assert ran.err == f"tenure: no member of group {group} has instance id z\n"
    assert len(ran.rows) == 1
    ran = run(app, "remove", "--group", ABSENT, "--instance-id", "a", "--dry-run")
    assert (ran.code, ran.err) == (3, f"tenure: no such group: {ABSENT}\n")


def test_remove_frees_the_seat(run: Run, make_group: MakeGroup) -> None:
    """Only that member leaves, by instance id alone, without its member id."""
    group = make_group(["a", "b"])
    ran = run(app, "remove", "--group", group, "--instance-id", "a")
    assert (ran.code, ran.err) == (0, "")
    assert ran.rows == [{"GROUP": group, "GROUP-INSTANCE-ID": "a", "RESULT": "removed"}]
    assert members_of(run, group) == ["b"]


def test_remove_tells_what_happened_to_each(run: Run, make_group: MakeGroup) -> None:
    """An unknown instance id doesn't affect the others (KAFKA-18188); a repeated one counts once."""
    group = make_group(["a", "b"])
    arguments = ["--instance-id", "z", "--instance-id", "b", "--instance-id", "a", "--instance-id", "b"]
    ran = run(app, "remove", "--group", group, *arguments, "--output", "json")
    assert ran.code == 3
    assert ran.json == [
        {"group_id": group, "group_instance_id": "z", "error": "UNKNOWN_MEMBER_ID"},
        {"group_id": group, "group_instance_id": "b", "error": None},
        {"group_id": group, "group_instance_id": "a", "error": None},
    ]
    assert ran.err == f"tenure: no member of group {group} has instance id z\n"
    assert members_of(run, group) == []


def test_remove_from_an_absent_group(run: Run) -> None:
    """The line says that there is no such group, and not that it lacks the members: exit code 3."""
    ran = run(app, "remove", "--group", ABSENT, "--instance-id", "a", "--instance-id", "b")
    assert ran.code == 3
    assert ran.err == f"tenure: no such group: {ABSENT}\n"


def test_refused_removal_is_named(run: Run) -> None:
    """An error of the whole response, here for an invalid group id, is exit code 4 with its name."""
    ran = run(app, "remove", "--group", "", "--instance-id", "a")
    assert ran.code == 4
    assert ran.err == "tenure: group '': INVALID_GROUP_ID\n"


@pytest.mark.parametrize("bootstrap", ["tenure"], indirect=True)
def test_all_absent_members_are_removed_at_once(run: Run, make_group: MakeGroup) -> None:
    """Static members whose consumers are gone are silent: a dry run shows them, and one command removes all."""
    group = make_group(["a", "b", "c"])
    nobody = f"tenure: no static member of group {group} is away\n"
    ran = run(app, "remove", "--group", group, "--all-absent", "--dry-run", "--absent-after", "300")
    assert (ran.code, ran.rows, ran.err) == (0, [], nobody)

    def absent() -> Ran | None:
        ran = run(app, "remove", "--group", group, *ALL_ABSENT, "--dry-run")
        return ran if [row["GROUP-INSTANCE-ID"] for row in ran.rows] == ["a", "b", "c"] else None

    wait_until(absent, "all are silent", WITHIN_S)
    assert members_of(run, group) == ["a", "b", "c"], "a dry run removes nobody"
    ran = run(app, "remove", "--group", group, *ALL_ABSENT, "--output", "json")
    assert (ran.code, ran.err) == (0, "")
    assert [(each["group_instance_id"], each["error"]) for each in ran.json] == [(name, None) for name in "abc"]
    assert members_of(run, group) == []
    ran = run(app, "remove", "--group", group, *ALL_ABSENT, "--output", "json")
    assert (ran.code, ran.json, ran.err) == (0, [], nobody)


@pytest.mark.oracle
@pytest.mark.parametrize("bootstrap", ["apache"], indirect=True)
def test_apache_kafka_does_not_tell_who_is_absent(run: Run, make_group: MakeGroup) -> None:
    """The command says so, removes nobody, and ends with exit code 4."""
    group = make_group(["a"])
    ran = run(app, "remove", "--group", group, *ALL_ABSENT)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err == f"tenure: the coordinator of {group} doesn't tell which members are silent: name them\n"
    assert members_of(run, group) == ["a"]


def test_ids_or_all_absent(run: Run) -> None:
    """One of them, not both: exit code 2. An absent group is exit code 3."""
    for wrong in ([], ["--instance-id", "a", "--all-absent"]):
        assert run(app, "remove", "--group", "g", *wrong).code == 2
    assert run(app, "remove", "--group", ABSENT, "--all-absent").code == 3


def test_a_member_with_partitions_is_at_work(run: Run, make_group: MakeGroup) -> None:
    """Exit code 0 without a word; 3 for a member or a group that is not there."""
    group = make_group(["a"])
    assert run(app, "alive", "--group", group, "--instance-id", "a") == Ran(0, "", "")
    assert run(app, "alive", "--group", group, "--instance-id", "z") == Ran(
        3, "", f"tenure: no member of group {group} has instance id z\n"
    )
    assert run(app, "alive", "--group", ABSENT, "--instance-id", "a").code == 3
