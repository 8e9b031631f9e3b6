"""A trial of a search: it trains for some epochs, reports its loss after each, and goes on from its
checkpoint when it was stopped. The loss is a formula, so that the example needs no GPU:

    ganger submit --kind tune --gpus 2 --param lr=0.01,0.03,0.1,0.3 -- \\
        python examples/planes/trial.py --epochs 9
"""

from __future__ import annotations

import argparse
import math
import time

from ganger import sdk


def main() -> None:
    """Train the configuration that the search gave."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="what an epoch takes")
    options = parser.parse_args()
    rate = float(sdk.configuration.get("lr", "0.1"))
    kept = sdk.checkpoint_dir / "epoch"
    done = int(kept.read_text()) if kept.exists() else 0
    floor = 0.1 + abs(math.log10(rate / 0.1))
    for epoch in range(done + 1, options.epochs + 1):
        time.sleep(options.seconds)
        loss = floor + 1 / epoch
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(str(epoch))
        sdk.saved(epoch)
        sdk.report(epoch, final=epoch == options.epochs, loss=loss)
        sdk.progress(epoch, options.epochs, loss=loss)
        if sdk.should_checkpoint():
            sdk.leave(epoch)


if __name__ == "__main__":
    main()
