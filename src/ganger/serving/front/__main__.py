"""`python -m ganger.serving.front SETTINGS`: the front of a service."""

import sys

from ganger.serving.front.process import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
