"""Trains a network on one GPU until Ganger wants it to leave: half of the time computing, half of
it waiting for its data. `train.py RECORD [WIDTH] [PAUSE_SECONDS] [hook]`: each step's end and loss
are a line of RECORD."""

import os
import sys
import time
from itertools import count

import torch
from torch import nn

from ganger import sdk

record, width, pause, *hook = [*sys.argv[1:], *("8192", "0.006")[len(sys.argv) - 2 :]]
size = int(width)
torch.manual_seed(0)
net = nn.Sequential(*(nn.Linear(size, size, device="cuda", dtype=torch.bfloat16) for _ in "abc"))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
inputs = torch.randn(4096, size, device="cuda", dtype=torch.bfloat16)
processors = torch.cuda.get_device_properties(0).multi_processor_count
with open(record, "w", buffering=1) as lines:
    lines.write(f"{time.time()} processors {processors}\n")
    for step in count(1):
        time.sleep(float(pause))
        loss = net(inputs).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        lines.write(f"{time.time()} step {loss.item()}\n")
        sdk.progress(step, loss=loss.item())
        if hook:
            sdk.step()
        if sdk.should_checkpoint() or os.path.exists(record + ".done"):
            break
