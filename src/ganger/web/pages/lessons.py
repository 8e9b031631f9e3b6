"""The lecture's pieces: inputs as fields, worked out by the product in a process of its own."""

from __future__ import annotations

import csv as csv_files
import io
import shlex
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ganger.lab.lessons.pieces import LECTURE, LESSONS, PIECES, Piece
from ganger.web.background.pool import Work
from ganger.web.door import PREFIX, form_of, session_of
from ganger.web.pages.frame import back_to, fill, html, page, pages_of
from ganger.web.sessions import masked

SHOWN_MAX: Final = 1000
"""Letters of an input that a page's address gives."""


async def lessons(request: Request) -> Response:
    """All of them."""
    return page(request, "lessons", "Lessons", pieces=PIECES, lecture=LECTURE)


def _piece(request: Request) -> Piece:
    piece = LESSONS.get(request.path_params["name"])
    if piece is None:
        raise HTTPException(404)
    return piece


def _shown(request: Request, piece: Piece, values: dict[str, str], **more: Any) -> Response:
    return page(
        request,
        "lesson",
        piece.title,
        piece=piece,
        values=values,
        lecture=LECTURE,
        shared=urlencode(values),
        **more,
    )


async def lesson(request: Request) -> Response:
    """Its inputs, as its address has them. Nothing starts before a click."""
    piece = _piece(request)
    values = {
        field.name: request.query_params.get(field.name, field.default)[:SHOWN_MAX]
        for field in piece.fields
    }
    return _shown(request, piece, values, work=None, body="", command="")


async def begin(request: Request) -> Response:
    """Work it out."""
    piece = _piece(request)
    given = {name: each[0] for name, each in form_of(request).items() if name != "csrf"}
    piece.values(given)
    asked = {"name": piece.name, "values": piece.texts(given)}
    work = pages_of(request).pool.start("lesson", asked)
    return back_to(request, f"/lessons/{piece.name}/{work.number}")


def _work(request: Request, piece: Piece) -> Work:
    work = pages_of(request).pool.called(request.path_params["number"])
    if work is None or work.kind != "lesson" or work.asked["name"] != piece.name:
        raise HTTPException(404)
    return work


def command(piece: Piece, values: dict[str, str]) -> str:
    """The command line that has the same figures: what differs from the defaults is set."""
    own = [f for f in piece.fields if values[f.name] != f.default]
    words = [f"--set {shlex.quote(f'{field.name}={values[field.name]}')}" for field in own]
    return " ".join(["ganger lesson", piece.name, *words])


async def result(request: Request) -> Response:
    """What came of it, below its inputs."""
    piece = _piece(request)
    work = _work(request, piece)
    values = work.asked["values"]
    return _shown(
        request,
        piece,
        values,
        work=work,
        body=_body(request, piece, work),
        command=command(piece, values),
    )


async def result_now(request: Request) -> Response:
    """The same, without the page around it."""
    piece = _piece(request)
    return html(request, _body(request, piece, _work(request, piece)))


def _body(request: Request, piece: Piece, work: Work) -> str:
    session = session_of(request)
    made = msgspec.json.decode(work.result) if work.result else None
    return fill(
        "lesson_body",
        piece=piece,
        work=work,
        parts=[_part(part) for part in made["parts"]] if made else [],
        title=made["title"] if made else "",
        prefix=request.scope[PREFIX],
        csrf=masked(session) if session and not session.read_only else "",
    )


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """A part with its data for the script that draws it, or its cells as text."""
    if "rows" in part and "columns" in part:
        numbers = [
            any(not isinstance(row[at], str) for row in part["rows"])
            for at in range(len(part["columns"]))
        ]
        return {**part, "numbers": numbers, "cells": [[cell(c) for c in r] for r in part["rows"]]}
    if "text" in part:
        return part
    drawn = {key: value for key, value in part.items() if key not in ("jobs", "intervals")}
    title = part.get("bars") or part.get("lines") or part["chart"]
    return {"figure": title, "words": part.get("words", ""), "data": as_json(drawn)}


def as_json(value: Any) -> str:
    """Data for an attribute, which the template escapes."""
    return msgspec.json.encode(value).decode()


def cell(value: str | float) -> str | Markup:
    """A figure as people read it; its last digit is in the CSV."""
    if isinstance(value, str):
        return value
    return Markup('<span title="{!r}">{}</span>').format(value, f"{value:,.6g}")


async def csv(request: Request) -> Response:
    """Its tables as CSV, one below the other, to the last digit."""
    piece = _piece(request)
    work = _work(request, piece)
    if not work.result:
        raise HTTPException(404)
    text = io.StringIO()
    write = csv_files.writer(text, lineterminator="\n").writerow
    for part in msgspec.json.decode(work.result)["parts"]:
        if "table" in part:
            write(part["columns"])
            for row in part["rows"]:
                write([cell if isinstance(cell, str) else repr(cell) for cell in row])
            text.write("\n")
    headers = {"Content-Disposition": f'attachment; filename="{piece.name}-{work.number}.csv"'}
    return Response(text.getvalue(), headers=headers, media_type="text/csv")


async def end(request: Request) -> Response:
    """Let it be."""
    piece = _piece(request)
    pages_of(request).pool.end(_work(request, piece))
    return back_to(request, f"/lessons/{piece.name}")
