"""A Grafana dashboard over the daemon's figures."""

from __future__ import annotations

from typing import Any, Final

_PANELS: Final[tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...]] = (
    ("GPUs", "timeseries", "short", (("sum by (state) (ganger_gpus)", "{{state}}"),)),
    ("GPUs in use", "gauge", "percentunit", (
        ('sum(ganger_gpus{state="held"}) / sum(ganger_gpus)', ""),)),
    ("Jobs by phase", "timeseries", "short", (
        ('sum by (phase) (ganger_jobs{phase=~"blocked|pending|starting|running|suspended"})',
         "{{phase}}"),)),
    ("Waiting jobs by tenant", "timeseries", "short", (
        ('sum by (tenant) (ganger_jobs{phase="pending"})', "{{tenant}}"),)),
    ("Wait for the first start", "timeseries", "s", (
        ("histogram_quantile(0.5, sum by (le) (rate(ganger_job_wait_seconds_bucket[1h])))", "p50"),
        ("histogram_quantile(0.9, sum by (le) (rate(ganger_job_wait_seconds_bucket[1h])))", "p90"),
    )),
    ("Slowdown of finished jobs", "timeseries", "short", (
        ("histogram_quantile(0.5, sum by (le) (rate(ganger_job_slowdown_ratio_bucket[6h])))",
         "p50"),
        ("histogram_quantile(0.9, sum by (le) (rate(ganger_job_slowdown_ratio_bucket[6h])))",
         "p90"),
    )),
    ("GPU time by outcome", "timeseries", "short", (
        ("sum by (outcome) (rate(ganger_gpu_seconds_total[30m]))", "{{outcome}}"),)),
    ("GPU time by tenant", "timeseries", "short", (
        ("sum by (tenant) (rate(ganger_gpu_seconds_total[30m]))", "{{tenant}}"),)),
    ("Idle GPUs", "timeseries", "short", (
        ("ganger_idle_gpus", "GPUs"), ("ganger_idle_jobs", "jobs"))),
    ("Preemptions an hour", "timeseries", "short", (
        ("sum by (cause) (increase(ganger_preemptions_total[1h]))", "{{cause}}"),)),
    ("Refusals an hour", "timeseries", "short", (
        ("sum by (reason) (increase(ganger_plan_refusals_total[1h]))", "{{reason}}"),)),
    ("Time of a decision", "timeseries", "s", (
        ("histogram_quantile(0.99, sum by (le)"
         " (rate(ganger_decision_duration_seconds_bucket[10m])))", "p99"),
        ("rate(ganger_decision_duration_seconds_sum[10m])"
         " / rate(ganger_decision_duration_seconds_count[10m])", "mean"),
    )),
    ("Recipe", "table", "", (("ganger_build_info", ""),)),
)  # fmt: skip
_WIDTH, _HEIGHT = 12, 8


def dashboard() -> dict[str, Any]:
    """The dashboard, to be imported into Grafana; it asks for the Prometheus that it is to read."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels = []
    for number, (title, kind, unit, queries) in enumerate(_PANELS):
        place = {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
        panels.append(
            {
                "id": number + 1,
                "title": title,
                "type": kind,
                "gridPos": place,
                "datasource": source,
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": [
                    {
                        "refId": chr(65 + i),
                        "expr": query,
                        "legendFormat": legend,
                        "datasource": source,
                        **({"format": "table", "instant": True} if kind == "table" else {}),
                    }
                    for i, (query, legend) in enumerate(queries)
                ],
            }
        )
    return {
        "title": "Ganger",
        "uid": "ganger",
        "tags": ["ganger"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "panels": panels,
        "templating": {
            "list": [
                {
                    "name": "source",
                    "type": "datasource",
                    "query": "prometheus",
                    "label": "Prometheus",
                }
            ]
        },
    }
