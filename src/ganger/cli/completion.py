"""Shell completion."""

from __future__ import annotations

import click


@click.command(epilog="\b\nExample:\n  ganger completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes `ganger` in SHELL."""
    from click.shell_completion import get_completion_class

    from ganger.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "ganger", "_GANGER_COMPLETE").source())
