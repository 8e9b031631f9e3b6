"""What sharing leaves of speeds, and what jobs and models use of GPUs.

`interference` is what company on a GPU leaves of speeds. How a GPU's time is divided by requests,
limits and rate controllers (`rates`), `lanes` and `partial_backprop` are taken from here by the
simulator, too. `slowdown` predicts interference from what models use alone (`gpu_use`), and that
from their graphs.
"""
