"""The lab: a trace under several recipes, side by side as Gantt charts that move."""

from __future__ import annotations

import re
import shlex
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ganger.client.shown import shown
from ganger.core.errors import BadInput
from ganger.lab.lessons.fields import choice, cluster, recipes, whole
from ganger.lab.lessons.pieces import PIECES
from ganger.web.background.playing import Played, Replay
from ganger.web.background.pool import Work
from ganger.web.door import PREFIX, TRACE_BYTES_MAX, form_of, session_of
from ganger.web.pages.frame import back_to, fill, html, json, page, pages_of
from ganger.web.sessions import masked

KINDS: Final = {
    "poisson": "Poisson arrivals", "philly": "Microsoft's Philly", "helios": "SenseTime's Helios",
    "gavel": "Gavel's evaluation", "file": "a file of mine", "demo": "the bundled workload",
}  # fmt: skip
"""Of the last two a trace is not made up: a file that is chosen in the browser; what is bundled."""
JOBS_MAX: Final = 200
TYPES: Final = ("V100", "A100", "H100", "P100", "T4", "K80")
DEFAULT: Final = {
    "kind": "poisson", "jobs": "40", "seed": "0", "cluster": "2x4xV100",
    "recipes": "fifo, backfill, srtf, las",
}  # fmt: skip
_JOBS: Final = whole("jobs", "jobs", 40, 1, JOBS_MAX)
_SEED: Final = whole("seed", "seed", 0, 0, 10**9)
_KIND: Final = choice("kind", "kind", tuple(KINDS))
_FILE_NAME: Final = re.compile(r"[^/\0-\x1f\x7f-\x9f]{1,100}")


async def lab(request: Request) -> Response:
    """The set-up, as its address has it. Nothing starts before a click."""
    view = {
        name: request.query_params.get(name, default)[:300] for name, default in DEFAULT.items()
    }
    works = [work for work in pages_of(request).pool.listed() if work.kind == "lab"]
    return page(
        request,
        "lab",
        "Lab",
        view=view,
        kinds=KINDS,
        jobs_max=JOBS_MAX,
        types=TYPES,
        bytes_max=TRACE_BYTES_MAX,
        works=works,
        pieces=PIECES,
    )


async def begin(request: Request) -> Response:
    """Replay it."""
    asked = asked_in({name: each[0] for name, each in form_of(request).items()})
    work = pages_of(request).pool.start("lab", asked)
    return back_to(request, f"/lab/{work.number}")


def asked_in(form: dict[str, str]) -> dict[str, Any]:
    """What a form asks for. Raises BadInput."""
    kind = _KIND.value(form.get("kind", ""))
    return {
        "kind": kind,
        "jobs": _JOBS.value(form.get("jobs", "")),
        "seed": _SEED.value(form.get("seed", "")),
        "cluster": cluster(form.get("cluster", "").strip(), "cluster"),
        "recipes": recipes(form.get("recipes", "")),
        **(_file(form.get("name", ""), form.get("text", "")) if kind == "file" else {}),
    }


def _file(name: str, text: str) -> dict[str, str]:
    """A file that was chosen in the browser, which read it. Raises BadInput."""
    if not text.strip():
        raise BadInput("no file is chosen", where="trace", mend="choose one that holds jobs")
    if not _FILE_NAME.fullmatch(name):
        raise BadInput(
            f"{shown(name[:40])} is not a valid name of a file", where="trace", mend="rename it"
        )
    if len(text) > TRACE_BYTES_MAX:
        raise BadInput(f"more than {TRACE_BYTES_MAX >> 20} MiB", where="trace", mend="take a part")
    return {"name": name, "text": text}


def _work(request: Request) -> Work:
    work = pages_of(request).pool.called(request.path_params["number"])
    if work is None or work.kind != "lab":
        raise HTTPException(404)
    return work


def command(asked: dict[str, Any], trace: str) -> str:
    """The command line that has the same figures; `trace`: its words for the trace."""
    under = shlex.quote(",".join(asked["recipes"]))
    return f"ganger simulate {trace} --cluster {asked['cluster']} --recipe {under}"


async def result(request: Request) -> Response:
    """One replay: how far it is, or its charts."""
    work = _work(request)
    asked = work.asked
    return page(
        request,
        "lab_result",
        "Lab",
        work=work,
        body=_body(request, work),
        shared=urlencode(
            {**{name: asked[name] for name in DEFAULT}, "recipes": ", ".join(asked["recipes"])}
        ),
    )


async def result_now(request: Request) -> Response:
    """The same, without the page around it."""
    return html(request, _body(request, _work(request)))


def _body(request: Request, work: Work) -> str:
    played = msgspec.json.decode(work.result, type=Played) if work.result else None
    session = session_of(request)
    return fill(
        "lab_body",
        work=work,
        played=played,
        command=command(work.asked, played.trace) if played else "",
        data=[_data(played, run) for run in played.runs] if played else [],
        arrivals=msgspec.json.encode(played.arrivals).decode() if played else "",
        prefix=request.scope[PREFIX],
        csrf=masked(session) if session and not session.read_only else "",
    )


def _data(played: Played, run: Replay) -> str:
    """What a script needs to draw a run and to say how it stands at any time, as JSON."""
    data = {
        "drawn": run.drawn,
        "slices": run.slices,
        "moments": run.moments,
        "held": run.held,
        "waiting": run.waiting,
        "ends": run.ends,
        "gpus": sum(played.nodes),
    }
    return msgspec.json.encode(data).decode()


async def decisions(request: Request) -> Response:
    """What every run decided, and why the others waited."""
    work = _work(request)
    if not work.result:
        raise HTTPException(404)
    played = msgspec.json.decode(work.result, type=Played)
    every = [{"decisions": run.decisions, "skipped": run.skipped} for run in played.runs]
    return json(request, every)


async def csv(request: Request) -> Response:
    """The figures of a replay as CSV."""
    work = _work(request)
    if not work.result:
        raise HTTPException(404)
    played = msgspec.json.decode(work.result, type=Played)
    headers = {"Content-Disposition": f'attachment; filename="lab-{work.number}.csv"'}
    return Response(figures_as_csv(played), headers=headers, media_type="text/csv")


def figures_as_csv(played: Played) -> str:
    """The figures of all runs as CSV, to the last digit."""
    names = list(played.runs[0].figures)
    lines = [",".join(("recipe", *names))]
    for run in played.runs:
        recipe = run.recipe.replace('"', '""')
        values = [run.figures[name] for name in names]
        cells = ["" if value is None else repr(value) for value in values]
        lines.append(",".join((f'"{recipe}"', *cells)))
    return "\n".join(lines) + "\n"


async def end(request: Request) -> Response:
    """Let a replay be."""
    work = _work(request)
    pages_of(request).pool.end(work)
    return back_to(request, "/lab")
