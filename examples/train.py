"""Data-parallel training that Ganger may stop, resume, grow and shrink at any step.

Run it alone (`python train.py`), under torchrun, or as a job: `ganger submit -- python train.py`.

What makes it elastic: the *global* batch is fixed and is the next slice of the epoch's permutation,
however many workers share it, and a checkpoint holds the place in that permutation. So each sample
is seen once an epoch at any number of workers, and with a fixed number a run that was stopped and
resumed gives the same bits as one that was not.

With two workers or more it also measures how noisy its gradients are, from how much more the
workers' own differ from zero than their mean: what a policy such as pollux needs to know.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from ganger import sdk


def main() -> None:
    given = arguments()
    if "MASTER_ADDR" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    samples, labels = make_data(given.samples)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    parallel = DistributedDataParallel(model)
    noise = Noise(parallel)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=given.lr, momentum=0.9)

    place = {"step": 0, "epoch": 0, "seen": 0}  # where the run is
    checkpoint = sdk.checkpoint_dir / "train.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        place = state["place"]

    def save() -> None:
        if sdk.rank == 0:
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            made = checkpoint.with_suffix(".new")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "place": place}, made)
            made.rename(checkpoint)
        dist.barrier()  # nobody tears the group down while another still works

    steps = -(-given.samples // given.batch)
    while place["epoch"] < given.epochs:
        order = permutation(given, place["epoch"])
        batch = order[place["seen"] : place["seen"] + given.batch]
        mine = batch[sdk.rank :: sdk.world_size]
        loss = train(parallel, optimizer, noise, samples[mine], labels[mine], len(batch))
        record(given, place, mine, loss)
        place["step"] += 1
        place["seen"] += len(batch)
        if place["seen"] >= given.samples:
            place["epoch"], place["seen"] = place["epoch"] + 1, 0
        measured = {"batch_size": given.batch, **noise.measured}
        sdk.progress(place["step"], steps * given.epochs, loss=loss, **measured)
        if agreed_to_leave(given):
            save()
            del parallel  # before its group, see below
            dist.destroy_process_group()
            sdk.leave(place["step"])
    save()
    # What still holds the group when it ends waits for the group's thread, and this one with the
    # interpreter's lock, which the thread may want: torch 2.13 hangs then.
    del parallel
    dist.destroy_process_group()


class Noise:
    """The statistics of a model's gradients, averaged over steps. The squared norm of a worker's
    own gradient is taken where it passes by, before it is averaged with the others'."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.own = torch.zeros(())
        self.sums = [0.0, 0.0]
        self.steps = 0
        model.register_comm_hook(None, self.pass_by)

    def pass_by(self, state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.own += bucket.buffer().pow(2).sum()
        return allreduce_hook(None, bucket)

    def add(self, model: nn.Module, own: float, size: int) -> None:
        """A step was done: the mean over the workers of `own`, examples in the batch."""
        world = sdk.world_size
        if world > 1 and size % world == 0:
            mean = sum(p.grad.pow(2).sum().item() for p in model.parameters())
            found = sdk.gradient_statistics(own, size / world, mean, size)
            self.sums = [before + one for before, one in zip(self.sums, found, strict=True)]
            self.steps += 1

    @property
    def measured(self) -> dict[str, float]:
        """As `sdk.progress` takes them."""
        if not self.steps:
            return {}
        square, variance = (one / self.steps for one in self.sums)
        return {"grad_sqr": square, "grad_var": variance}


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, noise: Noise, x: torch.Tensor,
    y: torch.Tensor, size: int,
) -> float:  # fmt: skip
    """One step on this worker's part of a batch of `size`; the batch's mean loss."""
    optimizer.zero_grad()
    noise.own.zero_()
    # Gradients are averaged over workers, whose parts may differ in size: weigh by samples.
    loss = nn.functional.cross_entropy(model(x), y, reduction="sum") / size
    (loss * sdk.world_size).backward()
    optimizer.step()
    total = torch.stack([loss.detach(), noise.own / sdk.world_size])
    dist.all_reduce(total)
    noise.add(model, total[1].item(), size)
    return total[0].item()


def agreed_to_leave(given: argparse.Namespace) -> bool:
    """Whether Ganger wants the devices: rank 0 asks, all hear the same answer at the same step."""
    time.sleep(given.pause)
    flag = torch.tensor([int(sdk.rank == 0 and sdk.should_checkpoint())])
    dist.broadcast(flag, src=0)
    return bool(flag.item())


def make_data(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and which of four quarters they are in, the same on every worker."""
    generator = torch.Generator().manual_seed(1)
    samples = torch.randn(count, 16, generator=generator)
    return samples, (samples[:, 0] > 0).long() * 2 + (samples[:, 1] > 0).long()


def permutation(given: argparse.Namespace, epoch: int) -> torch.Tensor:
    """The order of an epoch, which any worker can make."""
    generator = torch.Generator().manual_seed(given.seed * 1_000_003 + epoch)
    return torch.randperm(given.samples, generator=generator)


def record(
    given: argparse.Namespace, place: dict[str, int], mine: torch.Tensor, loss: float
) -> None:
    """Write down which samples this worker saw, and the loss to the last bit."""
    if given.record:
        with Path(given.record, str(sdk.rank)).open("a") as file:
            seen = " ".join(map(str, mine.tolist()))
            file.write(f"{place['step']} {place['epoch']} {sdk.world_size} {loss.hex()} {seen}\n")


def arguments() -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32, help="samples a step, over all workers")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step")
    parser.add_argument("--record", default="", help="folder for what each worker saw")
    return parser.parse_args()


if __name__ == "__main__":
    main()
