"""Do our BentoML and our Ray Serve decide as the real ones do?

    make peers

Each peer is installed in an environment of its own. The same random states go to our mechanism and
to the peer's own functions; benchmarks/peers.md says where they differ.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from provenance import ROOT, made, write

from ganger.core.serving.world import Known, Lane, Latencies, World
from ganger.core.state.facts import Window
from ganger.core.units import SECOND
from ganger.mechanisms.scaling.replicas import Concurrency
from ganger.mechanisms.serving.queues import Fifo
from ganger.recipes.serving.cork import Cork, Fit

HERE = Path(__file__).parent
PAGE = HERE.parent / "peers.md"
State = dict[str, Any]


class Part(NamedTuple):
    """What is compared: its name on the page, states, the peer's answers and ours."""

    recipe: str
    what: str
    states: list[State]
    theirs: list[Any]
    ours: list[Any]

    def kinds(self) -> int:
        """How many different answers the peer gave."""
        return len(set(map(str, self.theirs)))

    def differ(self) -> list[int]:
        """The states in which the answers are not the same."""
        return [
            at
            for at, (one, other) in enumerate(zip(self.theirs, self.ours, strict=True))
            if not same(one, other)
        ]


def same(one: Any, other: Any) -> bool:
    """Equal; numbers with a fraction to a millionth of a millionth."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return abs(one - other) <= 1e-12 * max(1.0, abs(one))


def ask(peer: str, states: dict[str, list[State]]) -> dict[str, Any]:
    """The peer's answers. Raises CalledProcessError where it does not run."""
    python = ROOT / ".peers" / peer / "bin" / "python"
    done = subprocess.run(
        [python, HERE / f"answers_of_{peer}.py"],
        input=json.dumps(states),
        text=True,
        check=True,
        stdout=subprocess.PIPE,
        cwd=python.parent,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# ---------------------------------------------------------------------- BentoML


def waiting(draw: random.Random) -> State:
    """Requests that wait (microseconds, as seconds) when a batch has just ended."""
    latency = draw.choice([20, 100, 500, 60_000])
    count = draw.randint(1, draw.choice([3, 12, 60]))
    now = 100 * SECOND
    span = draw.choice([0.1, 0.5, 1.5]) * min(latency, 1000) / 1000 * SECOND
    came = sorted(now - round(draw.random() * span) for _ in range(count))
    return {
        "latency_ms": latency,
        "size": draw.choice([4, 16, 100]),
        "each": draw.choice([1e-6, 0.0005, 0.002, 0.01]) * (0.5 + draw.random()),
        "base": draw.random() * 0.02,
        "wait": draw.choice([0.0, 0.01, 0.05, 0.3]) * draw.random(),
        "now": now / SECOND,
        "came": [at / SECOND for at in came],
    }


def batches(draw: random.Random) -> State:
    """Batches that end one after the other."""
    each, base = draw.random() * 0.01, draw.random() * 0.02
    at, found = 0, []
    for _ in range(draw.randint(1, 80)):
        requests = draw.randint(1, draw.choice([1, 3, 30]))
        took = max(round((base + each * requests) * (0.8 + 0.4 * draw.random()) * SECOND), 1)
        waited = round(draw.random() * 0.05 * SECOND)
        at += took + round(draw.random() * 0.5 * SECOND)
        found.append((at / SECOND, requests, waited / SECOND, took / SECOND))
    return {"latency_ms": draw.choice([20, 100, 60_000]), "batches": found}


def our_batch(state: State) -> list[int]:
    """How many requests our recipe gives up, and sends."""
    cork = Cork(state["size"], state["latency_ms"] * SECOND // 1000)
    world = World([Known("m", {("gpu", 1.0): Latencies([0] * 101, [0] * 101)})], [Lane(0, "gpu")])
    world.requests.add({"arrival": [round(at * SECOND) for at in state["came"]]})
    world.open, world.now = len(state["came"]), round(state["now"] * SECOND)
    queue = Fifo(0, 0)
    queue.push(world, range(len(state["came"])))
    fit = Fit(state["each"], state["base"], state["wait"], sent=1000)
    form = cork.form(world, {(0, 0): fit}, queue, world.lanes[0])
    return [len(state["came"]) - world.open, form.size]


def our_fit(state: State) -> list[float]:
    """Our line, and mean wait."""
    most = state["latency_ms"] / 1000
    fit = Fit(min(2.0, most * 2 / 30), min(1.0, most / 30))
    for at, requests, waited, took in state["batches"]:
        fit.note(requests, took, waited, round(at * SECOND))
    return [fit.each, fit.base, fit.wait]


def bentoml(count: int) -> tuple[str, list[Part]]:
    """Our `serve.bentoml` beside the installed package."""
    draw = random.Random(1)
    asked = {
        "decide": [waiting(draw) for _ in range(count)],
        "fit": [batches(draw) for _ in range(count)],
    }
    theirs = ask("bentoml", asked)
    pairs: list[tuple[str, str, str, Callable[[State], Any]]] = [
        ("decide", "decided", "requests given up, requests sent", our_batch),
        ("fit", "fitted", "the fitted line, the mean wait", our_fit),
    ]
    return f"bentoml {theirs['version']}", [
        Part("serve.bentoml", what, asked[key], theirs[answer], [*map(ours, asked[key])])
        for key, answer, what, ours in pairs
    ]


# ---------------------------------------------------------------------- Ray Serve


def windows(draw: random.Random) -> State:
    """The requests that were open in windows that follow each other, and what is configured."""
    have, target = draw.randint(1, 20), draw.choice([1.0, 2.0, 5.0, 0.5 + draw.random()])
    span = draw.choice([5, 10, 20])
    level = have * target * draw.choice([0.1, 0.7, 1.0, 1.3, 3.0])
    state: State = {
        "have": have,
        "target": target,
        "look_back": draw.choice([span, 30, 60]),
        "up_delay": draw.choice([0, 10, 30]),
        "down_delay": draw.choice([0, 30, 100]),
        "up": draw.choice([0.3, 1.0, 2.0]),
        "down": draw.choice([0.2, 1.0]),
        "span": span,
        "open": [
            draw.choice([float(round(level)), level * 2 * draw.random()])
            for _ in range(draw.randint(1, 12))
        ],
    }
    rule = Concurrency(1, state["look_back"] * SECOND, 0, 0, 1, 1)
    state["looks"] = [
        (each.until / SECOND, rule._open(seen[: at + 1]))
        for seen in [reported(state)]
        for at, each in enumerate(seen)
    ]
    return state


def reported(state: State) -> list[Window]:
    """The windows as services report them."""
    span = state["span"] * SECOND
    return [
        Window(at * span, (at + 1) * span, {"ongoing": open_})
        for at, open_ in enumerate(state["open"])
    ]


def our_replicas(state: State) -> list[int]:
    """What our rule wants after each window of a service of one replica at least, until the first
    change."""
    rule = Concurrency(
        state["target"],
        state["look_back"] * SECOND,
        state["up_delay"] * SECOND,
        state["down_delay"] * SECOND,
        state["up"],
        state["down"],
    )
    seen, found = reported(state), list[int]()
    for at, window in enumerate(seen):
        wanted = rule.wanted(state["have"], 0, window.until, seen[: at + 1])
        found.append(max(wanted, 1))  # a service keeps as many as it has at least
        if found[-1] != state["have"]:
            break
    return found


def ray(count: int) -> tuple[str, list[Part]]:
    """Our `scale.reactive` beside the installed package."""
    draw = random.Random(2)
    states = [windows(draw) for _ in range(count)]
    theirs = ask("ray", {"decide": states})
    return f"ray[serve] {theirs['version']}", [
        Part(
            "scale.reactive",
            "replicas wanted after each window, until they change",
            states,
            theirs["decided"],
            [*map(our_replicas, states)],
        )
    ]


HEAD = """# Beside the real ones

Made by `make peers`: {made}.

The peers are the published packages, each in an environment of its own. Random states go to their
own functions and to our mechanisms; an answer is the same where every number is (fractions to
1e-12). Of BentoML the loop of its dispatcher runs, with clock, sleep and batch stood for: a look
while a batch still runs, and one right after it. Of Ray Serve the default policy with its delays
runs, once after each window. The mean over the look-back, which Ray takes from its metrics, is
ours on both sides.

| recipe | peer | compared | states | different answers of the peer | ours the same |
|:---|:---|:---|---:|---:|---:|
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--states", type=int, default=1000)
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    rows, differences = [], 0
    for peer in (bentoml, ray):
        version, parts = peer(args.states)
        for part in parts:
            differ = part.differ()
            differences += len(differ)
            rows.append(
                f"| `{part.recipe}` | {version} | {part.what} | {len(part.states):,} |"
                f" {part.kinds():,} | {len(part.states) - len(differ):,} |"
            )
            print(rows[-1], flush=True)
            for at in differ[:3]:
                print(
                    f"state {part.states[at]}: {part.theirs[at]}, ours {part.ours[at]}",
                    file=sys.stderr,
                )
    if not args.no_write:
        write(PAGE, HEAD.format(made=made()) + "\n".join(rows) + "\n")
    sys.exit(bool(differences))


main()
