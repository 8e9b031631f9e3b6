"""What a trial begins with that is a copy of another one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ganger.engines.agent.attempt.copied import begin_with


def test_files_folders_and_links_are_copied_once(tmp_path: Path) -> None:
    source, own = tmp_path / "source", tmp_path / "a" / "own"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "model.pt").write_text("old")
    (source / "last").symlink_to("deep/model.pt")
    os.mkfifo(source / "pipe")
    begin_with(own, source)
    assert (own / "last").read_text() == "old"
    assert sorted(each.name for each in own.iterdir()) == ["deep", "last"]
    (source / "deep" / "model.pt").write_text("new")
    begin_with(own, source)
    assert (own / "last").read_text() == "old", "it has checkpoints of its own"


def test_a_copy_that_was_interrupted_is_made_again(tmp_path: Path) -> None:
    source, own = tmp_path / "source", tmp_path / "own"
    begin_with(own, source)
    assert not list(own.iterdir()), "there is nothing to copy yet"
    source.mkdir()
    (source / "model.pt").write_text("whole")
    (own / ".copying").mkdir()
    (own / ".copying" / "model.pt").write_text("ha")
    begin_with(own, source)
    assert [(each.name, each.read_text()) for each in own.iterdir()] == [("model.pt", "whole")]


def test_folders_that_lie_too_deep_are_an_error_that_the_job_is_told(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.joinpath(*["a"] * 450).mkdir(parents=True)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        with pytest.raises(OSError, match="folders lie too deep in it"):
            begin_with(tmp_path / "own", source)
    finally:
        sys.setrecursionlimit(limit)
