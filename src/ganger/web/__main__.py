"""`python -m ganger.web SETTINGS`."""

from __future__ import annotations

import sys

from ganger.web.serve import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
