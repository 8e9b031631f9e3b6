"""What the installed Ray Serve does in the states that come on standard input; JSON on standard
output. It runs in Ray's environment, and needs nothing of ours."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from ray.serve import autoscaling_policy as real
from ray.serve.config import AutoscalingConfig, AutoscalingContext

POLICY = real._apply_autoscaling_config(real.replica_queue_length_autoscaling_policy)


def decided(state: dict[str, Any]) -> list[int]:
    """The replicas wanted after each look, until the first change: (when, requests open)."""
    config = AutoscalingConfig(
        min_replicas=1,
        max_replicas=1_000_000,
        target_ongoing_requests=state["target"],
        upscale_delay_s=state["up_delay"],
        downscale_delay_s=state["down_delay"],
        upscaling_factor=state["up"],
        downscaling_factor=state["down"],
        look_back_period_s=state["look_back"],
        metrics_interval_s=1.0,
    )
    have, kept = state["have"], dict[str, Any]()
    found: list[int] = []
    for now, open_ in state["looks"]:
        real.time = SimpleNamespace(time=lambda now=now: now)
        context = AutoscalingContext(
            deployment_id=None,
            deployment_name="m",
            app_name="m",
            current_num_replicas=have,
            target_num_replicas=have,
            running_replicas=[],
            total_num_requests=open_,
            total_queued_requests=0,
            aggregated_metrics={},
            raw_metrics={},
            capacity_adjusted_min_replicas=1,
            capacity_adjusted_max_replicas=1_000_000,
            policy_state=kept,
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=now,
            config=config,
        )
        wanted, kept = POLICY(context)
        found.append(max(wanted, 1))
        if found[-1] != have:
            break
    return found


asked = json.load(sys.stdin)
json.dump(
    {"version": version("ray"), "decided": [decided(state) for state in asked["decide"]]},
    sys.stdout,
)
