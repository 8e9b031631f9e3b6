"""The models file `papers`, from figures as they were published: `python benchmarks/papers.py`.

Each row below holds batch, mean and 99th percentile in milliseconds as its source prints them, or
batch and items per second. A models file has to rise with the batch, and no 99th percentile may be
below its mean. Where published figures do not, they are changed, and the row of the file says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from ganger.workloads.models.document import FORMAT, Device, Document, Latency, Load, Model
from ganger.workloads.models.shipped import shipped
from ganger.workloads.models.writing import write_models

NVIDIA: Final = "NVIDIA DeepLearningExamples, "
TF: Final = NVIDIA + "TensorFlow ResNet-50 v1.5, container 20.06"
BERT: Final = NVIDIA + "TensorFlow BERT for SQuAD, container 20.06"
RESNEXT: Final = NVIDIA + "PyTorch ResNeXt101-32x4d, container 20.06"
SE: Final = NVIDIA + "PyTorch SE-ResNeXt101-32x4d, container 21.03"
SSD: Final = NVIDIA + "PyTorch SSD300 v1.1, container 22.10"
TORCH: Final = "J. Johnson, cnn-benchmarks, Torch with cuDNN 5"
BUS_BYTES_PER_SECOND: Final = 12e9
"""Assumed of PCIe 3.0 with 16 lanes, for load times, which no source gives."""
ABOUT: Final = (
    "Latencies that others published, typed from the sources that each row names."
    " No source gives memory by batch. Load times are bytes over 12 GB/s, which is assumed of"
    " PCIe 3.0. Models on the device 'example' are the worked examples of papers: they run nowhere."
)


class Row(NamedTuple):
    """Published figures of one model on one device: of each batch its mean and, where published,
    its 99th percentile, in ms; with `rate`, batch, items per second and perhaps p99."""

    device: str
    source: str
    figures: str
    rate: bool = False


class Known(NamedTuple):
    """What is published of a model besides its latencies. `weights`: parameters of four bytes."""

    family: str
    weights: int = 0
    accuracy: float | None = None
    source: str = ""


ERRORS: Final = "top-1 error of ImageNet: torchvision 0.1 documentation"
SAME_PAGE: Final = "accuracy: published with the latency, 90 epochs"
NO_LABEL: Final = "size: Devlin et al. 2019"
MODELS: Final = {
    "resnet50": Known("imagenet", 25_557_032, 0.7701, SAME_PAGE),
    "resnet50-fp16": Known("imagenet", 25_557_032, 0.7699, SAME_PAGE),
    "resnext101": Known("imagenet", 44_177_704, 0.7940, SAME_PAGE),
    "resnext101-fp16": Known("imagenet", 44_177_704, 0.7943, SAME_PAGE),
    "se-resnext101": Known("imagenet", 48_955_416, 0.7993, SAME_PAGE),
    "se-resnext101-fp16": Known("imagenet", 48_955_416, 0.8004, SAME_PAGE),
    "ssd300": Known("ssd300"),
    "ssd300-fp16": Known("ssd300"),
    "bert-base-128": Known("bert-128", 110_000_000, None, NO_LABEL),
    "bert-base-128-fp16": Known("bert-128", 110_000_000, None, NO_LABEL),
    "bert-base-384": Known("bert-384", 110_000_000, None, NO_LABEL),
    "bert-base-384-fp16": Known("bert-384", 110_000_000, None, NO_LABEL),
    "bert-large-128": Known("bert-128", 340_000_000, None, NO_LABEL),
    "bert-large-128-fp16": Known("bert-128", 340_000_000, None, NO_LABEL),
    "bert-large-384": Known("bert-384", 340_000_000, None, NO_LABEL),
    "bert-large-384-fp16": Known("bert-384", 340_000_000, None, NO_LABEL),
    "alexnet": Known("imagenet", 61_100_840, 0.5655, ERRORS),
    "vgg16": Known("imagenet", 138_357_544, 0.7159, ERRORS),
    "vgg19": Known("imagenet", 143_667_240, 0.7238, ERRORS),
    "resnet18": Known("imagenet", 11_689_512, 0.6976, ERRORS),
    "resnet34": Known("imagenet", 21_797_672, 0.7330, ERRORS),
    "resnet50-torch": Known("imagenet", 25_557_032, 0.7615, ERRORS),
    "resnet101": Known("imagenet", 44_549_160, 0.7737, ERRORS),
    "resnet152": Known("imagenet", 60_192_808, 0.7831, ERRORS),
    "nexus-a": Known(""), "nexus-b": Known(""), "nexus-c": Known(""),
    "clipper-line": Known(""), "nanily-line": Known(""),
}  # fmt: skip
"""Every model, in the order of the file."""
ONE_BATCH: Final = "only batch 16 was published, and smaller ones count as that"
NEXUS: Final = "Shen et al. 2019 (Nexus), the packing example"

ROWS: Final[dict[str, list[Row]]] = {
    "resnet50": [
        Row(
            "T4",
            f"{TF}, FP32",
            "1 7.34 7.54, 2 9.29 9.59, 4 13.83 14.40, 8 23.41 24.11,"
            " 16 40.58 41.41, 32 77.18 78.67, 64 150.82 154.34, 128 297.82 302.51,"
            " 256 601.37 608.74",
        ),
        Row(
            "V100",
            f"{TF}, FP32, 16 GB card",
            "1 5.79 6.04, 2 6.61 7.01, 4 7.12 7.69,"
            " 8 10.22 10.60, 16 15.99 16.29, 32 28.19 28.54, 64 51.12 53.45, 128 96.61 99.08,"
            " 256 189.85 192.47",
        ),
        Row(
            "A100",
            f"{TF}, TF32, 40 GB card",
            "1 5.26 5.42, 2 5.34 5.56, 4 6.65 7.05,"
            " 8 8.31 9.17, 16 11.82 12.44, 32 19.99 21.36, 64 35.82 37.84, 128 68.23 70.70,"
            " 256 133.90 136.49",
        ),
    ],
    "resnet50-fp16": [
        Row(
            "T4",
            f"{TF}, mixed precision",
            "1 4.77 5.15, 2 5.27 5.52, 4 6.75 7.02, 8 10.16 10.68,"
            " 16 17.55 18.19, 32 32.92 33.61, 64 64.56 66.35, 128 128.55 131.08,"
            " 256 257.71 260.36",
        ),
        Row(
            "V100",
            f"{TF}, mixed precision, 16 GB card",
            "1 4.25 5.30, 2 4.32 5.52, 4 4.26 5.45,"
            " 8 5.57 6.51, 16 8.13 8.50, 32 13.69 14.26, 64 23.86 24.10, 128 47.04 90.05,"
            " 256 94.67 145.55",
        ),
        Row(
            "A100",
            f"{TF}, mixed precision, 40 GB card",
            "1 4.51 4.76, 2 4.63 4.76, 4 4.63 5.36,"
            " 8 5.40 5.78, 16 8.47 9.14, 32 16.23 17.98, 64 18.14 19.35, 128 37.86 66.90,"
            " 256 81.02 126.31",
        ),
    ],
    "resnext101": [
        Row(
            "T4",
            f"{RESNEXT}, FP32",
            "1 17.88 22.29, 2 18.24 22.51, 4 18.26 21.74, 8 26.74 28.93,"
            " 16 45.34 47.43, 32 79.10 81.83, 64 140.30 143.57",
        ),
        Row(
            "V100",
            f"{RESNEXT}, FP32, 16 GB card",
            "1 21.02 26.00, 2 22.14 26.59, 4 22.57 26.03,"
            " 8 24.35 28.52, 16 40.04 40.32, 32 73.71 74.26, 64 131.04 131.81",
        ),
    ],
    "resnext101-fp16": [
        Row(
            "T4",
            f"{RESNEXT}, mixed precision",
            "1 19.48 26.21, 2 19.44 24.51, 4 18.93 21.95,"
            " 8 19.47 25.77, 16 24.54 27.31, 32 39.28 41.96, 64 71.76 72.78, 128 134.19 134.81",
        ),
        Row(
            "V100",
            f"{RESNEXT}, mixed precision, 16 GB card",
            "1 23.05 26.63, 2 23.82 27.29,"
            " 4 22.82 25.92, 8 24.05 27.74, 16 25.00 28.73, 32 35.71 36.13, 64 63.43 63.96,"
            " 128 117.74 118.35",
        ),
    ],
    "se-resnext101": [
        Row(
            "T4",
            f"{SE}, FP32",
            "1 25.12 31.59, 2 26.82 33.13, 4 29.79 37.65, 8 51.74 53.12,"
            " 16 97.99 99.21, 32 186.31 187.4, 64 378.1 378.82, 128 785.83 782.64,"
            " 256 1641.96 1614.52",
        ),
        Row(
            "V100",
            f"{SE}, FP32, 16 GB card",
            "1 24.92 31.12, 2 24.89 30.81, 4 31.58 39.64,"
            " 8 32.29 38.14, 16 44.5 44.37, 32 76.86 76.17, 64 138.36 136.52, 128 262.64 256.02,"
            " 256 519.84 501.5",
        ),
    ],
    "se-resnext101-fp16": [
        Row(
            "T4",
            f"{SE}, mixed precision",
            "1 32.51 39.53, 2 32.76 39.62, 4 32.98 42.66,"
            " 8 31.01 39.11, 16 33.76 38.5, 32 63.68 63.73, 64 123.57 123.56, 128 248.97 246.66,"
            " 256 496.23 488.3",
        ),
        Row(
            "V100",
            f"{SE}, mixed precision, 16 GB card",
            "1 33.83 41.57, 2 34.35 41.66,"
            " 4 34.33 41.05, 8 34.66 42.16, 16 35.23 38.11, 32 37.62 41.26, 64 46.95 47.48,"
            " 128 87.49 83.75, 256 170.79 162.93",
        ),
    ],
    "ssd300": [
        Row(
            "V100",
            f"{SSD}, FP32, 16 GB card",
            "1 93.21, 2 148.61, 4 206.82, 8 242.55, 16 292.44, 32 311.61",
            rate=True,
        ),
        Row(
            "A100",
            f"{SSD}, TF32, 80 GB card",
            "1 158.83, 2 308.31, 4 481.69, 8 597.72, 16 590.44, 32 708.97, 64 798.16",
            rate=True,
        ),
    ],
    "ssd300-fp16": [
        Row(
            "V100",
            f"{SSD}, mixed precision, 16 GB card",
            "1 84.59, 2 165.30, 4 304.77, 8 447.25, 16 541.05, 32 605.30",
            rate=True,
        ),
        Row(
            "A100",
            f"{SSD}, mixed precision, 80 GB card",
            "1 142.67, 2 261.21, 4 454.95, 8 742.05, 16 887.01, 32 970.27, 64 1057.51",
            rate=True,
        ),
    ],
    "bert-base-128": [
        Row(
            "T4",
            f"{BERT}, FP32",
            "1 54.28 19.29, 2 71.75 29.12, 4 88.01 47.04, 8 98.92 82.75",
            rate=True,
        ),
        Row(
            "V100",
            f"{BERT}, FP32, 32 GB card of a DGX-1",
            "1 175.16 6.04, 2 261.31 8.08, 4 339.45 12.46, 8 406.67 20.41",
            rate=True,
        ),
        Row(
            "A100",
            f"{BERT}, FP32, 40 GB card",
            "1 152.92 7.06, 2 297.42 7.21, 4 448.57 9.68, 8 539.94 15.79",
            rate=True,
        ),
    ],
    "bert-base-128-fp16": [
        Row(
            "T4",
            f"{BERT}, FP16",
            "1 91.93 11.94, 2 148.08 14.74, 4 215.45 19.84, 8 289.52 29.16",
            rate=True,
        ),
        Row(
            "V100",
            f"{BERT}, FP16, 32 GB card of a DGX-1",
            "1 207.87 5.32, 2 376.44 5.68, 4 642.55 6.68, 8 943.85 8.92",
            rate=True,
        ),
        Row(
            "A100",
            f"{BERT}, FP16, 40 GB card",
            "1 231.37 4.93, 2 454.54 4.96, 4 842.34 5.39, 8 1216.43 7.28",
            rate=True,
        ),
    ],
    "bert-base-384": [
        Row(
            "T4",
            f"{BERT}, FP32",
            "1 25.83 40.02, 2 29.08 72.08, 4 30.33 136.7, 8 31.8 255.56",
            rate=True,
        ),
        Row(
            "V100",
            f"{BERT}, FP32, 32 GB card of a DGX-1",
            "1 98.33 10.76, 2 114.92 18.29, 4 125.76 33.72, 8 136.62 60",
            rate=True,
        ),
        Row(
            "A100",
            f"{BERT}, FP32, 40 GB card",
            "1 115.19 9.27, 2 154.66 13.89, 4 174.28 24, 8 191.97 42.8",
            rate=True,
        ),
    ],
    "bert-base-384-fp16": [
        Row(
            "T4",
            f"{BERT}, FP16",
            "1 60.75 17.45, 2 82.85 25.67, 4 97.78 43.91, 8 106.78 78.02",
            rate=True,
        ),
        Row(
            "V100",
            f"{BERT}, FP16, 32 GB card of a DGX-1",
            "1 162.62 6.73, 2 244.15 8.93, 4 338.68 12.63, 8 407.46 20.89",
            rate=True,
        ),
        Row(
            "A100",
            f"{BERT}, FP16, 40 GB card",
            "1 210.59 5.06, 2 290.91 7.72, 4 407.13 10.74, 8 478.67 17.76",
            rate=True,
        ),
    ],
    "bert-large-128": [
        Row(
            "T4",
            f"{BERT}, FP32",
            "1 21.52 49.63, 2 25.4 81.77, 4 28.19 145.43, 8 30.14 269.37",
            rate=True,
        ),
        Row(
            "V100",
            f"{BERT}, FP32, 32 GB card of a DGX-1",
            "1 75.34 13.7, 2 99.73 21.45, 4 116.92 34.98, 8 130.11 63.3",
            rate=True,
        ),
        Row(
            "A100",
            f"{BERT}, FP32, 40 GB card",
            "1 50.43 20.56, 2 94.47 21.78, 4 141.52 28.99, 8 166.37 49.46",
            rate=True,
        ),
    ],
    "bert-large-128-fp16": [
        Row(
            "T4",
            f"{BERT}, FP16",
            "1 40.31 27.61, 2 63.79 34.36, 4 87.4 48.71, 8 107.5 77.73",
            rate=True,
        ),
        Row(
            "V100",
            f"{BERT}, FP16, 32 GB card of a DGX-1",
            "1 96.46 11.02, 2 168.31 12.57, 4 267.76 16.68, 8 378.28 21.97",
            rate=True,
        ),
        Row(
            "A100",
            f"{BERT}, FP16, 40 GB card",
            "1 127.75 8.53, 2 219.49 9.89, 4 315.83 13.37, 8 495.75 16.79",
            rate=True,
        ),
    ],
    "bert-large-384": [
        Row(
            "T4",
            f"{BERT}, FP32",
            "1 8.46 122.74, 2 9.29 220.35, 4 9.55 424.3, 8 9.75 827.99",
            rate=True,
        ),
        Row(
            "V100",
            f"{BERT}, FP32, 32 GB card of a DGX-1",
            "1 33.84 31.23, 2 38.02 54.42, 4 41.2 99.55, 8 42.37 192.77",
            rate=True,
        ),
        Row(
            "A100",
            f"{BERT}, FP32, 40 GB card",
            "1 44.42 23.46, 2 50.29 40.59, 4 55.58 73.7, 8 58.38 138.3",
            rate=True,
        ),
    ],
    "bert-large-384-fp16": [
        Row(
            "T4",
            f"{BERT}, FP16",
            "1 23.05 46.8, 2 29.59 71.64, 4 34.27 122.1, 8 38.29 214.61",
            rate=True,
        ),
        Row(
            "V100",
            f"{BERT}, FP16, 32 GB card of a DGX-1",
            "1 68.75 15.3, 2 95.41 22.01, 4 124.43 33.58, 8 143.02 58.05",
            rate=True,
        ),
        Row(
            "A100",
            f"{BERT}, FP16, 40 GB card",
            "1 96.65 11, 2 126.07 16.78, 4 165.21 25.38, 8 182.13 45.23",
            rate=True,
        ),
    ],
    **{
        model: [
            Row(device, f"{TORCH}; {ONE_BATCH}", f"16 {ms}")
            for device, ms in (("K40", k40), ("GTX1080", gtx1080))
        ]
        for model, k40, gtx1080 in (
            ("alexnet", 18.32, 7.36),
            ("vgg16", 265.77, 66.56),
            ("vgg19", 325.18, 80.39),
            ("resnet18", 51.07, 14.69),
            ("resnet34", 95.11, 24.83),
            ("resnet50-torch", 129.21, 50.67),
            ("resnet101", 220.92, 77.77),
            ("resnet152", 319.80, 109.93),
        )
    },
    "nexus-a": [Row("example", f"{NEXUS}, SLO 200 ms", "4 50, 8 75, 16 100")],
    "nexus-b": [Row("example", f"{NEXUS}, SLO 250 ms", "4 50, 8 90, 16 125")],
    "nexus-c": [Row("example", f"{NEXUS}, SLO 250 ms", "4 60, 8 95, 16 125")],
    "clipper-line": [
        Row(
            "example",
            "a line 10 + 2 b in ms, to show the saw-tooth of AIMD (Crankshaw et al. 2017); made up",
            "1 12, 32 74",
        )
    ],
    "nanily-line": [
        Row(
            "example",
            "a line 10 + 5 b in ms, to show a batch that fills the time left"
            " (Nanily, 2019); made up",
            "1 15, 32 170",
        )
    ],
}


def document() -> Document:
    """The models file."""
    devices = [Device("T4", "15GiB"), Device("V100", "16GiB"), Device("A100", "40GiB"),
               Device("K40", "12GiB"), Device("GTX1080", "8GiB"), Device("example")]  # fmt: skip
    return Document(FORMAT, devices, [_model(name) for name in MODELS], about=ABOUT)


def _model(name: str) -> Model:
    family, weights, accuracy, source = MODELS[name]
    size = weights * 4
    load = Load(host=float(f"{size / BUS_BYTES_PER_SECOND:.3g}")) if size else Load()
    return Model(
        name,
        family,
        source,
        accuracy,
        bytes=size or None,
        load=load,
        latency=[_latency(row) for row in ROWS[name]],
    )


def _latency(row: Row) -> Latency:
    cells = [[float(word) for word in part.split()] for part in row.figures.split(",")]
    batch = [int(each[0]) for each in cells]
    said = [row.source]
    mean = [each[0] / each[1] if row.rate else each[1] / 1e3 for each in cells]
    if row.rate:
        said.append("the mean is reconstructed as batch over items per second")
    rising = isotonic_regression(mean).x
    if not np.allclose(rising, mean, rtol=1e-9):
        said.append("means that fell with the batch are pooled with their neighbours")
    tail: Sequence[float] = []
    if len(cells[0]) == 3:
        p99 = [each[2] / 1e3 for each in cells]
        lifted = isotonic_regression(p99).x
        if not np.allclose(lifted, p99, rtol=1e-9):
            said.append("so are 99th percentiles")
        if (lifted < rising).any():
            said.append("99th percentiles below the mean are raised to it")
        tail = np.maximum(lifted, rising).tolist()
    return Latency(
        row.device,
        batch=batch,
        mean=list(map(_digits, rising)),
        p99=list(map(_digits, tail)),
        source="; ".join(said),
    )


def _digits(seconds: float) -> float:
    return float(f"{seconds:.5g}")


def main(path: Path | None = None) -> None:
    """Write the file that the package ships."""
    write_models(document(), path or shipped("papers"))


if __name__ == "__main__":
    main()
