"""Jobs that share a device and want more of it than they were given."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.conformance import Play
from engines.rig import Agents, LocalBench, processes_of
from engines.test_sharing import FIRM, LOOSE, computing, cores_of
from ganger.core.events import Started
from ganger.core.plan import Slot, Start, Tune
from ganger.engines.agent.meter import cpu_seconds
from waiting import until

NOBODY = 65534
RAISES = """
rate=$GANGER_DIR/../rate
while :; do
    echo 1.0000 > $rate; rm -f $rate; mv $GANGER_DIR/mine $rate; ln -sf /dev/null $rate
done 2> /dev/null
"""
LIES = "sdk._reports.add(urgent=True, paces=1)"


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """A play on a machine with four devices, each a set of cores."""
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest" in str(folder):
            folder.chmod(0o755)
    agents = Agents(tmp_path / "agents", ["a"], "--core-sets")
    bench = LocalBench(agents)
    bench.settle()
    yield Play(bench)
    bench.engine.close()
    agents.close()


@pytest.mark.skipif(
    os.getuid() != 0, reason="FILES OF A SECOND USER ARE NOT TESTED: only root can make them"
)
def test_a_job_cannot_raise_its_own_rate(play: Play) -> None:
    """It is another user's, and the file is its agent's."""
    computing(play, FIRM)
    loose, bench = play.number(), play.bench
    assert isinstance(bench, LocalBench)
    bench.launch(loose, "sh", "-c", RAISES, counted=False, uid=NOBODY, gid=NOBODY)
    play.apply(Start(loose, 1, (Slot(0, 1, share=500),)), Tune(loose, 1, LOOSE))
    play.until(Started, loose)
    play.quiet(1.0)
    assert cores_of(play, loose, 1.5) < 0.1
    rate = bench.agents.homes["a"] / "attempts" / f"{loose}.1.0" / "rate"
    assert (rate.lstat().st_uid, stat.S_IMODE(rate.lstat().st_mode)) == (0, 0o644)
    assert stat.S_ISREG(rate.lstat().st_mode)


def test_a_job_that_only_says_that_it_paces_itself_is_held(play: Play) -> None:
    """It has less than a quarter of a core, and a third of what the other has beside it, however
    much of the machine is left to both."""
    firm = computing(play, FIRM)
    loose = computing(play, LOOSE, LIES)
    play.quiet(12.0)

    def held() -> bool:
        before = [sum(map(cpu_seconds, processes_of(job))) for job in (firm, loose)]
        play.quiet(2.0)
        after = [sum(map(cpu_seconds, processes_of(job))) for job in (firm, loose)]
        used, lied = (end - begun for begun, end in zip(before, after, strict=True))
        return lied < min(0.25 * 2.0, used / 3)

    until(held, "it is never held", 30.0)
