"""The packaged speeds: what was measured is what the profiles say."""

from __future__ import annotations

import pytest

from ganger.core.spec import Locality
from ganger.workloads.measured.published import MEASURED, profiles


def test_profiles_say_what_was_measured() -> None:
    found = profiles()
    for name, measured in MEASURED.items():
        profile = found.models[name]
        for gpus, speed in zip((2, 4, 8), measured.scaling, strict=True):
            assert profile.rate("V100", 1.0, gpus, 1, Locality.ISLAND) == pytest.approx(speed)
        assert profile.rate("K80", 1.0, 1, 1, Locality.NODE) == measured.k80
        apart = profile.rate("V100", 1.0, 4, 4, Locality.ANY)
        assert apart == pytest.approx(1 / measured.apart)
        assert profile.rate("V100", 1.0, 3, 1, Locality.NODE) == pytest.approx(
            (measured.scaling[0] + measured.scaling[1]) / 2, abs=1e-4
        )
