"""`python -m ganger.service SETTINGS`: what `ganger up` starts."""

import sys

from ganger.service.serve import main

sys.exit(main(sys.argv[1]))
