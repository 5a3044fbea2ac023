"""The table of APIs with their rights, and the right that an error of an API is about."""

from __future__ import annotations

from pathlib import Path

from coordinator.apis import missing, table


def test_the_document_has_the_table() -> None:
    """docs/secure/acls.md shows it whole."""
    assert table() in (Path(__file__).parents[1] / "docs/secure/acls.md").read_text()


def test_an_error_about_a_right_names_it() -> None:
    """The words are an operation of Kafka on a resource; another error and an unknown API name none."""
    found = [
        missing("WriteTxnMarkers", "CLUSTER_AUTHORIZATION_FAILED"),
        missing("DescribeConfigs", "GROUP_AUTHORIZATION_FAILED"),
        missing("DescribeTransactions", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ]
    assert [right and right.words("x") for right in found] == [
        "ClusterAction on the cluster",
        "DescribeConfigs on group 'x'",
        "Describe on transactional id 'x'",
    ]
    assert missing("DescribeGroups", "NOT_COORDINATOR") is None
    assert missing("ShareFetch", "TOPIC_AUTHORIZATION_FAILED") is None
