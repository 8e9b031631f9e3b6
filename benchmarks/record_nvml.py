"""Records what NVML says of a GPU while small nets are trained on it whose step times are known.

`python3 benchmarks/record_nvml.py FOLDER` needs one NVIDIA GPU, torch and pynvml, and nothing of
Ganger. It changes no setting of the device. It writes `NAME.csv` for each net, in three minutes in
all: lines that begin with `#` say on which device, when, how, and what step times were measured
(seconds, each from one synchronised end to the next); then a row for each sample: seconds since the
first sample, watts (of the moment where the driver knows them), watts (the driver's mean), percent
of time in which kernels ran, percent in which memory was read or written, MHz of the
multiprocessors. The period detector of `gpoeo` is judged on such files.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pynvml
import torch
from torch import nn

INSTANT = getattr(pynvml, "NVML_FI_DEV_POWER_INSTANT", 186)
"""Watts of the moment; `nvmlDeviceGetPowerUsage` is a mean over a second on newer devices."""
HEADER = "seconds,watts,mean_watts,gpu_percent,memory_percent,mhz"


class Case(NamedTuple):
    """A net to train: `step` seconds are wanted of one step, of which the host has `idle` (reading
    its input) while the device waits; a checkpoint is written every `every` steps (0: never);
    `then` seconds are wanted of the steps of the second half (0: as before)."""

    name: str
    net: Callable[[], nn.Module]
    shape: tuple[int, ...]
    step: float
    idle: float
    every: int = 0
    then: float = 0.0


def convolutional() -> nn.Module:
    """A small residual-free net for images of 64 x 64."""
    sizes = (3, 64, 128, 256, 256)
    layers: list[nn.Module] = []
    for size, wider in pairwise(sizes):
        layers += [nn.Conv2d(size, wider, 3, 2, 1), nn.BatchNorm2d(wider), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def perceptron() -> nn.Module:
    """Four dense layers."""
    wide = [nn.Linear(2048, 2048), nn.ReLU()] * 3
    return nn.Sequential(*wide, nn.Linear(2048, 10))


class Recurrent(nn.Module):
    """Two layers of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(256, 512, 2, batch_first=True)
        self.out = nn.Linear(512, 10)

    def forward(self, series: torch.Tensor) -> Any:
        """The class of a series."""
        return self.out(self.cells(series)[0][:, -1])


class Attentive(nn.Module):
    """Four layers of a transformer's encoder."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 4)
        self.out = nn.Linear(512, 10)

    def forward(self, tokens: torch.Tensor) -> Any:
        """The class of a text."""
        return self.out(self.layers(tokens).mean(1))


CASES = (
    Case("cnn", convolutional, (256, 3, 64, 64), 0.2, 0.06),
    Case("lstm", Recurrent, (128, 64, 256), 0.35, 0.1),
    Case("mlp", perceptron, (4096, 2048), 0.6, 0.25),
    Case("transformer", Attentive, (64, 128, 512), 1.0, 0.3, every=5),
    Case("cnn-slow", convolutional, (512, 3, 64, 64), 1.7, 0.6),
    Case("transformer-slow", Attentive, (128, 128, 512), 3.0, 0.9),
    Case("lstm-shift", Recurrent, (128, 64, 256), 0.4, 0.15, then=0.8),
)


class Watch(threading.Thread):
    """Samples a device every `gap` seconds until it is told to end."""

    def __init__(self, device: Any, gap: float) -> None:
        super().__init__(daemon=True)
        self.device, self.gap = device, gap
        self.rows: list[tuple[float, float, float, int, int, int]] = []
        self.over = threading.Event()

    def run(self) -> None:
        """Sample."""
        due = time.perf_counter()
        while not self.over.wait(max(due - time.perf_counter(), 0.0)):
            due += self.gap
            use = pynvml.nvmlDeviceGetUtilizationRates(self.device)
            mean = pynvml.nvmlDeviceGetPowerUsage(self.device) / 1000
            mhz = pynvml.nvmlDeviceGetClockInfo(self.device, pynvml.NVML_CLOCK_SM)
            row = (time.perf_counter(), self._now(mean), mean, use.gpu, use.memory, mhz)
            self.rows.append(row)

    def _now(self, mean: float) -> float:
        try:
            [value] = pynvml.nvmlDeviceGetFieldValues(self.device, [INSTANT])
        except pynvml.NVMLError:
            return mean
        return mean if value.nvmlReturn != 0 else int(value.value.uiVal) / 1000


class Training:
    """A net in training, on data that are drawn once."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        self.net = case.net().cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.01)
        self.batch = torch.randn(*case.shape, device="cuda")
        self.target = torch.randint(0, 10, case.shape[:1], device="cuda")

    def step(self, parts: int, idle: float) -> None:
        """One step: input that the device waits for, gradients of `parts` batches, their sum."""
        time.sleep(idle)
        self.optimizer.zero_grad()
        for _ in range(parts):
            nn.functional.cross_entropy(self.net(self.batch), self.target).backward()
        self.optimizer.step()
        torch.cuda.synchronize()

    def parts(self, seconds: float) -> int:
        """How many batches take so long, after a few to warm up."""
        self.step(10, 0.0)
        began = time.perf_counter()
        self.step(20, 0.0)
        return max(round(seconds * 20 / (time.perf_counter() - began)), 1)


def lengths(case: Case) -> Iterator[float]:
    """Seconds wanted of each step in turn: twelve steps at least, fifteen seconds at least."""
    halves = [case.step, case.then] if case.then else [case.step]
    for wanted in halves:
        for _ in range(max(12, round(15 / wanted / len(halves)))):
            yield wanted


def record(case: Case, device: Any, folder: Path) -> str:
    """Train, sample, write; what was measured, in words."""
    training = Training(case)
    idle = case.idle / case.step
    parts = {wanted: training.parts(wanted * (1 - idle)) for wanted in set(lengths(case))}
    watch = Watch(device, min(max(case.step / 20, 0.02), 0.1))
    ends: list[float] = []
    watch.start()
    for at, wanted in enumerate(lengths(case), 1):
        training.step(parts[wanted], wanted * idle)
        if case.every and at % case.every == 0:
            torch.save(training.net.state_dict(), folder / "checkpoint")
            (folder / "checkpoint").unlink()
        ends.append(time.perf_counter())
    watch.over.set()
    watch.join()
    took = [after - before for before, after in pairwise(ends)]
    zero = watch.rows[0][0]
    head = [
        f"# device: {torch.cuda.get_device_name(0)}, driver {pynvml.nvmlSystemGetDriverVersion()}",
        f"# date: {datetime.now(UTC).date()}, torch {torch.__version__}",
        f"# command: python3 benchmarks/record_nvml.py; net {case.name}, batch {case.shape[0]}",
        f"# median_step: {statistics.median(took):.4f}",
        f"# steps: {' '.join(f'{each:.3f}' for each in took)}",
        f"# step_ends: {' '.join(f'{each - zero:.3f}' for each in ends)}",
        HEADER,
    ]
    rows = [
        f"{at - zero:.3f},{now:.1f},{mean:.1f},{gpu},{memory},{mhz}"
        for at, now, mean, gpu, memory, mhz in watch.rows
    ]
    (folder / f"{case.name}.csv").write_text("\n".join(head + rows) + "\n")
    return f"{case.name}: {len(rows)} samples, median step {statistics.median(took):.4f} s"


def main() -> None:
    """Record every net."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if not torch.cuda.is_available():
        sys.exit("torch sees no NVIDIA GPU on this machine")
    folder.mkdir(parents=True, exist_ok=True)
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    for case in CASES:
        print(record(case, device, folder), flush=True)


if __name__ == "__main__":
    main()
