"""The columnar path gives the same rows as the parser, whatever the bytes are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.audit.read import columns, fields
from coordinator.audit.read import parse as parse_module
from coordinator.audit.read.columns import Tables, _Reader, read_tables
from coordinator.audit.read.fields import Fields
from coordinator.audit.read.logs import plan
from coordinator.audit.read.parse import TABLES
from coordinator.audit.read.tables import to_rows
from protocol.records.batch import HEADER_SIZE, peek_header
from protocol.records.codecs import Codec
from tests.audit.random_logs import logs
from tests.audit.reference import all_to_arrow, parse
from tests.audit.scenes import GROUP, Scene, clean, compressed, member
from tests.support.batches import with_crc
from tests.support.length import rounds


def assert_equal(folder: Path, range_size: int = 10**9) -> None:
    """Compare both ways to read, for every range and table."""
    for of in plan(folder, range_size=range_size).ranges:
        wanted = all_to_arrow(parse(of))
        found = whole(read_tables(of))
        assert found.keys() == wanted.keys()
        for table, batch in found.items():
            batch.validate(full=True)
            assert batch.schema == wanted[table].schema
            missing = [field.name for field in batch.schema if batch[field.name].null_count and not field.nullable]
            assert not missing, table
            assert to_rows(batch) == to_rows(wanted[table]), table
        for table in TABLES:
            assert whole(read_tables(of, [table])) == {table: found[table]}


def whole(parts: Iterable[Tables]) -> Tables:
    """Join the parts of a range."""
    of_tables = list(parts)
    return {table: pa.concat_batches([part[table] for part in of_tables]) for table in of_tables[0]}


@pytest.mark.rounds
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=rounds(10, 100, 1_000),
)
@given(batches=logs())
def test_columns_are_the_rows_of_the_parser(tmp_path: Path, batches: list[bytes]) -> None:
    """Both ways agree on random logs with every version, codec and kind of damage, and with torn tails."""
    scene = Scene()
    scene.batches = batches
    assert_equal(scene.write(tmp_path))


@pytest.mark.parametrize("range_size", [1, 500, 10**9])
def test_plain_log_goes_in_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, range_size: int) -> None:
    """The columnar path reads a log that Kafka wrote completely, without the parser."""
    folder = clean().write(tmp_path)
    assert_equal(folder, range_size)
    monkeypatch.delattr(columns, "batch_parts")
    for of in plan(folder, range_size=range_size).ranges:
        whole(read_tables(of))


def test_batch_that_is_not_plain_keeps_its_place(scene: Scene, tmp_path: Path) -> None:
    """Rows stay in the order of the log if the parser reads one batch between others."""
    scene.batches[3] = compressed(scene.batches[3], Codec.LZ4)
    folder = scene.write(tmp_path)
    assert_equal(folder)
    (of,) = plan(folder).ranges
    offsets = whole(read_tables(of))["records"].column("offset").to_pylist()
    assert offsets == sorted(offsets)
    assert len(offsets) == 11


@pytest.mark.parametrize("name", [b"a-1", GROUP.encode()])
@pytest.mark.parametrize("start", [b"\xff\xfe", "é".encode()])
def test_text_is_looked_through(scene: Scene, tmp_path: Path, name: bytes, start: bytes) -> None:
    """Text that isn't UTF-8 is read as Kafka reads it, in members and in keys, and text beyond ASCII as it is."""
    scene.batches = [with_crc(batch.replace(name, start + name[2:])) for batch in scene.batches]
    assert_equal(scene.write(tmp_path))


def test_large_ones_are_read_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser reads a batch of many records and a group of many members, because they would delay all others."""
    monkeypatch.setattr(columns, "RECORDS_MAX", 3)
    monkeypatch.setattr(fields, "MEMBERS_MAX", 3)
    scene = Scene().group([member(f"m-{number}", {"orders": [number]}) for number in range(4)], 1)
    scene.append(*[(key, value) for key, value in zip([b"\0\1"] * 4, [None] * 4, strict=True)]).commit(5)
    assert_equal(scene.write(tmp_path))


def test_only_what_is_wanted_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the wanted tables cost time: the audit decodes no group and no record that it doesn't need."""
    (of,) = plan(clean().write(tmp_path)).ranges
    found = whole(read_tables(of))
    walk = Fields._walk

    def nobody(reader: Fields, groups: Any) -> Any:
        assert not len(groups.row)
        return walk(reader, groups)

    monkeypatch.setattr(Fields, "_walk", nobody)
    assert whole(read_tables(of, ["batches", "offsets"])) == {table: found[table] for table in ("batches", "offsets")}
    with pytest.raises(AssertionError):
        whole(read_tables(of, ["records"]))
    checked: list[int] = []

    def check(reader: _Reader, batches: Any) -> None:
        checked.append(len(batches))

    monkeypatch.setattr(_Reader, "_check_crcs", check)
    with pytest.raises(AssertionError):
        whole(read_tables(of, ["members"]))
    groups = found["groups"].num_rows
    assert checked == [groups]
    assert groups < found["batches"].num_rows
    monkeypatch.delattr(Fields, "records")
    assert whole(read_tables(of, ["batches"])) == {"batches": found["batches"]}


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=rounds(10, 30, 30)
)
@given(batches=logs(), step_size=st.integers(0, 3000))
def test_parts_are_the_range(tmp_path: Path, batches: list[bytes], step_size: int) -> None:
    """Parts of any size have all rows in order, and each row once."""
    scene = Scene()
    scene.batches = batches
    for of in plan(scene.write(tmp_path)).ranges:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(columns, "STEP_SIZE", step_size)
            patched.setattr(parse_module, "MEMBER_ROWS", step_size // 1000)
            parts = list(read_tables(of))
        assert whole(parts) == whole(read_tables(of))


def test_header_is_laid_out_as_the_codec_reads_it() -> None:
    """The header's numpy type has the codec's fields at the codec's positions."""
    header = peek_header(clean().batches[0])
    (seen,) = np.frombuffer(clean().batches[0][:HEADER_SIZE], columns._HEADER)
    names = dict(zip(columns._HEADER.names or (), seen.item(), strict=True))
    assert list(names.values()) == list(header)
