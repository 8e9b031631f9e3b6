"""What an engine gets when it launches a job: its facts, with the names of this job put in."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

import msgspec

from ganger.client.grid import filled
from ganger.core.spec import Kind
from ganger.core.state.jobs import Jobs
from ganger.core.units import NEVER, SECOND
from ganger.engines.launch import SUPERVISOR_KILLED, Launch
from ganger.sdk.replica import WORD
from ganger.service.durable.journal import Attempt, Journal
from ganger.service.jobs.job_facts import JobFacts

_NOT_ITS_DOING: Final = ("Refused", "NodeFail")
_SOON: Final = 60 * SECOND
_SLURM = re.compile(r"%(%|[0-9]{0,2}[jJAaxu])")


def kept_run_time(jobs: Jobs, job: int) -> int:
    """How long a job ran in attempts whose work is kept (microseconds): of its run time the part
    that the kept work is of all that it did. Suspended time is not run time."""
    work, lost = float(jobs.work[job]), float(jobs.lost[job])
    part = work / (work + lost) if work + lost > 0 else 1.0
    return int(int(jobs.ran[job]) * part)


def launch_of(
    journal: Journal, scripts: Path | None, job: int, jobs: Jobs, *, steps: bool = True
) -> Launch:
    """How `job` is launched now, `retries` counted down by the attempts that failed, its time limit
    by the run time of attempts whose work is kept (of `jobs`): one that begins from nothing has all
    of it, as after Slurm's requeue. Its script is made a file in the folder
    `scripts`, or goes with the launch. `steps`: its `srun` is ours, not Slurm's."""
    facts = journal.facts(job)
    launch, words = facts.launch, _words(facts, job)
    command = tuple(filled(word, words) for word in launch.command)
    if facts.script and scripts:
        command = (str(_script(scripts, facts, job)), *command)  # executed, so the kernel reads #!
    attempts = journal.attempts(job)
    failed = sum(failure(attempt.outcome) for attempt in attempts)
    env = {"GANGER_HOME": str(journal.path.parent.absolute()), **launch.env}
    if facts.task >= 0:
        env["GANGER_ARRAY_ID"] = str(facts.array + 1)
        env["GANGER_ARRAY_INDEX"] = str(facts.task)
    env |= {f"GANGER_PARAM_{name.upper()}": value for name, value in facts.params.items()}
    env["GANGER_JOB_ID"], env["GANGER_JOB_NAME"] = str(job + 1), facts.name
    if facts.child >= 0:
        env |= _of_child(facts, job, jobs)
    return msgspec.structs.replace(
        launch,
        command=command,
        env=env,
        name=facts.name,
        output=pattern(launch.output, facts, job),
        error=pattern(launch.error, facts, job),
        limit=max(launch.limit - kept_run_time(jobs, job), 1) if launch.limit < NEVER else NEVER,
        retries=max(launch.retries - failed, 0),
        kills=max(launch.kills - _killed_at_once(attempts), 0),
        script="" if scripts else facts.script,
        steps=launch.steps and steps,
        hollow=facts.family is not None and int(jobs.kind[job]) == Kind.TUNE,
        listens=int(jobs.kind[job]) == Kind.SERVE and any(WORD in word for word in command),
    )


def _of_child(facts: JobFacts, job: int, jobs: Jobs) -> dict[str, str]:
    """What a trial or a replica is told: whose child it is, its number, its configuration, and up
    to which epoch it runs before it is judged, where that is known."""
    found = {
        "GANGER_PARENT_ID": str(int(jobs.parent[job]) + 1),
        "GANGER_CHILD": str(facts.child),
        "GANGER_CONFIGURATION": json.dumps(facts.params),
        "GANGER_METRIC": facts.launch.metric,
    }
    until = float(jobs.asks_at[job])
    return found | ({"GANGER_UNTIL": f"{until:g}"} if 0 < until < NEVER else {})


def failure(outcome: str) -> bool:
    """Whether an attempt that ended so failed by its own doing."""
    return bool(outcome) and outcome != "Preempted" and not outcome.startswith(_NOT_ITS_DOING)


def _killed_at_once(attempts: list[Attempt]) -> int:
    """How many attempts in a row, up to the last that is over, lost their supervisor soon."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.ended < 0:
            continue
        soon = attempt.started < 0 or attempt.ended - attempt.started < _SOON
        if not (soon and attempt.outcome.endswith(SUPERVISOR_KILLED)):
            break
        count += 1
    return count


def _words(facts: JobFacts, job: int) -> dict[str, str]:
    """What stands for `{job}`, `{name}`, `{array}` and parameters."""
    words = {"job": str(job + 1), "name": facts.name}
    if facts.child >= 0:
        words["child"] = str(facts.child)
    if facts.task >= 0:
        words["array"] = str(facts.task)
    return words | facts.params


def pattern(path: str, facts: JobFacts, job: int) -> str:
    """A path with our words and Slurm's (`%j`, `%A`, `%a`, `%x`, `%u`) replaced."""
    meaning = {
        "j": str(job + 1),
        "J": str(job + 1),
        "x": facts.name.replace("/", "_"),
        "u": facts.user,
        "A": str((facts.array if facts.array >= 0 else job) + 1),
        "a": str(max(facts.task, 0)),
    }

    def word(found: re.Match[str]) -> str:
        if found[1] == "%":
            return "%"
        width = found[1][:-1]
        return meaning[found[1][-1]].rjust(int(width or 0), "0")

    words = {name: value.replace("/", "_") for name, value in _words(facts, job).items()}
    return filled(_SLURM.sub(word, path), words)


def _script(scripts: Path, facts: JobFacts, job: int) -> Path:
    """The script as a file that can be executed; tasks of an array share one."""
    path = scripts / str((facts.array if facts.array >= 0 else job) + 1)
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text(facts.script)
        part.chmod(0o700)
        if facts.launch.uid >= 0:
            os.chown(part, facts.launch.uid, -1)
        part.replace(path)
    return path
