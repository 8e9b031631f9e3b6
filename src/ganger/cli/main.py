"""The command line: lazy groups, one place where errors become sentences and exit codes."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from ganger import __version__
from ganger.core.errors import GangerError, InvariantError

_LIVE = {
    "up": ("ganger.cli.service", "Start the daemon on this machine."),
    "down": ("ganger.cli.service", "Stop the daemon; running jobs go on."),
    "status": ("ganger.cli.service", "Say whether the daemon runs, and how it does."),
    "submit": ("ganger.cli.submit", "Submit a command, a script or a job file."),
    "queue": ("ganger.cli.jobs", "List jobs: who runs, who waits and why."),
    "show": ("ganger.cli.jobs", "Show all about jobs."),
    "explain": ("ganger.cli.jobs", "Say why a job waits."),
    "logs": ("ganger.cli.jobs", "Print what a job wrote."),
    "wait": ("ganger.cli.jobs", "Wait until jobs are over."),
    "history": ("ganger.cli.jobs", "List jobs that are over."),
    "cancel": ("ganger.cli.jobs", "Cancel jobs."),
    "hold": ("ganger.cli.jobs", "Keep jobs from starting."),
    "release": ("ganger.cli.jobs", "Let held jobs go."),
    "update": ("ganger.cli.jobs", "Change priority and limits of jobs."),
    "requeue": ("ganger.cli.jobs", "Stop running jobs and put them back in line."),
    "suspend": ("ganger.cli.jobs", "Freeze running jobs."),
    "resume": ("ganger.cli.jobs", "Let drained nodes or suspended jobs go on."),
    "preempt": ("ganger.cli.jobs", "Preempt a job once, to see whether it comes back."),
    "nodes": ("ganger.cli.cluster", "List nodes."),
    "drain": ("ganger.cli.cluster", "Let nothing new start on nodes."),
    "fairshare": ("ganger.cli.cluster", "What each tenant has used and holds."),
    "policy": ("ganger.cli.cluster", "Show or change the recipe that decides."),
    "whatif": ("ganger.cli.cluster", "What other recipes or more nodes would make of the queue."),
    "shell": ("ganger.cli.shell", "Open a shell inside a job."),
    "agent": ("ganger.cli.shell", "Make this machine part of a daemon's cluster."),
    "install-service": ("ganger.cli.service", "Write a systemd unit for the daemon."),
}
_STUDY = {
    "demo": ("ganger.cli.simulate", "Replay the bundled workload under eight schedulers."),
    "simulate": ("ganger.cli.simulate", "Replay a trace under one or more recipes."),
    "recommend": ("ganger.cli.recommend", "Say which recipe to take for a trace, and how surely."),
    "replay": ("ganger.cli.replay", "Decide a run's log again and compare."),
    "parity": ("ganger.cli.parity", "Run jobs for real and in the simulator, and compare."),
    "allocate": ("ganger.cli.allocate", "Divide GPUs among jobs, exactly, under an objective."),
    "recipes": ("ganger.cli.recipes", "List the recipes."),
    "recipe": ("ganger.cli.recipes", "Show one recipe: paper, parameters, needs."),
    "trace": ("ganger.cli.trace", "Look at, convert and make up traces."),
    "lesson": (
        "ganger.cli.lesson",
        "The worked examples of a scheduling lecture, as Gantt charts.",
    ),
    "completion": ("ganger.cli.completion", "Print a shell completion script."),
}

_COMMANDS = {**_STUDY, **_LIVE}

EPILOG = """\b
Examples:
  ganger demo --report demo.html
  ganger simulate jobs.csv --cluster 8x8xV100 --recipe fifo,tiresias
  ganger up --gpus 4 && ganger submit --gpus 2 -- python train.py

Exit codes: 0 done, 1 a check failed, 2 wrong input, 3 a bug, 130 interrupted.
"""


class LazyGroup(click.Group):
    """Loads a command's module when it is called; `--help` loads none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order in which people meet them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, its module loaded."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(_COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and summaries, without loading anything."""
        for title, commands in (("Simulate", _STUDY), ("Run jobs", _LIVE)):
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ganger")
def cli() -> None:
    """One scheduler for deep-learning work on GPU clusters, simulated and live."""


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
    click.echo(f"ganger: {text}", err=True)
    return code
