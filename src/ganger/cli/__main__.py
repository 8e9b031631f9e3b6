"""`python -m ganger.cli`."""

from ganger.cli.main import main

main()
