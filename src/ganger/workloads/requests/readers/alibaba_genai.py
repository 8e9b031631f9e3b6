"""Alibaba's GenTD26 (2026), requests for images: `gmt_create, predict_type, predict_status, ...,
groupId, ..., num_images_per_prompt, ..., checkpoint_model_version_id, num_lora`.

The model is the base model's version, the tenant the group, and a request has as many items as
images. Dates count from the first request. Requests that failed are kept: they came. Those without
a model or a number of images are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ganger.core.units import SECOND
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.requests.reading import SIZE, Reading, log, names
from ganger.workloads.requests.stream import delimited
from ganger.workloads.rows import Category, Count, Kind, Moment

HEADER = (
    "gmt_create",
    "predict_status",
    "groupId",
    "num_images_per_prompt",
    "checkpoint_model_version_id",
)


def read(path: Path, *, skip_bad: bool = False, ordered: bool = True) -> Requests:
    """The requests of such a trace. Raises BadInput, when they are read."""

    def rows(reading: Reading) -> Iterator[Chunk]:
        requests, status = reading.requests, Category()
        kinds: dict[str, Kind] = {
            "gmt_create": Moment(SECOND),
            "predict_status": status,
            "groupId": names(requests.tenants, required=False),
            "num_images_per_prompt": Count(0, SIZE.most, 0),
            "checkpoint_model_version_id": names(requests.models, required=False),
        }
        failed = 0
        for table in delimited(path, reading.complaints, kinds):
            model, items = table["checkpoint_model_version_id"], table["num_images_per_prompt"]
            reading.complaints.leave_out(
                table, model == requests.models.find(""), "they name no model"
            )
            reading.complaints.leave_out(table, items == 0, "they name no number of images")
            failed += int(
                (table.good & (table["predict_status"] != status.names.find("SUCCEED"))).sum()
            )
            columns = {"model": model, "tenant": table["groupId"], "items": items}
            yield reading.chunk(table, "gmt_create", columns, from_first=True)
        if failed:
            requests.remarks.note(f"{failed:,} requests did not succeed; they are kept")

    return log(path, rows, skip_bad=skip_bad, ordered=ordered)
