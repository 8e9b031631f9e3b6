"""`python -m ganger.service SETTINGS`: what `ganger up` starts."""

import gc
import sys

gc.disable()  # what is imported stays: no collection of garbage looks through it, now or later
from ganger.service.serve import main  # noqa: E402

gc.freeze()
gc.enable()
sys.exit(main(sys.argv[1]))
