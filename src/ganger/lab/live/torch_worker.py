"""A job that trains with PyTorch on one core: `python trained.py STAMPS STEPS`.

It saves and leaves between two steps when asked to, and stamps as `paced` does; how long a step
takes is for the machine to say, so that it stamps 0 for it. Without STAMPS (an empty word) it
prints seconds of CPU a step.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch

from ganger import sdk

WIDTH, BATCH = 256, 256


def main(stamps: str, steps: str) -> None:
    """Take the steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(BATCH, WIDTH), torch.randn(BATCH, 1)

    def train() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    if not stamps:
        train()
        began = time.process_time()
        for _ in range(int(steps)):
            train()
        print((time.process_time() - began) / int(steps))
        return
    saved = sdk.checkpoint_dir / "model.pt"
    step = 0
    if saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        step = state["step"]
    sdk.should_checkpoint()  # from now on it is asked to leave, not told
    name = f"{os.environ.get('GANGER_JOB', '0')}.{os.environ.get('GANGER_ATTEMPT', '1')}"
    with Path(stamps, name).open("w", buffering=1) as file:

        def stamp() -> None:
            file.write(f"{time.monotonic_ns()} {step} 0\n")

        stamp()
        while step < int(steps):
            train()
            step += 1
            sdk.progress(step, int(steps))
            if step < int(steps) and sdk.should_checkpoint():
                stamp()
                torch.save({"model": model.state_dict(), "step": step}, saved)
                sdk.leave(step)
        stamp()


if __name__ == "__main__":
    main(*sys.argv[1:])
