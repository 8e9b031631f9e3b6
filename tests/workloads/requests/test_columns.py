"""Streams of requests: chunks of any length, our own files, figures in one pass."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.state.names import Names
from ganger.core.units import NEVER, SECOND
from ganger.workloads.requests import own, processes
from ganger.workloads.requests.columns import Chunk, Requests, joined
from ganger.workloads.requests.formats import load_requests
from ganger.workloads.requests.statistics import describe
from ganger.workloads.requests.synthetic import Mix, generated

LOAD = processes.modulated([20, 900], [2.0, 0.5])
MIX = Mix(
    models=12,
    zipf=1.1,
    tenants=3,
    slo=250_000,
    items=2,
    prompt_tokens=90,
    output_tokens=9,
    inputs=50,
)


def test_the_length_of_chunks_changes_no_request() -> None:
    made = generated(LOAD, seed=2, duration=500.0, mix=MIX)
    whole = made.gather()
    assert len(whole) > 3 * processes.BLOCK
    for rows in (999, processes.BLOCK, 1 << 20):
        chunks = list(made.chunks(rows))
        assert {len(chunk) for chunk in chunks[:-1]} <= {rows}
        again = joined(chunks)
        for name, column in whole.columns.items():
            assert (column == again.columns[name]).all(), name


def test_a_long_stream_needs_no_more_memory_than_a_short_one() -> None:
    def most_bytes(requests: int) -> int:
        tracemalloc.start()
        try:
            count = sum(map(len, generated(LOAD, most=requests, mix=MIX).chunks()))
            assert count == requests
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert most_bytes(2_000_000) < 1.2 * most_bytes(400_000)


def test_a_written_file_is_read_back_exactly(tmp_path: Path) -> None:
    made = generated(LOAD, seed=4, duration=150.0, mix=MIX)
    for name in ("r.csv", "r.csv.gz"):
        assert own.write(made, tmp_path / name) == len(made.gather())
        found = load_requests(tmp_path / name)
        before, after = made.gather(), found.gather()
        assert list(before.columns) == list(after.columns)
        for column in before.columns:
            if column not in ("model", "tenant"):
                assert (before.columns[column] == after.columns[column]).all(), column
        for table, codes in (("models", "model"), ("tenants", "tenant")):
            words = [
                [getattr(each, table)[code] for code in rows.columns[codes].tolist()]
                for each, rows in ((made, before), (found, after))
            ]
            assert words[0] == words[1]
    plain = (tmp_path / "r.csv").read_bytes()
    zipped = (tmp_path / "r.csv.gz").read_bytes()
    assert gzip.decompress(zipped) == plain
    assert zipped[4:8] == bytes(4)  # no time of its own
    own.write(found, tmp_path / "again.csv.gz")
    assert (tmp_path / "again.csv.gz").read_bytes() == (tmp_path / "r.csv.gz").read_bytes()


def test_a_column_that_only_some_chunks_have_is_filled_up() -> None:
    at, model = np.array([1, 2]), np.zeros(2, np.int32)
    full = Chunk(at, model, at + 1, model + 1, model + 3, model + 4, model + 5, at, model)
    both = joined([Chunk(at, model), full])
    assert {name: column.tolist() for name, column in both.columns.items()} == {
        "arrival": [1, 2, 1, 2],
        "model": [0] * 4,
        "deadline": [NEVER, NEVER, 2, 3],
        "tenant": [0, 0, 1, 1],
        "items": [1, 1, 3, 3],
        "prompt_tokens": [0, 0, 4, 4],
        "output_tokens": [0, 0, 5, 5],
        "input": [-1, -1, 1, 2],
        "label": [-1, -1, 0, 0],
    }
    with pytest.raises(BadInput, match="requests are out of order"):
        Requests.of(both, Names(["a"]))


ROWS = st.lists(
    st.tuples(
        st.integers(0, 10**17 // 2),
        st.text("ab,\"'# é;", min_size=1, max_size=5).filter(str.strip),
        st.none() | st.integers(0, 10**9),
        st.integers(1, 2**31 - 1),
        st.integers(-1, 2**52),
        st.integers(-1, 2**31 - 1),
    ),
    min_size=1,
    max_size=30,
)


@given(ROWS)
def test_any_requests_are_written_and_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("any") / "r.csv"
    models: Names[str] = Names()
    rows.sort(key=lambda row: row[0])
    at = np.array([row[0] for row in rows])
    chunk = Chunk(
        at,
        np.array([models.code(row[1].strip()) for row in rows], np.int32),
        deadline=np.array([NEVER if r[2] is None else r[0] + r[2] for r in rows]),
        items=np.array([row[3] for row in rows], np.int32),
        input=np.array([row[4] for row in rows]),
        label=np.array([row[5] for row in rows], np.int32),
    )
    own.write(Requests.of(chunk, models), path)
    found = load_requests(path)
    again = found.gather()
    assert [found.models[code] for code in again.model] == [models[code] for code in chunk.model]
    for name in ("items", "input", "label"):
        assert again.columns[name].tolist() == chunk.columns[name].tolist()
    for name in ("arrival", "deadline"):  # beyond 285 years a float has no microseconds
        apart = again.columns[name] - chunk.columns[name]
        assert np.abs(apart).max() <= (16 if at.max() > 2**52 else 0)


def own_file(tmp_path: Path, text: str) -> Requests:
    (tmp_path / "r.csv").write_text(text)
    return load_requests(tmp_path / "r.csv")


def test_a_file_as_people_write_it(tmp_path: Path) -> None:
    found = own_file(
        tmp_path,
        """# format: ganger.requests/1
arrival, model, slo, tenant, x_remark
0.5,resnet,100ms,,first

1,bert,,ann,"with, a comma"
1.25,resnet,2s,bob,
""",
    )
    rows = found.gather()
    assert rows.arrival.tolist() == [500_000, 1_000_000, 1_250_000]
    assert [found.models[code] for code in rows.model] == ["resnet", "bert", "resnet"]
    assert rows.deadline is not None
    assert rows.deadline.tolist() == [600_000, NEVER, 3_250_000]
    assert rows.tenant is not None
    assert [found.tenants[code] for code in rows.tenant] == ["", "ann", "bob"]


def test_comments_and_prompts_without_output(tmp_path: Path) -> None:
    found = own_file(tmp_path, "# mine\n\n# more\narrival,output_tokens,prompt_tokens\n1,0,5\n")
    assert found.gather().columns["output_tokens"].tolist() == [0]
    assert [found.models[code] for code in found.gather().model] == ["model"]


def test_dates_count_from_the_first(tmp_path: Path) -> None:
    text = "arrival,deadline\n2024-05-01 12:00:00.25,\n2024-05-01 12:00:01,2024-05-01 12:00:03\n"
    for zone in ("", "Z", "+00:00", "+02:00"):
        rows = own_file(
            tmp_path,
            text.replace("5,", f"5{zone},").replace("1,2", f"1{zone},2").replace("03", f"03{zone}"),
        ).gather()
        assert rows.arrival.tolist() == [0, 750_000]
        assert rows.deadline is not None
        assert rows.deadline.tolist() == [NEVER, 2_750_000]


BAD = {
    "": "r.csv: the file is empty",
    "\n\n": "r.csv: the file is empty",
    "# format: ganger.requests/1\n": "r.csv: it has no header",
    "arrival,model\n": "r.csv: it holds no rows",
    "# format: ganger.requests/2\narrival\n1\n": "newer than this Ganger reads",
    "model\na\n": "no known format begins with 'model'",
    "arrival,modle\n1,a\n": "line 1: unknown column 'modle' (did you mean 'model'?)",
    "arrival,arrival\n1,1\n": "line 1: column 'arrival' is listed twice",
    "arrival\n1\n0.5\n": "line 3: arrival: it arrives before the request above",
    "arrival\n-1\n": "line 2: arrival: '-1' is negative",
    "arrival\nnan\n": "line 2: arrival: 'nan' is not a finite number",
    "arrival\n1e300\n": "line 2: arrival: '1e300' is not a valid time",
    "arrival\nsoon\n": "line 2: arrival: 'soon' is not a number",
    "arrival\n1\n2024-05-01 12:00:00\n": "line 3: arrival",
    "arrival\n2024-05-01 12:00:00\n2024-13-01 12:00:00\n": "line 3: arrival",
    "arrival,model\n1,\n": "line 2: model: it is empty",
    "arrival,model\n1,a\x01b\n": "line 2: model: 'a\\x01b' holds control characters",
    "arrival,model\n1,a,2\n": "line 2: 3 fields where the header has 2",
    "arrival,deadline\n2,1\n": "line 2: deadline: it is before the arrival",
    "arrival,slo\n2,0\n": "line 2: slo: it is 0",
    "arrival,slo\n2,-1\n": "line 2: slo",
    "arrival,slo,deadline\n2,1,5\n": "line 2: slo: there is a deadline, too",
    "arrival,items\n2,0\n": "line 2: items: '0' is out of range",
    "arrival,items\n2,1.5\n": "line 2: items: '1.5' is not a whole number",
    "arrival,prompt_tokens\n2,-5\n": "line 2: prompt_tokens: '-5' is out of range",
    "arrival,output_tokens\n2,9e9\n": "line 2: output_tokens: '9e9' is out of range",
    "arrival,input\n2,dog\n": "line 2: input: 'dog' is not a number",
    'arrival,model\n2,"a\n': "line 2: no valid row",
    "a\0b": "it is not text",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput) as error:
        own_file(tmp_path, text).gather()
    assert BAD[text] in str(error.value)
    assert error.value.mend


def test_bad_rows_are_left_out_and_counted_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("arrival,model\n0,a\nx,y,z\n2,\nz,\n1,b\n3,c\n2,d\n")
    found = load_requests(path, skip_bad=True)
    for _ in range(2):  # the second reading counts anew
        rows = found.gather()
        assert [found.models[code] for code in rows.model] == ["a", "b", "c"]
        assert found.remarks.left_out == {"they are malformed": 4}
        assert len(found.remarks.messages) == 5


def test_many_bad_rows_keep_few_messages(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("arrival\n" + "x\n" * 50_000 + "1\n")
    found = load_requests(path, skip_bad=True)
    assert found.gather().arrival.tolist() == [SECOND]
    assert found.remarks.left_out == {"they are malformed": 50_000}
    assert len(found.remarks.messages) == 10


def test_disorder_can_be_sorted(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("arrival,model\n3,a\n1,b\n2,c\n1,d\n")
    found = load_requests(path, sort=True)
    rows = found.gather()
    assert rows.arrival.tolist() == [1_000_000, 1_000_000, 2_000_000, 3_000_000]
    assert [found.models[code] for code in rows.model] == ["b", "d", "c", "a"]
    path.write_text(
        "arrival,deadline\n2024-05-01T12:00:02,\n2024-05-01T12:00:00,2024-05-01T12:01\n"
    )
    rows = load_requests(path, sort=True).gather()
    assert rows.arrival.tolist() == [0, 2_000_000]
    assert rows.deadline is not None
    assert rows.deadline.tolist() == [60_000_000, NEVER]


def test_lines_keep_their_numbers_across_parts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("arrival,model\n" + "1,abcdefgh\n" * 300_000 + "x,y\n")
    with pytest.raises(BadInput, match=r"line 300002: arrival: 'x' is not a number"):
        load_requests(path).gather()
    path.write_bytes(b"arrival,model\n" + b"1,abcdefgh\n" * 300_000 + b"1,\xff\n")
    with pytest.raises(BadInput, match=r"line 300002: the text is not UTF-8"):
        load_requests(path).gather()


def test_a_cut_gzip_is_said(tmp_path: Path) -> None:
    path = tmp_path / "r.csv.gz"
    path.write_bytes(gzip.compress(b"arrival\n" + b"1\n" * 900_000)[:-400])
    with pytest.raises(BadInput, match="cut short or damaged"):
        load_requests(path).gather()


def test_a_window_of_time(tmp_path: Path) -> None:
    made = generated(LOAD, seed=4, duration=100.0, mix=MIX)
    whole, cut = made.gather(), made.between(30 * SECOND, 60 * SECOND).gather()
    inside = whole.take((whole.arrival >= 30 * SECOND) & (whole.arrival < 60 * SECOND))
    assert (cut.arrival == inside.arrival - 30 * SECOND).all()
    assert cut.deadline is not None
    assert (cut.deadline == cut.arrival + 250_000).all()
    assert (
        made.between(0, 30 * SECOND).gather().arrival == whole.arrival[whole.arrival < 30 * SECOND]
    ).all()
    with pytest.raises(BadInput, match="no time is left"):
        made.between(5, 5)


def test_figures_in_one_pass_are_those_of_all_rows() -> None:
    made = generated(LOAD, seed=9, duration=3000.0, mix=MIX)
    rows, facts = made.gather(), describe(made)
    gap = np.diff(rows.arrival)
    assert facts["requests"] == len(rows)
    assert facts["gap_cv"] == pytest.approx(gap.std() / gap.mean())
    span = (rows.arrival[-1] - rows.arrival[0]) / SECOND
    assert facts["requests_per_second"] == pytest.approx((len(rows) - 1) / span)
    assert sum(facts["requests_by_window"]) == len(rows)
    by_window = np.bincount((rows.arrival - rows.arrival[0]) // SECOND)
    assert facts["window_seconds"] == 1.0
    assert facts["requests_by_window"] == by_window.tolist()
    assert facts["peak_requests_per_second"] == by_window.max()
    assert rows.prompt_tokens is not None
    assert facts["prompt_tokens"]["mean"] == pytest.approx(rows.prompt_tokens.mean())
    assert facts["prompt_tokens"]["max"] == rows.prompt_tokens.max()
    assert facts["prompt_tokens"]["p50"] == pytest.approx(np.median(rows.prompt_tokens), rel=0.03)
    assert facts["slo_seconds"]["p50"] == pytest.approx(0.25)
    assert facts["models"][0]["requests"] == np.bincount(rows.model).max()
    assert facts["tenant_count"] == 3
    assert rows.tenant is not None
    of_tenants = np.bincount(rows.tenant)[1:]
    assert [(row["name"], row["requests"]) for row in facts["tenants"]] == sorted(
        ((f"tenant-{i}", n) for i, n in enumerate(of_tenants.tolist())), key=lambda row: -row[1]
    )
    assert sum(row["fraction"] for row in facts["models"]) == pytest.approx(1)
    assert facts["with_deadline"] == len(rows)


def test_long_spans_have_wide_windows() -> None:
    made = generated(processes.constant(0.5), duration=100_000.0)
    facts = describe(made)
    assert facts["window_seconds"] == 32.0
    assert sum(facts["requests_by_window"]) == facts["requests"]
    assert facts["peak_requests_per_second"] < 2


def test_models_that_nobody_asks_for_are_not_counted() -> None:
    facts = describe(generated(processes.constant(9.0), most=10, mix=Mix(models=1000)))
    assert facts["model_count"] <= 10
    assert sum(row["requests"] for row in facts["models"]) == 10


def test_sizes_of_few_requests_are_exact(tmp_path: Path) -> None:
    facts = describe(own_file(tmp_path, "arrival,items\n0,2\n1,4\n2,9\n"))
    assert facts["items"]["mean"] == 5
    assert (facts["items"]["p50"], facts["items"]["max"]) == (4, 9)


def test_quantiles_of_many_sizes_are_of_all_of_them() -> None:
    size = np.arange(1, 500_001, dtype=np.int32)
    rows = Chunk(np.arange(500_000), np.zeros(500_000, np.int32), items=size)
    found = describe(Requests.of(rows, Names(["m"])))["items"]
    for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert found[name] == pytest.approx(500_000 * part, rel=1e-3)


def test_one_request_and_none_have_figures(tmp_path: Path) -> None:
    facts = describe(own_file(tmp_path, "arrival\n7\n"))
    assert (facts["requests"], facts["requests_per_second"], facts["gap_cv"]) == (1, None, None)
    assert (facts["first_seconds"], facts["span_seconds"]) == (7, 0)
    nothing = Requests(lambda _: iter(()))
    assert describe(nothing)["requests"] == 0
    assert own.write(nothing, tmp_path / "none.csv") == 0
    assert (tmp_path / "none.csv").read_text() == "# format: ganger.requests/1\narrival,model\n"
