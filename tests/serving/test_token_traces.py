"""Token models with figures and a log that others published, where those files are there."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from ganger.core.units import SECOND
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.run import Setup, serve
from ganger.workloads.models.profiles import Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.formats import load_requests

TRACES = Path(os.environ.get("GANGER_TRACES", ""))
pytestmark = pytest.mark.skipif(
    not os.environ.get("GANGER_TRACES"), reason="GANGER_TRACES does not name a folder of traces"
)
HEAD = 'format = "ganger.models/1"\ndevices = [{ name = "A100" }]\n[[models]]\nname = "chat"\n'


def distserve(folder: Path, devices: int) -> tuple[Models, dict[str, list[float]]]:
    """OPT-13B on so many A100, and the coefficients in milliseconds: of prefill base, token and
    squared token; of decoding base, token of context and request."""
    path = TRACES / "distserve-profile" / "profiler-a100-80g.distserve.json"
    given = json.loads(path.read_text())["facebook/opt-13b"][str(devices)]
    base, token, squared = given["prefill"]
    rows = [
        (*given["decoding_smallbs"], f"largest = {given['decoding_large_small_bs_threshold']}"),
        (*given["decoding_largebs"], ""),
    ]
    text = f"""{HEAD}[[models.tokens]]
device = "A100"
devices = {devices}
prefill = {{ base = {base / 1e3}, token = {token / 1e3}, token_squared = {squared / 1e3} }}
""" + "".join(
        f"[[models.tokens.decode.parts]]\nbase = {fixed / 1e3}\ncontext_token = {context / 1e3}\n"
        f"request = {each / 1e3}\n{largest}\n"
        for fixed, context, each, largest in rows
    )
    (folder / "m.toml").write_text(text)
    return read_models(folder / "m.toml"), given


@pytest.mark.parametrize(("lane", "devices"), [("A100", 1), ("2xA100", 2)])
def test_one_request_takes_what_distserve_fitted(tmp_path: Path, lane: str, devices: int) -> None:
    models, given = distserve(tmp_path, devices)
    (tmp_path / "r.csv").write_text("arrival,model,prompt_tokens,output_tokens\n0,chat,700,100\n")
    run = serve(
        load_requests(tmp_path / "r.csv"),
        models,
        read_fleet(f"{lane}:1"),
        "serve.continuous-batching",
        Setup(),
    )
    base, token, squared = given["prefill"]
    fixed, context, each = given["decoding_smallbs"]
    first = base + token * 700 + squared * 700**2
    steps = sum(fixed + context * (700 + at) + each for at in range(99))
    assert run.metrics["ttft_mean_seconds"] == pytest.approx(first / 1e3, abs=1e-6)
    assert run.metrics["latency_mean_seconds"] == pytest.approx((first + steps) / 1e3, abs=1e-4)


def test_azures_code_is_served_sooner_by_batches_that_change(tmp_path: Path) -> None:
    """Five minutes of the log at twice its rate: the bursts that whole batches wait for are over
    sooner, and the same tokens are put out."""
    log = TRACES / "azure-llm-2023" / "AzureLLMInferenceTrace_code.csv.gz"
    models, _ = distserve(tmp_path, 1)
    requests = load_requests(log, model="chat").between(0, 300 * SECOND)
    setup = Setup(faster=2)
    runs = {
        recipe: serve(requests, models, read_fleet("A100:2"), recipe, setup).metrics
        for recipe in ("serve.triton(size=32)", "serve.continuous-batching")
    }
    whole, changing = runs.values()
    assert whole["output_tokens"] == changing["output_tokens"]
    for figure in ("latency_mean_seconds", "latency_p99_seconds", "ttft_p99_seconds"):
        slow, fast = whole[figure], changing[figure]
        assert slow is not None
        assert fast is not None
        assert fast < slow, figure


def test_whole_batches_take_what_splitwise_measured(tmp_path: Path) -> None:
    """Llama 2 70B on eight H100: prefill by tokens and steps by requests, as the medians of what
    was measured, give end to end what was measured: within 3 % on average, and 8 % at most."""
    found: dict[tuple[int, int], list[tuple[float, float, float]]] = defaultdict(list)
    with gzip.open(TRACES / "splitwise-perf" / "perf_model_a.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            of = row["model"], row["hardware"], row["tensor_parallel"], row["token_size"]
            if of == ("llama2-70b", "h100-80gb", "8", "128"):
                key = int(row["prompt_size"]), int(row["batch_size"])
                found[key].append(
                    (float(row["prompt_time"]), float(row["token_time"]), float(row["e2e_time"]))
                )
    middle = {key: np.median(np.array(rows), axis=0) / 1e3 for key, rows in found.items()}
    reads = {
        prompt * batch: took[0] for (prompt, batch), took in sorted(middle.items()) if batch == 1
    }
    steps = {batch: took[1] for (prompt, batch), took in sorted(middle.items()) if prompt == 512}
    assert len(reads) > 3
    assert len(steps) > 3
    for table in (reads, steps):  # noise of the measurement
        for at, above in zip(sorted(table), sorted(table)[1:], strict=False):
            table[above] = max(table[at], table[above])
    (tmp_path / "m.toml").write_text(f"""{HEAD}[[models.tokens]]
device = "A100"
prefill = {{ tokens = {sorted(reads)}, seconds = {[float(reads[at]) for at in sorted(reads)]} }}
decode = {{ batch = {sorted(steps)}, seconds = {[float(steps[at]) for at in sorted(steps)]} }}
""")
    models = read_models(tmp_path / "m.toml")
    errors: list[float] = []
    for (prompt, batch), took in middle.items():
        rows = f"0,chat,{prompt},128\n" * batch
        (tmp_path / "r.csv").write_text("arrival,model,prompt_tokens,output_tokens\n" + rows)
        for recipe in (
            "serve.triton(size=64)",
            "serve.continuous-batching(max_num_batched_tokens=100000)",
        ):
            run = serve(
                load_requests(tmp_path / "r.csv"), models, read_fleet("A100:1"), recipe, Setup()
            )
            mean = run.metrics["latency_mean_seconds"]
            assert mean is not None
            errors.append(mean / took[2] - 1)
    assert max(map(abs, errors)) < 0.08
    assert np.mean(np.abs(errors)) < 0.03
