"""One self-contained HTML page that compares runs."""

from ganger.lab.report.build import render, write_report

__all__ = ["render", "write_report"]
