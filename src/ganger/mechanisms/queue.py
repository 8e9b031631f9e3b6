"""The old name of `ganger.mechanisms.ordering.queue`, which answers for one version."""

import warnings

from ganger.mechanisms.ordering.queue import *  # noqa: F403

warnings.warn(
    "ganger.mechanisms.queue is now ganger.mechanisms.ordering.queue", FutureWarning, stacklevel=2
)
