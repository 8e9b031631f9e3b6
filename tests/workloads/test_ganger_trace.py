"""Our own format: what is written is read back exactly, in all three dresses."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.spec import JobSpec, Kind, Locality, Needs, OnPreempt, Role, Shape
from ganger.core.state.jobs import declare, refuse_unfit_child
from ganger.core.units import DAY, NEVER, SECOND
from ganger.workloads.formats import load_trace, save_trace
from ganger.workloads.readers.ganger_trace import COLUMNS
from ganger.workloads.trace import Trace
from workloads.samples import SAMPLES

FILES = ("t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz", "t.parquet")
times = st.integers(0, 30 * 365 * DAY)
spans = st.one_of(st.just(NEVER), times)
words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=8)
plain = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=8)


def fits(child: JobSpec, parent: JobSpec) -> bool:
    """Whether `parent` may be the parent of `child`."""
    try:
        refuse_unfit_child(child, parent)
    except BadInput:
        return False
    return True


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    each = draw(st.sampled_from((1, 1, 2, 8)))
    size = draw(st.integers(1, 40))
    share = draw(st.integers(1, 1000)) if each == 1 else 1000
    least, most = draw(st.sampled_from(((0, 0), (1, size), (size, 2 * size), (0, 3 * size))))
    needs = Needs(
        each,
        share,
        draw(st.sampled_from((0, 4096))),
        draw(st.integers(0, 64_000)),
        draw(st.integers(0, 1 << 20)),
    )
    return Shape(
        (Role(draw(plain), size, least, most, needs),),
        tuple(draw(st.lists(plain, max_size=3))),
        draw(words),
        draw(st.sampled_from(Locality)),
        tuple(draw(st.lists(plain, max_size=2))),
    )


def _due(draw: st.DrawFn, submitted: int) -> int:
    """No deadline, or one after the submission and early enough to be exact."""
    return draw(st.one_of(st.just(NEVER), st.integers(submitted, 30 * 365 * DAY)))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    n = draw(st.integers(1, 12))
    submitted = sorted(draw(st.lists(times, min_size=n, max_size=n)))
    specs = [
        JobSpec(
            name=f"{draw(plain)}-{i}",
            submitted=when - submitted[0],
            shape=draw(shapes()),
            kind=draw(st.sampled_from(Kind)),
            tenant=draw(words),
            user=draw(words),
            group=draw(words),
            priority=draw(st.integers(-(1 << 31), (1 << 31) - 1)),
            weight=draw(st.floats(1e-6, 1e6)),
            deadline=_due(draw, when - submitted[0]),
            limit=draw(spans),
            estimate=draw(spans),
            steps=draw(st.floats(0, 1e15)),
            model=draw(words),
            array=draw(words),
            on_preempt=draw(st.sampled_from(OnPreempt)),
            checkpoint=draw(st.one_of(st.just(-1), times)),
            restore=draw(st.one_of(st.just(-1), times)),
        )
        for i, when in enumerate(submitted)
    ]
    declared = declare(specs)
    for row in range(1, n):
        if draw(st.booleans()):
            declared.after[row] = (draw(st.integers(0, row - 1)),)
            parent = draw(st.integers(-1, row - 1))
            if parent >= 0 and declared.parent[parent] < 0 and fits(specs[row], specs[parent]):
                declared.parent[row] = parent
    duration = np.array(
        [
            NEVER if spec.kind is Kind.SERVE and draw(st.booleans()) else draw(times)
            for spec in specs
        ],
        np.int64,
    )
    return Trace(declared, duration)


def same(left: Trace, right: Trace) -> None:
    assert left.jobs == right.jobs
    for row in range(left.jobs):
        assert left.declared.spec(row) == right.declared.spec(row)
    assert left.duration[: left.jobs].tolist() == right.duration[: right.jobs].tolist()


@given(trace=traces(), file=st.sampled_from(FILES))
def test_what_is_written_is_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, trace: Trace, file: str
) -> None:
    path = tmp_path_factory.mktemp("round") / file
    save_trace(trace, path)
    same(load_trace(path), trace)


@given(trace=traces())
def test_all_three_dresses_hold_the_same(
    tmp_path_factory: pytest.TempPathFactory, trace: Trace
) -> None:
    folder = tmp_path_factory.mktemp("dresses")
    save_trace(trace, folder / "a.csv")
    save_trace(load_trace(folder / "a.csv"), folder / "b.jsonl")
    save_trace(load_trace(folder / "b.jsonl"), folder / "c.parquet")
    save_trace(load_trace(folder / "c.parquet"), folder / "d.csv")
    assert (folder / "d.csv").read_bytes() == (folder / "a.csv").read_bytes()


def text_of(folder: Path, text: str, file: str = "t.csv") -> Trace:
    (folder / file).write_text(text, encoding="utf-8")
    return load_trace(folder / file)


def test_three_columns_suffice_and_jobs_are_numbered(tmp_path: Path) -> None:
    trace = text_of(tmp_path, "submitted,duration,gpus\n5,60,1\n3,1h30m,2\n")
    assert trace.declared.names is None
    assert trace.duration.tolist() == [5400 * SECOND, 60 * SECOND]
    assert trace.declared.name(1) == "job-1"


def test_iso_times_with_and_without_zone(tmp_path: Path) -> None:
    trace = text_of(
        tmp_path,
        "submitted,duration,gpus,deadline\n"
        "2024-05-01T12:00:00+02:00,60,1,2024-05-01 11:00:00\n2024-05-01T10:00:01Z,60,1,\n",
    )
    assert trace.declared.submitted[:2].tolist() == [0, SECOND]
    assert trace.declared.deadline[:2].tolist() == [3600 * SECOND, NEVER]


def test_quoted_cells_may_hold_commas_and_lines_are_still_counted(tmp_path: Path) -> None:
    text = 'job,submitted,duration,gpus,x_note\n"a,b",0,1,1,"two\nlines"\nc,0,nan,1,\n'
    with pytest.raises(BadInput, match=r"t\.csv: line 4: duration"):
        text_of(tmp_path, text)


def test_columns_for_others_are_ignored_and_typos_are_not(tmp_path: Path) -> None:
    assert text_of(tmp_path, "submitted,duration,gpus,x_colour\n0,1,1,red\n").jobs == 1
    with pytest.raises(BadInput, match="did you mean 'deadline'"):
        text_of(tmp_path, "submitted,duration,gpus,dedline\n0,1,1,5\n")


def test_byte_order_mark_crlf_and_blank_lines(tmp_path: Path) -> None:
    text = "\ufeffsubmitted,duration,gpus\r\n0,1,1\r\n\r\n1,1,1\r\n"
    (tmp_path / "t.csv").write_bytes(text.encode())
    assert load_trace(tmp_path / "t.csv").jobs == 2


def test_a_service_has_no_duration(tmp_path: Path) -> None:
    trace = text_of(tmp_path, "submitted,duration,gpus,kind\n0,,1,serve\n0,5,1,train\n")
    assert trace.duration.tolist() == [NEVER, 5 * SECOND]


def test_json_lines_may_say_lists_and_leave_fields_out(tmp_path: Path) -> None:
    trace = text_of(
        tmp_path,
        '{"job": "a", "submitted": 0, "duration": 5, "gpus": 1}\n\n'
        '{"job": "b", "submitted": 1, "duration": "1m", "gpus": 2, "after": ["a"], '
        '"gpu_type": ["V100", "P100"], "model": null}\n',
        "t.jsonl",
    )
    assert trace.declared.after == {1: (0,)}
    assert trace.declared.spec(1).shape.gpu_types == ("V100", "P100")


def test_parquet_takes_timestamps_dictionaries_and_nulls(tmp_path: Path) -> None:
    table = pa.table(
        {
            "submitted": pa.array([0, 90_000_000], pa.timestamp("us")),
            "duration": pa.array([1.5, 2.0]),
            "gpus": pa.array([1, 2], pa.int8()),
            "tenant": pa.array(["a", None]).dictionary_encode(),
            "x_blob": pa.array([b"1", b"2"]),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    trace = load_trace(tmp_path / "t.parquet")
    assert trace.declared.submitted[:2].tolist() == [0, 90 * SECOND]
    assert [trace.declared.spec(i).tenant for i in range(2)] == ["a", ""]


def test_parquet_refuses_odd_types_and_missing_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    good = {"submitted": [0], "duration": [1]}
    pq.write_table(pa.table(good), path)
    with pytest.raises(BadInput, match="column 'gpus' is missing"):
        load_trace(path)
    pq.write_table(pa.table({**good, "gpus": [[1]]}), path)
    with pytest.raises(BadInput, match=r"t\.parquet: gpus: the type is list"):
        load_trace(path)
    pq.write_table(pa.table({**good, "gpus": [0]}), path)
    with pytest.raises(BadInput, match=r"t\.parquet: row 1: gpus"):
        load_trace(path)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(BadInput, match="not readable as Parquet"):
        load_trace(path)


@pytest.mark.parametrize(
    "text",
    [
        "# format: ganger.trace/2\nsubmitted,duration,gpus\n0,1,1\n",
        '{"format": "ganger.trace/2"}\n{"submitted": 0}\n',
    ],
)
def test_newer_versions_are_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="newer than this Ganger reads"):
        text_of(tmp_path, text, "t.csv" if text.startswith("#") else "t.jsonl")


def test_skip_bad_keeps_the_good_rows_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "job,submitted,duration,gpus,after\na,0,1,1,\nb,0,x,1,\nc,1,1,1,b\nd,2,1,1,c\ne,3,1\na,4,1,1,\n"
        "f,5,1,1,a\n"
    )
    trace = load_trace(path, skip_bad=True)
    assert [trace.declared.name(i) for i in range(trace.jobs)] == ["a", "f"]
    assert [message.split(": ")[1] for message in trace.skipped] == [
        "line 6",
        "line 3",
        "line 7",
        "line 4",
        "line 5",
    ]


def test_a_cycle_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="jobs wait for each other: a -> b -> a"):
        text_of(tmp_path, "job,submitted,duration,gpus,after\na,0,1,1,b\nb,0,1,1,a\n")


def test_equal_submissions_keep_the_order_of_the_file(tmp_path: Path) -> None:
    rows = "".join(f"j{i},{i % 3},1,1\n" for i in range(30))
    trace = text_of(tmp_path, "job,submitted,duration,gpus\n" + rows)
    expected = [f"j{i}" for third in range(3) for i in range(30) if i % 3 == third]
    assert trace.declared.names == expected


def test_many_chunks_are_one_trace(tmp_path: Path) -> None:
    n = 40_000
    rows = "".join(f"{i},{i % 7 + 1},{2 ** (i % 4)},t{i % 5}\n" for i in range(n))
    trace = text_of(tmp_path, "submitted,duration,gpus,tenant\n" + rows)
    assert trace.jobs == n
    assert trace.declared.tenants[trace.declared.tenant[n - 1]] == f"t{(n - 1) % 5}"
    with pytest.raises(BadInput, match=f"line {n + 2}: gpus"):
        text_of(tmp_path, "submitted,duration,gpus,tenant\n" + rows + "0,1,0,a\n")


def test_swf_keeps_what_it_has_room_for(tmp_path: Path) -> None:
    first = load_trace(SAMPLES["own"].write(tmp_path))
    save_trace(first, tmp_path / "out.swf")
    again = load_trace(tmp_path / "out.swf")
    assert again.duration.tolist() == first.duration.tolist()
    assert again.declared.after == first.declared.after == {1: (0,)}
    for column in ("gpus", "submitted", "estimate"):
        ours, theirs = getattr(first.declared, column)[:2], getattr(again.declared, column)[:2]
        assert ours.tolist() == theirs.tolist()


def test_unwritable_things_are_refused(tmp_path: Path) -> None:
    trace = text_of(tmp_path, "submitted,duration,gpus,kind\n0,,1,serve\n")
    with pytest.raises(BadInput, match="services"):
        save_trace(trace, tmp_path / "x.swf")
    with pytest.raises(BadInput, match="cannot be written"):
        save_trace(trace, tmp_path / "x.csv", "philly")
    with pytest.raises(BadInput, match="cannot be written"):
        save_trace(trace, tmp_path / "none" / "x.csv")
    two_roles = JobSpec(name="a", shape=Shape((Role("ps"), Role("worker"))))
    with pytest.raises(BadInput, match="several roles"):
        save_trace(Trace(declare([two_roles]), np.ones(1, np.int64)), tmp_path / "x.csv")
    bad_name = JobSpec(name="a\nb")
    with pytest.raises(BadInput, match="control characters"):
        save_trace(Trace(declare([bad_name]), np.ones(1, np.int64)), tmp_path / "x.csv")


def test_every_column_is_documented() -> None:
    from ganger.workloads.readers import ganger_trace as own

    page = Path(__file__).parents[2] / "docs" / "trace-format.md"
    for column in COLUMNS:
        assert column in (own.__doc__ or "")
        assert f"`{column}`" in page.read_text(encoding="utf-8")
