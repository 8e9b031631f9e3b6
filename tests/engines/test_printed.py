"""What a trial prints of its metric is a report."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engines.conformance import Play, on
from engines.rig import LocalBench
from ganger.core.events import Evaluated, Finished
from ganger.core.plan import Start
from ganger.engines.agent.attempt.printed import Printed


def told(text: str, metric: str = "acc") -> list[tuple[float, float]]:
    """The step and the value of each report."""
    printed = Printed(metric)
    return [(each["step"], each["metrics"][metric]) for each in printed.feed(text.encode())]


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ("acc=0.93", (1, 0.93)),
        ("epoch 3: acc=0.93 loss=0.2", (3, 0.93)),
        ("Epoch: 3 | acc : 9.3e-1", (3, 0.93)),
        ("step=12 val_acc=0.5 acc=.25", (12, 0.25)),
        ('{"acc": 0.5, "epoch": 7}', (7, 0.5)),
        ('{"acc": "0.5"}', (1, 0.5)),
        ("acc=-3", (1, -3.0)),
        ('{"acc": 1' + "0" * 400 + "}", (1, float("inf"))),
        ("acc=0.93.", (1, 0.93)),
        ("ACC=0.93", (1, 0.93)),
        ("{'acc': 0.5, 'epoch': 1.0}", (1, 0.5)),
        ("acc=0.1 | acc=0.5", (1, 0.5)),
        ("\r10% acc=0.1\r50% acc=0.2".rpartition("\r")[2], (1, 0.2)),
        ("acc=inf", (1, float("inf"))),
    ],
)
def test_a_line_that_names_the_metric_and_a_number_is_a_report(
    line: str, report: tuple[float, float]
) -> None:
    assert told(line + "\n") == [report]


@pytest.mark.parametrize(
    "line",
    [
        "val_acc=0.9", "test-acc=0.9", "accuracy=0.9", "acc=", "acc = high", "acc 0.9",
        '{"acc": [1]}', '{"acc": ', '{"loss": 1}', "acc=1.2.3", "acc=0.9x", "acc=1,234",
 "[" * 4000, "{" * 4000,
    ],
)  # fmt: skip
def test_any_other_line_is_none(line: str) -> None:
    assert told(line + "\n") == []


def test_lines_may_come_in_pieces_and_are_counted_where_they_name_no_step() -> None:
    printed, reports = Printed("acc"), list[dict[str, Any]]()
    for piece in (b"ac", b"c=0.1\nnoise\nacc=0", b".2\nepoch 9 acc=0.3\n", b"acc=0.4"):
        reports += printed.feed(piece)
    assert [each["step"] for each in reports] == [1, 2, 9.0]
    assert [each["metrics"]["acc"] for each in reports] == [0.1, 0.2, 0.3]
    assert [each["step"] for each in printed.feed(b"\n")] == [4]


def test_a_bar_of_progress_that_is_drawn_again_is_another_line() -> None:
    assert told("\r10% acc=0.1\r50% acc=0.2\r100% acc=0.3\n") == [(1, 0.1), (2, 0.2), (3, 0.3)]


@pytest.mark.parametrize(
    "line",
    ["acc=" + "1" * 4000 + "x", "acc=1 step" + " " * 4000, "acc=" * 1000,
     "acc=1 " + "epoch  " * 500, "acc" + " " * 4000, "acc=1e" + "1" * 4000],
)  # fmt: skip
def test_no_line_takes_long(line: str) -> None:
    """A thousand of them take less CPU than one did under patterns that try digits twice."""
    began = time.process_time()
    told((line + "\n") * 20)
    assert time.process_time() - began < 2.0


def test_a_line_without_end_takes_no_memory_and_is_no_report() -> None:
    printed = Printed("acc")
    for _ in range(100):
        assert not list(printed.feed(b"acc=0.5 " * 1000))
    assert sys.getsizeof(printed._rest) < 20_000
    assert not list(printed.feed(b"\n"))
    assert len(list(printed.feed(b"acc=0.5\n"))) == 1


PRINTS = "import sys\nfor at in range(1, {n} + 1): print(f'epoch {{at}} acc={{at / 1000}}')"


def reports_of(play: Play, code: str, **more: Any) -> list[tuple[float, float | None]]:
    """What a job reported that runs this code, until it was over."""
    job, bench = play.number(), play.bench
    assert isinstance(bench, LocalBench)
    bench.launch(job, sys.executable, "-c", code, counted=False, metric="acc", **more)
    play.apply(Start(job, 1, (on(0, 0),)))
    play.until(Finished, job)
    return [(event.epoch, event.value) for event in play.find(Evaluated, job)]


def test_every_line_arrives_once_and_in_order_however_fast_it_is_printed(play: Play) -> None:
    assert reports_of(play, PRINTS.format(n=260), printed=True) == [
        (at, at / 1000) for at in range(1, 261)
    ]


def test_the_last_line_counts_without_an_end_and_no_number_is_too_long(play: Play) -> None:
    code = "print('{\"acc\": 1' + '0' * 400 + '}'); print('acc=0.5', end='')"
    assert reports_of(play, code, printed=True) == [(1, None), (2, 0.5)]


def test_what_is_printed_at_once_beside_a_stream_that_ends_is_heard(
    play: Play, tmp_path: Path
) -> None:
    code = "import os\n" + PRINTS.format(n=300) + "\nsys.stdout.flush()\nos.close(2)"
    files = {name: str(tmp_path / name) for name in ("output", "error")}
    assert len(reports_of(play, code, printed=True, **files)) == 300


def test_where_it_is_not_wanted_or_the_sdk_reports_nothing_is_read(play: Play) -> None:
    assert reports_of(play, PRINTS.format(n=3)) == []
    both = "import time\nfrom ganger import sdk\nsdk.report(1, acc=0.5); time.sleep(.2)\n"
    assert reports_of(play, both + PRINTS.format(n=3), printed=True) == [(1, 0.5)]


def test_other_metrics_of_the_same_line_are_reported_with_it() -> None:
    """One that stands alone in a line is no report."""
    printed = Printed("acc", ("latency", "params"))
    said = b"""epoch 1: acc=0.5 latency=12.5 params=7
latency=3
{"acc": 0.75, "params": 9, "other": 1}
acc: 0.8, latency: broken
"""
    assert [report["metrics"] for report in printed.feed(said)] == [
        {"acc": 0.5, "latency": 12.5, "params": 7.0},
        {"acc": 0.75, "params": 9.0},
        {"acc": 0.8},
    ]
