"""Every command of the README and the pages runs as it is written, on an empty home."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.commands import NOT_RUN, PAGES, ROOT, Written, block, pythons, written
from ganger.client.connection import Client
from ganger.service import agents
from waiting import until
from warm import script, serving

pytestmark = pytest.mark.long

MEANT = ("docs/live-quickstart.md", "docs/coming-from.md")
"""Pages whose job 12 is any job of the reader's."""
OUTCOMES = {r"^ganger recommend ": (0, 1), r"^ganger wait ": (0, 130)}
"""Exit codes other than 0 that say no more than how it came out."""
SACCT = (
    "JobIDRaw|JobName|User|Account|Partition|QOS|Submit|Eligible|Start|End|ElapsedRaw|"
    "TimelimitRaw|State|AllocTRES|ReqTRES|NodeList|Priority"
)


def samples(folder: Path) -> None:
    """The files that the pages name, each as short as its kind may be."""
    rows = "".join(
        f"j{i},{i * 300},{600 + 97 * i % 7200},{1 << i % 4},{'lab' if i % 2 else 'vision'}\n"
        for i in range(60)
    )
    trace = "job,submitted,duration,gpus,tenant\n" + rows
    sacct = "".join(
        f"{i}|train|ann|lab|gpu|normal|2026-10-01T{i // 4:02d}:{i % 4 * 15:02d}:00|Unknown|"
        f"2026-10-02T{i // 4:02d}:00:00|2026-10-03T00:00:00|{900 + 60 * i}|600|COMPLETED|"
        f"cpu=8,gres/gpu={1 << i % 4}|gres/gpu=1|n1|1\n"
        for i in range(60)
    )
    access = (
        "".join(
            f'10.0.0.{i % 9} - - [24/Nov/2026:07:00:{i // 300:02d} +0000] "POST'
            f' /v1/models/{"bert" if i % 3 == 1 else "resnet50"}/infer HTTP/1.1" 200 512\n'
            for i in range(3000)
        )
        + '10.0.0.1 - - [24/Nov/2026:07:00:11 +0000] "GET /health HTTP/1.1" 200 2\n'
    )
    problem = block("docs/problem-format.md", "json")
    policy = block("docs/write-a-policy.md", "python")
    family = block("docs/trace-format.md", "csv")
    models = block("docs/models-file.md", "toml")
    script = "#!/bin/sh\n#SBATCH --gres=gpu:1 --time=10\npython train.py\n"
    for name, text in {
        "jobs.csv": trace,
        "quarter.csv.gz": trace,
        "sacct.txt": f"{SACCT}\n{sacct}",
        "problem.json": problem,
        "PROBLEM.json": problem,
        "mine.py": policy,
        "train.py": "print('trained')\n",
        "test.py": "print('tested')\n",
        "train.sbatch": script,
        "train": "#!/bin/sh\necho trained\n",
        "Makefile": "all:\n",
        "family.csv": family,
        "m.toml": models,
        "access.log": access,
        "job.toml": 'format = "ganger.job/1"\ncommand = ["python", "train.py"]\ngpus = 1\n',
    }.items():
        (folder / name).write_text(text)
    (folder / "train").chmod(0o755)


SHORTER = {
    r"(?<=--jobs )1000": "300",
    r"(?<=--rate 700 --duration )20s": "5s",
    r"(?<=--rate 6000 --duration )2s": "300ms",
    r"^(ganger recommend examples/tuning/digits.*)": r"\1 --recipes tune.random,tune.asha",
}
"""What a reader waits for longer than a test has to."""
FLEETS = "docs/fleet-tutorial.md"
"""The page whose commands one story runs, in their order."""
VERB = re.compile(r"ganger ([a-z][a-z-]*(?:(?: [a-z][a-z-]*)?(?= |$)))")


def verbs(one: Written) -> set[str]:
    """Which commands of ours a line has, as in `trace info`."""
    return set(VERB.findall(one.text))


@cache
def firsts() -> set[Written]:
    """The lines that are the first on all pages to have some command: they run in interpreters of
    their own, as a user's do. All others are forks of a process that has imported what they need.
    """
    known, found = set[str](), set[Written]()
    for one in (one for page in PAGES for one in written(page) if not one.reason):
        if not verbs(one) <= known:
            known |= verbs(one)
            found.add(one)
    return found


class Newcomer:
    """A user in a folder with the sample files, a daemon's empty home, and no optional package.
    `shared` holds the programmes that he types."""

    def __init__(self, root: Path, shared: Path) -> None:
        self.cwd, self.home = root / "work", root / "home"
        self.cwd.mkdir()
        samples(self.cwd)
        (self.cwd / "examples").symlink_to(ROOT / "examples")
        self.own = f"{shared / 'own'}:{shared}:{os.environ['PATH']}"
        self.env = {
            **bare(shared),
            "GANGER_HOME": str(self.home),
            "COLUMNS": "80",
            "TERM": "dumb",
            "PATH": f"{shared / 'forked'}:{shared}:{os.environ['PATH']}",
        }

    def sh(self, line: str, *, own: bool = False) -> subprocess.CompletedProcess[str]:
        """Have the line done by a shell; `own`: in an interpreter of its own."""
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.cwd,
            env=self.env | ({"PATH": self.own} if own else {}),
            text=True,
            capture_output=True,
            check=False,
            timeout=400,
            stdin=subprocess.DEVNULL,
        )

    def job(self, *, holds: bool) -> str:
        """The number of a new job: one that waits, or one that runs."""
        words = "--hold" * (not holds)
        made = self.sh(f"ganger submit --parsable --gpus 0 -c 0.01 {words} -- sleep 60")
        number = made.stdout.strip()
        if holds:
            with Client(self.home) as client:
                until(lambda: client.call("GET", f"/v1/jobs/{number}")[0]["state"] == "RUNNING")
        return number

    def typed(self, one: Written) -> str:
        """The command with what it leaves open filled in: names in capitals, `...`, job numbers."""
        text = one.text
        if text.startswith("..."):
            text = f"ganger simulate jobs.csv --cluster 8x8xV100 --recipe fifo{text[3:]}"
        for looks, shorter in SHORTER.items():
            text = re.sub(looks, shorter, text)
        text = re.sub(r"^(ganger submit) ((?!.* -- ).*mail.*)", r"\1 \2 -- true", text)
        if one.page == "docs/live.md":
            text = re.sub("JOB", lambda _: self.job(holds=False), text)
        text = text.replace("-- ...", "-- true").replace("NAME", "max-min").replace("JOB", "1")
        if re.match("ganger explain .*--log run.log", text):
            self.sh("ganger simulate quarter.csv.gz --cluster 8x8xV100 -r fifo --log run.log")
            text = re.sub(r"(?<=explain )(41|JOB|1)", "j41", text)
        if text.startswith("ganger restore"):
            text = f"ganger down && {text} && ganger up --gpus 8xV100 --name n1"
        if re.search(r"\b1[23]\b(?!:)", text) and one.page in MEANT:
            preempts = "preempt" in text or "requeue" in text
            text = re.sub(r"\b1[23]\b", lambda _: self.job(holds=preempts), text)
            if "wait" in text:
                self.sh(f"ganger cancel {text.split('wait')[1]}")
        return text


def bare(shared: Path) -> dict[str, str]:
    """An environment without optional packages."""
    return {**os.environ, "PYTHONPATH": str(shared / "without")}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what is typed: `python`, and `ganger` in `own` and `forked`."""
    root = tmp_path_factory.mktemp("typed")
    for name in ("own", "forked", "without"):
        (root / name).mkdir()
    (root / "without" / "pyarrow.py").write_text("raise ImportError('not in the demo')\n")
    for file, words in ((root / "own" / "ganger", "-m ganger.cli"), (root / "python", "")):
        file.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        file.chmod(0o755)
    script(root / "forked" / "ganger", root / "socket")
    with serving(root / "socket", bare(root)):
        yield root


@pytest.fixture
def newcomer(tmp_path: Path, shared: Path) -> Iterator[Newcomer]:
    made = Newcomer(tmp_path, shared)
    yield made
    if made.home.exists():
        made.sh("ganger lab --end" * (made.home / "lab").exists())
        made.sh("ganger open --end; ganger cancel --me -t active; ganger down")
        agents.stop(made.home / "agent")


@pytest.mark.timeout(900)  # a page holds up to forty commands
@pytest.mark.parametrize("page", [page for page in PAGES if written(page) and page != FLEETS])
def test_every_command_runs(newcomer: Newcomer, page: str) -> None:
    commands = [one for one in written(page) if not one.reason]
    live = re.compile("ganger (submit|queue|policy|daemon|nodes|usage|backup|quota)")
    if any(live.match(one.text) for one in commands):
        up = newcomer.sh("ganger up --gpus 8xV100 --name n1")
        assert up.returncode == 0, up.stderr
    wrong = []
    for one in commands:
        done = newcomer.sh(newcomer.typed(one), own=one in firsts())
        codes = next((each for looks, each in OUTCOMES.items() if re.match(looks, one.text)), (0,))
        if done.returncode not in codes or "Traceback" in done.stderr:
            said = f"{done.returncode}: {done.stderr}{done.stdout[-2000:]}"
            wrong.append(f"{page}:{one.line}: {one.text}\n  {said}")
    assert not wrong, "\n".join(wrong)


def test_the_tutorial_ends_with_a_fleet_and_a_report(newcomer: Newcomer) -> None:
    """What the reader is promised: a size that keeps the SLO, and one less that does not."""
    said = ""
    for one in (each for each in written(FLEETS) if not each.reason):
        done = newcomer.sh(one.text)
        assert done.returncode == 0, done.stderr
        said += done.stdout + done.stderr
    assert "1 rows left out: they ask for no model (/models/NAME)" in said
    assert "3,000 requests written to requests.csv" in said
    assert re.search(r"on T4:\d: 9\d\.\d% of the requests are in time|on T4:\d: 100", said), said
    assert "no recipe can have more than" in (newcomer.cwd / "fleet.html").read_text()


@pytest.mark.parametrize("page", [page for page in PAGES if pythons(page)])
def test_every_programme_runs(newcomer: Newcomer, page: str) -> None:
    if "ganger.Client()" in "".join(pythons(page)):
        newcomer.sh("ganger up --gpus 2xV100 --name n1")
    for body in pythons(page):
        (newcomer.cwd / "page.py").write_text(body)
        done = newcomer.sh("python page.py")
        assert done.returncode == 0, f"{page}: {done.stderr}"


def test_no_reason_outlives_its_command() -> None:
    every = [one.text for page in PAGES for one in written(page)]
    for looks, why in NOT_RUN:
        assert any(re.search(looks, text) for text in every), f"nothing looks like {looks}: {why}"
