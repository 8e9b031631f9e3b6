"""Nodes that fail while a trace is replayed: read from a file, drawn, and seen in the result."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ganger.cli.main import cli
from ganger.core.errors import BadInput
from ganger.core.units import DAY, HOUR, NEVER, SECOND
from ganger.lab.outages import read_outages
from ganger.sim.rows import Outage
from worlds import cluster, job, trace_of

TRACE = trace_of([job("a", 0, 100), job("b", 1000, 100)])


def test_a_file_names_nodes_by_name_or_number(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text("node,down,up\nnode-1,1h,2h\n0,30s,\n")
    assert read_outages(str(path), cluster(2), TRACE, 0) == (
        Outage(0, 30 * SECOND, NEVER),
        Outage(1, HOUR, 2 * HOUR),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("node,down\n0,1h\n", ":1: no column 'up'"),
        ("node,down,up\nx,1h,2h\n", ":2: node: no node 'x'"),
        ("node,down,up\n7,1h,2h\n", ":2: node: no node '7'"),
        ("node,down,up\n0,soon,2h\n", ":2: down"),
        ("node,down,up\n0,2h,1h\n", ":2: it is up before"),
        ("node,down,up\n0,1h,3h\n0,2h,4h\n", "two outages of node 0 overlap"),
    ],
)
def test_what_a_file_cannot_say(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=told):
        read_outages(str(path), cluster(2), TRACE, 0)


@pytest.mark.parametrize("text", ["nowhere.csv", "mtbf=1h", "mtbf=0s,mttr=1h", "often=1h,mttr=1h"])
def test_what_cannot_be_drawn(text: str) -> None:
    with pytest.raises(BadInput):
        read_outages(text, cluster(2), TRACE, 0)


def test_drawn_outages_have_the_means_that_were_asked_for() -> None:
    trace = trace_of([job("a", 0, 1), job("b", 1000 * 86400, 1)])
    found = read_outages("mtbf=10d,mttr=12h", cluster(20), trace, 3)
    up = [
        after.down - before.up
        for before, after in itertools.pairwise(found)
        if before.node == after.node
    ]
    down = [outage.up - outage.down for outage in found]
    assert sum(up) / len(up) == pytest.approx(10 * DAY, rel=0.1)
    assert sum(down) / len(down) == pytest.approx(12 * HOUR, rel=0.1)
    assert found == read_outages("mtbf=10d,mttr=12h", cluster(20), trace, 3)
    assert found != read_outages("mtbf=10d,mttr=12h", cluster(20), trace, 4)


def test_a_failed_node_costs_what_was_done_since_the_last_checkpoint(tmp_path: Path) -> None:
    jobs, outages = tmp_path / "jobs.csv", tmp_path / "outages.csv"
    jobs.write_text("job,submitted,duration,gpus\na,0,100,1\n")
    outages.write_text("node,down,up\n0,50s,60s\n")
    for every, lasts in (("0s", 160), ("20s", 120)):
        told = CliRunner().invoke(
            cli,
            [
                "simulate",
                str(jobs),
                "--cluster",
                "1x1xV100",
                "--outages",
                str(outages),
                "--checkpoint-every",
                every,
                "--json",
            ],
        )
        assert told.exit_code == 0, told.output
        metrics = json.loads(told.stdout)["runs"][0]["metrics"]
        assert metrics["jct_mean_seconds"] == pytest.approx(lasts)
