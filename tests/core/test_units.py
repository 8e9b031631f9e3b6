"""Times and sizes in text, names, tables, specs."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.spec import (
    ClusterSpec,
    JobSpec,
    Kind,
    Locality,
    Needs,
    NodeSpec,
    OnPreempt,
    Role,
    Shape,
    TenantSpec,
)
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Declared, IdSet, Jobs, declare
from ganger.core.state.names import Names
from ganger.core.state.table import I32, I64, Table
from ganger.core.units import (
    DAY,
    HOUR,
    MIB_MAX,
    MINUTE,
    NEVER,
    SECOND,
    format_duration,
    micros,
    parse_duration,
    parse_memory,
    seconds,
    shown,
)
from worlds import cluster, gpus, job


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("90", 90 * SECOND),
        (90, 90 * SECOND),
        (0.5, SECOND // 2),
        ("90s", 90 * SECOND),
        ("1h30m", 90 * MINUTE),
        ("1h 30m", 90 * MINUTE),
        ("1.5h", 90 * MINUTE),
        ("2D", 2 * DAY),
        ("1w", 7 * DAY),
        ("250ms", 250_000),
        ("7us", 7),
        ("1e3", 1000 * SECOND),
        ("05:30", 5 * MINUTE + 30 * SECOND),
        ("12:30:00", 12 * HOUR + 30 * MINUTE),
        ("1-12:00:00", 36 * HOUR),
        ("1-12", 36 * HOUR),
        ("0", 0),
    ],
)
def test_durations_people_write(text: str | float, time: int) -> None:
    assert parse_duration(text) == time


@pytest.mark.parametrize(
    "text", ["", "soon", "1x", "-5", "-5s", "1h-", "nan", "inf", "1e99", "h1", "1:2:3:4", True]
)
def test_what_is_no_duration_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(BadInput, match=r"^jobs\.csv:3: "):
        parse_duration(text, where="jobs.csv:3")


@pytest.mark.parametrize(
    "text",
    [
        "150000000d",
        "9e10w",
        "9" * 400 + "d",
        "9" * 400,
        "9" * 5000 + "-00:00:00",
        "1e11s",
        "16666666667:00:00",
        1e12,
        10**400,
        1 << 63,
        "1s" * 100_000,
    ],
    ids=lambda text: str(text)[:12],
)
def test_a_time_that_no_column_holds_is_refused_in_a_line(text: str | float) -> None:
    with pytest.raises(BadInput) as caught:
        parse_duration(text, where="time_limit")
    assert str(caught.value).startswith("time_limit: ") or "seconds" in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "text",
    ["9" * 400, "1048577T", "1e30", 1e30, 1 << 63, "1" * 10**6],
    ids=lambda text: str(text)[:12],
)
def test_memory_that_no_column_holds_is_refused_in_a_line(text: str | float) -> None:
    with pytest.raises(BadInput) as caught:
        parse_memory(text, where="memory")
    assert len(str(caught.value)) < 250


def test_what_somebody_wrote_is_shown_whole_unless_it_is_long() -> None:
    assert shown("abc") == "'abc'"
    assert shown("x" * 99) == f"'{'x' * 60}'"
    assert shown([1] * 99) == f"[{'1, ' * 19}1,..."
    assert shown(1 << 199) == str(1 << 199)  # of 60 digits
    assert shown(1 << 200) == "a number of 201 bits"


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "0 s"),
        (850_000, "850 ms"),
        (42 * SECOND, "42.0 s"),
        (725 * SECOND, "12m 05s"),
        (200 * MINUTE, "3h 20m"),
        (47 * HOUR, "47h 00m"),
        (48 * HOUR, "2d 0h"),
        (12 * DAY + 4 * HOUR, "12d 4h"),
        (NEVER, "never"),
        (-42 * SECOND, "-42.0 s"),
    ],
)
def test_durations_for_people(time: int, text: str) -> None:
    assert format_duration(time) == text


@given(st.integers(0, 10**16))
def test_seconds_and_back_lose_less_than_a_microsecond_in_a_lifetime(time: int) -> None:
    assert abs(micros(seconds(time)) - time) <= 1


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1e12])
def test_absurd_seconds_are_refused(wrong: float) -> None:
    with pytest.raises(BadInput):
        micros(wrong)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("16GiB", 16384),
        ("16G", 16384),
        ("16 gb", 16384),
        ("512M", 512),
        ("1T", 1 << 20),
        (16, 16),
        ("2048k", 2),
        ("1.5g", 1536),
        (str(1 << 20) + "b", 1),
        ("1048576T", MIB_MAX),
    ],
)
def test_memory_people_write(text: str | float, mib: int) -> None:
    assert parse_memory(text) == mib


@pytest.mark.parametrize("text", ["", "lots", "-1G", "1X", "G"])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not a valid amount of memory"):
        parse_memory(text)


# ---------------------------------------------------------------------- names and tables


def test_names_keep_their_codes() -> None:
    names = Names(["a", "b", "a"])
    assert [names.code("b"), names.code("c"), names.find("a"), names.find("z")] == [1, 2, 0, -1]
    assert (list(names), len(names), names[2]) == (["a", "b", "c"], 3, "c")


class Pairs(Table):
    """A table for tests."""

    one: I64
    two: I32


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), max_size=60))
def test_a_table_gives_back_what_it_was_given_however_it_grew(rows: list[tuple[int, int]]) -> None:
    table = Pairs()
    for one, two in rows:
        table.extend(1, one=one, two=two)
    assert list(zip(table.one[: table.n].tolist(), table.two.tolist(), strict=False)) == rows
    odd = table.take(np.arange(table.n) % 2 == 1)
    assert odd.one.tolist() == [one for one, _ in rows[1::2]]


def test_cells_write_through_and_frozen_columns_refuse() -> None:
    table = Pairs(4)
    table.extend(2, one=7)
    table.cells("one")[1] = 8
    frozen = table.frozen()
    assert frozen.one[:2].tolist() == [7, 8]
    with pytest.raises(ValueError, match="read-only"):
        frozen.one[0] = 1


@given(st.lists(st.integers(0, 30), max_size=60))
def test_an_id_set_is_a_set(toggles: list[int]) -> None:
    members, expected = IdSet(), set[int]()
    for row in toggles:
        if row in expected:
            members.remove(row)
        else:
            members.add(row)
        expected ^= {row}
        assert members.ids.tolist() == sorted(expected)


# ---------------------------------------------------------------------- specs

FULL = JobSpec(
    name="x",
    submitted=5,
    kind=Kind.TUNE,
    tenant="t",
    user="u",
    group="g",
    priority=-3,
    weight=0.25,
    deadline=77,
    limit=88,
    estimate=99,
    steps=1e6,
    model="bert",
    after=("y",),
    array="sweep",
    parent="y",
    on_preempt=OnPreempt.SUSPEND,
    checkpoint=3,
    restore=4,
    shape=Shape(
        (Role("ps", 1, needs=Needs(0, 1000, 0, 500, 64)), Role("w", 2, 1, 4, Needs(share=500))),
        ("A", "B"),
        "p",
        Locality.RACK,
        ("ssd",),
    ),
)


def test_a_spec_survives_the_columns_and_the_wire() -> None:
    table = declare([job("y", at=0).spec, FULL])
    assert table.spec(table.find("x")) == FULL
    assert msgspec.json.decode(msgspec.json.encode(FULL), type=JobSpec) == FULL


def test_rows_are_in_order_of_submission_and_ties_keep_their_order() -> None:
    table = declare([job("c", 2).spec, job("a", 1).spec, job("b", 1).spec])
    assert [table.name(i) for i in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([job("a").spec, job("a").spec], "two jobs are named 'a'"),
        ([job("a", after=("b",)).spec], "no job 'b'"),
        ([job("a", parent="b").spec], "no job 'b'"),
    ],
)
def test_bad_names_are_refused(specs: list[JobSpec], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        declare(specs)


def test_jobs_without_names_are_called_after_their_numbers() -> None:
    table = Declared(2)
    table.extend(2)
    assert table.name(1) == "job-1"
    assert table.find("job-1") == 1
    for wrong in ("job-2", "job-x", "x"):
        with pytest.raises(KeyError):
            table.find(wrong)


def test_the_jobs_table_shares_the_declared_columns() -> None:
    table = declare([job("a").spec])
    jobs = Jobs.of(table)
    assert jobs.submitted is table.submitted
    assert (jobs.first_start[0], jobs.finished[0], jobs.phase[0]) == (-1, -1, 0)


def test_a_shape_counts_its_gpus_and_knows_whether_it_is_plain() -> None:
    assert FULL.shape.gpus == 2
    assert gpus(3).is_plain
    assert not FULL.shape.is_plain
    assert not gpus(3, labels=("ssd",)).is_plain
    assert Role(size=3).range == (3, 3)
    assert Role(size=3, least=1, most=5).range == (1, 5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ClusterSpec(()), "has no node"),
        (cluster(0, 1), "has no node"),
        (ClusterSpec((NodeSpec(gpus=-1),)), "gpus is negative"),
        (cluster(1, 65), "65 GPUs in one node"),
        (ClusterSpec((NodeSpec(gpus=1),)), "gpu_type is missing"),
        (ClusterSpec((NodeSpec(cpus=1),), tenants=(TenantSpec("a", parent="b"),)), "parent 'b'"),
    ],
)
def test_clusters_that_cannot_be_are_refused(spec: ClusterSpec, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        spec.check()


def test_nodes_expand_groups_names_and_racks() -> None:
    nodes = Nodes(
        ClusterSpec(
            (
                NodeSpec(count=3, gpus=4, gpu_type="A", nodes_per_rack=2, name="big"),
                NodeSpec(count=1, gpus=2, gpu_type="B", island=8, name="small"),
                NodeSpec(count=1, cpus=5),
            )
        )
    )
    assert nodes.names == ["big-0", "big-1", "big-2", "small", "node-4"]
    assert [nodes.racks[code] for code in nodes.rack[:3].tolist()] == ["rack-0", "rack-0", "rack-1"]
    assert nodes.island[:4].tolist() == [4, 4, 4, 2]
    assert nodes.total_gpus == 14
