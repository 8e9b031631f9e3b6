"""The command line: lazy groups, one place where errors become sentences and exit codes."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from ganger import __version__
from ganger.cli.lazy import Entry, LazyGroup
from ganger.client.shown import shown
from ganger.core.errors import GangerError, InvariantError


def _of(module: str, **commands: str) -> dict[str, Entry]:
    """Entries of one module; a command is called as its function, with dashes."""
    return {
        name.rstrip("_").replace("_", "-"): Entry(f"ganger.cli.{module}", name, summary)
        for name, summary in commands.items()
    }


_JOB: Final = {
    **_of("live.submit", submit="Submit a command, a script or a job file."),
    **_of(
        "live.jobs",
        queue="List running and waiting jobs, and why they wait.",
        show="Show everything known about jobs.",
    ),
    **_of("live.explained", explain="Say why a job waits."),
    **_of(
        "live.jobs",
        logs="Print what a job wrote.",
        wait="Wait until jobs are over.",
        history="List jobs that are over.",
        cancel="Cancel jobs.",
        hold="Hold jobs, so that they do not start.",
        release="Release held jobs.",
        update="Change priority and limits of jobs.",
        requeue="Stop running jobs and put them back in the queue.",
        suspend="Freeze running jobs.",
        resume="Resume drained nodes or suspended jobs.",
    ),
    **_of("live.rehearsal", preempt="Preempt a job once, to see whether it comes back."),
    **_of("live.shell", shell="Open a shell inside a job."),
    **_of("live.tune", tune="Search for hyper-parameters, each trial a job."),
}
_NODE: Final = {
    "list": Entry("ganger.cli.live.cluster", "nodes", "List nodes."),
    **_of("live.cluster", drain="Start nothing new on nodes."),
    "resume": Entry("ganger.cli.live.jobs", "resume", "Resume drained nodes."),
    **_of("live.shell", agent="Add this machine to the cluster of a daemon."),
}
_POLICY: Final = {
    "show": Entry("ganger.cli.live.cluster", "policy_show", "Show the recipe that decides."),
    "set": Entry("ganger.cli.live.cluster", "policy_set", "Change the recipe that decides."),
    **_of("live.cluster", whatif="Predict the queue under other recipes or with more nodes."),
    **_of("live.tenants", fairshare="Show what each tenant has used and holds.",
          quota="Show or set the limits of tenants.", usage="Show GPU-hours and cost by tenant.",
          idle="Show idle jobs, or set the rule for them."),
}  # fmt: skip
_DAEMON: Final = {
    **_of(
        "live.daemon",
        up="Start the daemon on this machine.",
        down="Stop the daemon; running jobs go on.",
        status="Show whether the daemon runs, and its state.",
        metrics="Print metrics for Prometheus, or a Grafana dashboard.",
    ),
    **_of("live.web", open_="Open pages of the cluster and the queue in a browser."),
    "install": Entry("ganger.cli.live.daemon", "install_service", "Write a systemd unit."),
    **_of(
        "live.care",
        backup="Copy the journal while the daemon runs.",
        restore="Restore the journal from a backup.",
        doctor="Check the installation, and print how to fix what is wrong.",
    ),
    **_of(
        "live.access",
        token="Manage tokens for users of the TCP port.",
        admin="Manage administrators.",
        notify="Show the receivers of messages about jobs.",
    ),
}
_GROUPS: Final = {
    "job": Entry("ganger.cli.main", "job", "Commands for jobs."),
    "node": Entry("ganger.cli.main", "node", "Commands for nodes."),
    "policy": Entry(
        "ganger.cli.main",
        "policy",
        "Commands for the recipe that decides and for limits of tenants.",
    ),
    "daemon": Entry("ganger.cli.main", "daemon", "Commands for the daemon."),
    "service": Entry(
        "ganger.cli.live.services", "service", "Serve models: replicas behind one address."
    ),
}
_DAILY: Final = {
    **{
        name: _DAEMON[name]
        for name in ("up", "down", "status", "open", "doctor", "backup", "restore")
    },
    **_JOB,
    "nodes": _NODE["list"],
    "drain": _NODE["drain"],
    **{name: _POLICY[name] for name in ("fairshare", "quota", "usage", "whatif")},
    "agent": _NODE["agent"],
    "install-service": _DAEMON["install"],
}
_STUDY: Final = {
    **_of(
        "lab.simulate",
        demo="Replay the bundled workload under eight schedulers.",
        simulate="Replay a trace under one or more recipes.",
    ),
    **_of(
        "lab.recommend", recommend="Recommend a recipe for a trace, with its confidence interval."
    ),
    **_of("lab.replay", replay="Replay the log of a run, and compare the plans."),
    **_of("lab.parity", parity="Run jobs for real and in the simulator, and compare."),
    **_of("lab.allocate", allocate="Divide GPUs among jobs, exactly, under an objective."),
    **_of(
        "lab.recipes",
        recipes="List the recipes.",
        recipe="Show one recipe: paper, parameters, needs.",
    ),
    **_of("lab.trace", trace="Inspect, convert and generate traces."),
    **_of("lab.serving.requests", requests="Inspect, convert and generate requests to models."),
    **_of("lab.serving.models", models="Check files of models, and print their JSON Schema."),
    **_of("lab.profile", profile="Measure ONNX models on this machine."),
    **_of(
        "lab.serving.live",
        serve="Serve ONNX models over HTTP, batched by a recipe.",
        load="Send requests to a server at their times, and measure.",
    ),
    **_of("live.web", lab="Watch recipes side by side as moving Gantt charts in a browser."),
    **_of("lab.lesson", lesson="Show the worked examples of a scheduling lecture as Gantt charts."),
    **_of("completion", completion="Print a shell completion script."),
}

EPILOG = """\b
Examples:
  ganger demo --report demo.html
  ganger simulate jobs.csv --cluster 8x8xV100 --recipe fifo,tiresias
  ganger up --gpus 4 && ganger submit --gpus 2 -- python train.py

Exit codes: 0 done, 1 a check failed, 2 wrong input, 3 a bug, 130 interrupted.
"""

job = LazyGroup(
    "job",
    [("Commands", _JOB)],
    "Commands for jobs.",
    "\b\nExamples:\n  ganger job queue -t running\n  ganger job update 12 --priority 5",
)
node = LazyGroup(
    "node",
    [("Commands", _NODE)],
    "Commands for nodes.",
    "\b\nExamples:\n  ganger node list\n  ganger node drain box-1",
)
policy = LazyGroup(
    "policy",
    [("Commands", _POLICY)],
    "Commands for the recipe that decides and for limits of tenants.",
    "\b\nExamples:\n  ganger policy set tiresias --dry-run\n  ganger policy quota",
)
daemon = LazyGroup(
    "daemon",
    [("Commands", _DAEMON)],
    "Commands for the daemon.",
    "\b\nExamples:\n  ganger daemon up --gpus 4\n  ganger daemon install --print",
)


cli = LazyGroup(
    "ganger",
    [("Simulate", _STUDY), ("Run jobs", _DAILY), ("Groups", _GROUPS)],
    "One scheduler for deep-learning work on GPU clusters, simulated and live.",
    EPILOG,
)
cli = click.version_option(__version__, prog_name="ganger")(cli)


def main() -> None:
    """Run the command line; every foreseen error is one line on standard error."""
    try:
        code = cli.main(prog_name="ganger", standalone_mode=False)
    except click.exceptions.Abort:
        code = _complain("interrupted", 130)
    except click.ClickException as error:
        error.show()
        code = 2
    except GangerError as error:
        code = _complain(str(error), 2)
    except InvariantError as error:
        code = _complain(f"this is a bug in a policy, an engine or Ganger: {error}", 3)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError:
        code = _complain("out of memory", 3)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        code = _complain(f"{where}{error.strerror or error}", 2)
    except Exception as error:
        if os.environ.get("GANGER_DEBUG"):
            raise
        text = f"unexpected {type(error).__name__}: {error}"
        code = _complain(f"{text} (a bug; GANGER_DEBUG=1 shows where, please report it)", 3)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(text: str, code: int) -> int:
    click.echo("\n".join(map(shown, f"ganger: {text}".split("\n"))), err=True)
    return code
