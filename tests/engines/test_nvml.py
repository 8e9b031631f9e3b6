"""What NVML tells, by a library that says what the tests want."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ganger.engines.agent.meter import Meter, Running, by_nvml
from ganger.engines.agent.protocol import Key
from ganger.engines.gpus import find_nodes


class NVMLError(Exception):
    """What the library raises."""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine with two A100 and a V100, of which the second does not tell its load."""
    names: list[Any] = ["NVIDIA A100-SXM4-40GB", b"NVIDIA A100-SXM4-40GB", "Tesla V100-PCIE-16GB"]
    loads: list[int | None] = [25, None, 0]

    def rates(device: int) -> SimpleNamespace:
        load = loads[device]
        if load is None:
            raise NVMLError("not supported")
        return SimpleNamespace(gpu=load)

    made = SimpleNamespace(
        NVMLError=NVMLError,
        open=0,
        names=names,
        loads=loads,
        nvmlDeviceGetCount=lambda: len(names),
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda device: names[device],
        nvmlDeviceGetUtilizationRates=rates,
    )

    def counted(by: int) -> None:
        made.open += by

    made.nvmlInit, made.nvmlShutdown = lambda: counted(1), lambda: counted(-1)
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def test_gpus_are_found_by_type_in_their_order(library: SimpleNamespace) -> None:
    found = find_nodes("", "box")
    assert [(node.name, node.gpus, node.gpu_type) for node in found] == [
        ("box-A100", 2, "A100"),
        ("box-V100", 1, "V100"),
    ]
    assert library.open == 0, "the library was let go again"


def test_a_machine_without_a_driver_has_none(
    library: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise NVMLError("driver not loaded")

    library.nvmlInit = fails
    assert [(node.gpus, node.gpu_type) for node in find_nodes("", "box")] == [(0, "")]
    assert by_nvml() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)  # it cannot be imported
    assert [(node.gpus, node.gpu_type) for node in find_nodes("", "box")] == [(0, "")]
    assert by_nvml() is None


def test_the_busiest_gpu_of_a_part_counts(library: SimpleNamespace) -> None:
    look = by_nvml()
    assert look is not None
    assert look() == [0.25, 1.0, 0.0], "what does not tell counts as busy"
    meter = Meter(look)
    parts = [
        Running(Key(1, 1), (), (0, 2)),
        Running(Key(2, 1), (), (2,)),
        Running(Key(3, 1), (), (1,)),
    ]
    assert meter.look(parts) == []
    assert [used.gpu for used in meter.look(parts)] == [0.25, 0.0, 1.0]
    library.loads[2] = 90
    assert [used.gpu for used in meter.look(parts)] == [0.9, 0.9, 1.0]
