"""The statistics of published clusters' jobs, from which `synthetic` draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Profile:
    """The statistics of one cluster's jobs.

    `durations`: (seconds, percent of jobs at most that long); `sizes`: (GPUs, percent of jobs);
    `shares`: (GPUs per worker, percent), where sizes count workers; `hours` and `days`: relative
    arrivals by hour of day and from Monday to Sunday; `coupling`: rank correlation of gang size
    and run time; `jobs_per_user`, `tenants`, and `burst`, the mean jobs submitted in one go.
    """

    durations: tuple[tuple[float, float], ...]
    sizes: tuple[tuple[int, float], ...]
    hours: tuple[float, ...]
    days: tuple[float, ...]
    coupling: float
    jobs_per_user: float
    tenants: int
    burst: float = 2.0
    shares: tuple[tuple[float, float], ...] = ()


def curve(text: str, longest: float) -> tuple[tuple[float, float], ...]:
    """Percentages at 1, 2, 4, 8... seconds, and 100 at `longest`."""
    powers = ((2.0**i, float(percent)) for i, percent in enumerate(text.split()))
    return (*powers, (longest, 100.0))


PROFILES: Final = {
    "philly": Profile(
        curve(
            "0.03 0.08 0.17 0.82 3.62 8.42 18.88 26.99 31.5 36.28 54.91 67.47 79.28 84.6 90.29 "
            "92.71 94.86 96.95 98.39 99.32 99.8 99.95",
            4_240_676.0,
        ),
        ((1, 82.42), (2, 2.06), (4, 7.57), (8, 6.86), (16, 0.9), (32, 0.17), (128, 0.02)),
        (
            57,
            51,
            56,
            38,
            20,
            51,
            71,
            102,
            43,
            40,
            41,
            31,
            36,
            24,
            26,
            22,
            40,
            28,
            24,
            21,
            48,
            36,
            51,
            44,
        ),
        (122, 156, 147, 178, 202, 99, 96),
        coupling=0.26,
        jobs_per_user=350,
        tenants=14,
    ),
    "helios": Profile(
        curve(
            "4.0 4.93 6.35 7.7 10.72 16.15 24.88 37.81 56.57 67.58 75.25 84.1 87.53 90.75 94.36 "
            "96.26 97.77 98.9 99.55 99.86 99.96 99.99",
            4_320_009.0,
        ),
        (
            (1, 72.19),
            (2, 2.56),
            (3, 0.09),
            (4, 5.63),
            (5, 0.2),
            (8, 14.02),
            (16, 3.03),
            (24, 0.36),
            (32, 1.27),
            (40, 0.1),
            (48, 0.1),
            (56, 0.06),
            (64, 0.12),
            (80, 0.08),
            (128, 0.05),
            (160, 0.07),
            (256, 0.04),
            (512, 0.03),
        ),
        (
            38,
            26,
            24,
            14,
            11,
            8,
            7,
            9,
            16,
            35,
            57,
            63,
            48,
            55,
            64,
            69,
            72,
            72,
            52,
            54,
            55,
            56,
            49,
            46,
        ),
        (152, 153, 169, 168, 138, 107, 112),
        coupling=0.22,
        jobs_per_user=800,
        tenants=25,
    ),
    "pai": Profile(
        curve(
            "0.08 0.08 0.11 0.43 2.99 11.87 21.06 28.95 39.62 50.9 60.79 69.84 78.51 87.12 "
            "93.19 97.05 99.03 99.69 99.95",
            626_371.0,
        ),
        (
            (1, 76.9),
            (2, 3.1),
            (3, 1.5),
            (4, 1.5),
            (5, 1.6),
            (8, 1.4),
            (10, 3.7),
            (12, 0.9),
            (15, 0.5),
            (16, 1.3),
            (20, 2.2),
            (25, 0.7),
            (30, 1.2),
            (40, 0.9),
            (50, 1.8),
            (100, 0.8),
        ),
        (
            27,
            34,
            38,
            38,
            45,
            36,
            36,
            49,
            55,
            47,
            45,
            45,
            47,
            46,
            51,
            51,
            42,
            39,
            35,
            27,
            29,
            54,
            46,
            36,
        ),
        (150, 161, 163, 169, 138, 109, 111),
        coupling=0.1,
        jobs_per_user=800,
        tenants=20,
        shares=((0.25, 28.0), (0.5, 33.0), (1.0, 36.5), (2.0, 1.6), (4.0, 0.5), (8.0, 0.4)),
    ),
}
"""The calibrated kinds."""
