"""A journal that an earlier version wrote (commit 501489e, its daemon killed) goes on under this
one."""

from __future__ import annotations

import gzip
from pathlib import Path

from ganger.core.state.jobs import Phase
from ganger.engines.local import Hold
from service.desk import Desk, box, header

KEPT = Path(__file__).parent / "journals" / "501489e.db.gz"


def test_the_jobs_of_an_earlier_version_are_there_and_run_to_their_end(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(gzip.decompress(KEPT.read_bytes()))
    path.chmod(0o600)
    desk = Desk(tmp_path, header("tiresias", box(4, "n1")))
    jobs = desk.daemon.kernel.jobs
    names = ["done", "failed", "holds", "held", "elastic", "gone", *["array"] * 4, "true"]
    assert list(desk.daemon.names) == names
    over = [Phase.FINISHED, Phase.FAILED]
    assert [desk.phase(row) for row in (0, 1)] == over
    assert desk.phase(5) == Phase.CANCELLED
    assert {desk.phase(row) for row in (3, 10)} == {Phase.BLOCKED}
    assert desk.daemon.kernel.policy.name == "tiresias"
    assert jobs.estimate[6] == 600_000_000
    held = desk.daemon.kernel.ledger.holds[2][1]
    desk.engine.adopt([Hold(2, int(jobs.attempt[2]), Phase.STARTING, held)])  # it runs there
    desk.order("release", 3)
    desk.until_quiet()
    phases = [desk.phase(row) for row in range(jobs.n)]
    ended = [Phase.FINISHED] * 2
    assert phases[:6] == [*over, Phase.FINISHED, *ended, Phase.CANCELLED]
    assert phases[6:] == [Phase.FINISHED] * 5
    desk.close()
