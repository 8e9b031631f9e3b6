"""Live engines: they make a plan true on real machines. Linux only.

Attempts and the local engine (docs/live.md); `agent/`: the node agent, with `agent/attempt/` for
one attempt's supervisor, folder, processes and cgroup; `slurm/` (docs/slurm.md), its commands and
their answers in `slurm/calls/`; `testing/`: a fake engine, and chaos, which makes any engine
unreliable.
"""
