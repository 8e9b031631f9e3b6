"""The old name of `ganger.mechanisms.ordering.admit`, which answers for one version."""

import warnings

from ganger.mechanisms.ordering.admit import *  # noqa: F403

warnings.warn(
    "ganger.mechanisms.admit is now ganger.mechanisms.ordering.admit", FutureWarning, stacklevel=2
)
