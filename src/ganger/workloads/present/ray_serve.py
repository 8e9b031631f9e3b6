"""Ray Serve: the YAML of `serve build` and `serve deploy` (production guide, 2.60)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ganger.core.errors import BadInput
from ganger.workloads.present.settings import (
    UNKNOWN,
    Present,
    flat,
    number_of,
    plain,
    whole_of,
    words_of,
)

_SCALING: Final = {
    "target_ongoing_requests": ("target", ""),
    "look_back_period_s": ("look_back", "s"),
    "upscale_delay_s": ("up_delay", "s"),
    "downscale_delay_s": ("down_delay", "s"),
    "upscaling_factor": ("up", ""),
    "downscaling_factor": ("down", ""),
}
"""Fields of `autoscaling_config`, the parameters of `scale.reactive`, and their unit."""
_WHY: Final = {
    "max_ongoing_requests": "batches are made in code (@serve.batch): write power-of-two(size=...)",
    "max_queued_requests": "queues have no limit",
    "autoscaling_config": "the service and the cluster limit their number",
    "num_replicas": "the service and the cluster limit their number",
    "ray_actor_options": "the service states what replicas occupy",
    "user_config": "it is the application's",
    "name": "it does not change when requests run",
    "graceful_shutdown_timeout_s": "batches that have begun end",
    "health_check_period_s": "nothing is unhealthy",
    "health_check_timeout_s": "nothing is unhealthy",
}
_AUTO: Final = "auto"


def ray_serve(where: str, document: Mapping[str, Any]) -> Present:
    """What the one deployment says that has replicas of its own, or the first of several. Raises
    BadInput."""
    applications = document["applications"]
    deployments = [
        each
        for application in (applications if isinstance(applications, list) else [])
        for each in _listed(application)
    ]
    if not deployments:
        raise BadInput("it has no deployment", where=where, mend="add `deployments`")
    first = deployments[0]
    known = flat(first)
    auto = first.get("num_replicas") == _AUTO or bool(first.get("autoscaling_config"))
    read: dict[str, str] = {}
    scaling = ""
    if auto:
        stated = []
        for name, (parameter, unit) in _SCALING.items():
            key = f"autoscaling_config.{name}"
            if key in known:
                value = number_of(known[key], f"{where}: {key}", 0 if unit else 1e-3, 1e9)
                stated.append(f"{parameter}={words_of(value)}{unit}")
                read[key] = f"{known[key]}"
        scaling = f"scale.reactive({','.join(stated)})" if stated else "scale.reactive"
    elif "num_replicas" in known:
        count = whole_of(known["num_replicas"], f"{where}: num_replicas", 1, 10_000)
        scaling = f"scale.static-peak(replicas={count})"
        read["num_replicas"] = f"{count}"
    ignored = {key: _why(key) for key in known if key not in read}
    for each in deployments[1:]:
        ignored[f"deployments[{plain(each.get('name', '?'))}]"] = (
            "one deployment is compared, the first"
        )
    for key in document:
        if key != "applications":
            ignored[plain(key)] = "it does not change when requests run"
    return Present(where, "serve.power-of-two", scaling, read, ignored)


def _listed(application: Any) -> list[Mapping[str, Any]]:
    given = application.get("deployments") if isinstance(application, Mapping) else None
    every = given if isinstance(given, list) else []
    return [each for each in every if isinstance(each, Mapping)]


def _why(key: str) -> str:
    return _WHY.get(key.split(".")[0].split("[")[0], UNKNOWN)
