"""Asks both models of a server, at http://127.0.0.1:8000 or where its argument says, many requests
at once, and prints why batches were formed. Only the standard library."""

from __future__ import annotations

import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"


def call(path: str, body: Any = None) -> Any:
    """JSON there and back."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(URL + path, data), timeout=30) as answer:
        return json.load(answer)


def classify(model: str) -> str:
    """The class of a random image, or why there is none."""
    image = [random.random() for _ in range(64)]
    tensor = {"name": "image", "shape": [1, 64], "datatype": "FP32", "data": image}
    try:
        answer = call(
            f"/v2/models/{model}/infer",
            {"inputs": [tensor], "parameters": {"deadline_ms": 500}},
        )
    except HTTPError as error:
        return f"{error.code} {json.load(error)['error']}"
    scores = answer["outputs"][0]["data"]
    return f"class {scores.index(max(scores))}"


if __name__ == "__main__":
    print("inputs:", call("/v2/models/small")["inputs"])
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(classify, ["small", "large"] * 500))
    print(f"{len(answers)} answers, the first:", *answers[:4], sep="\n  ")
    for model in ("small", "large"):
        stats = call(f"/v2/models/{model}/stats")["model_stats"][0]
        print(f"{model}: {stats['inference_count']} requests in {stats['execution_count']} batches")
        for reason, count in stats["reasons"]["batches"].items():
            print(f"  {count} batches: {reason}")
