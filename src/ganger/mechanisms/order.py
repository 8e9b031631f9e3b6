"""The old name of `ganger.mechanisms.ordering.order`, which answers for one version."""

import warnings

from ganger.mechanisms.ordering.order import *  # noqa: F403

warnings.warn(
    "ganger.mechanisms.order is now ganger.mechanisms.ordering.order", FutureWarning, stacklevel=2
)
