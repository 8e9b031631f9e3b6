"""The commands of the README and the pages: found in ```-blocks and in `code`, and made to run.

`python tests/docs/commands.py` lists them, with the reason where one cannot run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`((?:ganger [a-z]|\.\.\. -)[^`]*)`")
_COMMAND: Final = re.compile(r"(?:\.venv/bin/)?(ganger|make|curl|sacct|export) ")

NOT_RUN: Final = (
    (r"^make (demo|test)$", "sets up an environment from the package index; CI begins with it"),
    (r"^sacct ", "needs a Slurm cluster"),
    (r"--engine slurm|--slurm\b|import-slurm", "needs a Slurm cluster; tests/service/test_slurm*"),
    (r"^export GANGER_HOME=~", "would leave the test's own folder"),
    (r"throughputs=simulation_throughputs", "needs published files; tests/recipes/test_gavel.py"),
    (r"^ganger install-service$", "writes into the user's systemd; tests/cli/test_live.py"),
    (r"^ganger shell ", "wants a terminal; tests/cli/test_live.py"),
    (r"^ganger up --shared$", "wants root and other users; tests/service/test_api.py"),
    (r"^ganger (agent|up --agents|up --listen) ", "wants an address; tests/engines/test_joining"),
    (r"^ganger parity", "runs real jobs for minutes; tests/lab/test_parity.py"),
    (r"^ganger up( --gpus 4| --recipe tiresias)?$", "the test has its daemon up already"),
    (r"^ganger daemon token --new ann$", "wants --shared, so root; tests/service/test_api.py"),
    (r"^ganger load ", "needs a server; tests/serving/live/test_load.py"),
    (r"^ganger service ", "wants a daemon of its own; tests/serving/live/front/test_service.py"),
    (r"^ganger up --serving", "the test has its daemon up already"),
    (r"^ganger serve ", "serves until it is ended; tests/serving/live"),
    (r"^curl -s localhost:8000/v2", "needs that server; tests/serving/live"),
    (r"^ganger profile ", "needs onnxruntime; tests/lab/test_profiling.py"),
    (r"^ganger open( --read-only)?$", "opens a browser; tests/web/test_browser.py"),
    (r"^ganger tune experiment\.toml --dry", "needs its file; tests/lab/tuning/test_forecast.py"),
    (r"^ganger recommend experiment\.toml", "needs its file; tests/lab/test_recommend_searches.py"),
    (r"^ganger (tune|simulate) small\.toml", "needs its file; tests/integrations/test_pages.py"),
    (r"^ganger tune (export|report) 12", "needs a search; tests/cli/test_tune_live.py"),
    (r"^ganger quota vision --budget 800$", "wants prices; tests/service/test_budgets.py"),
    (r"^ganger tune prune 12 /scratch/lr --keep best=1$", "wants a search"),
    (r"^ganger down$", "the test's own daemon is still needed"),
)  # fmt: skip
"""What cannot run in a test, by what it looks like, and where else it is seen to work."""
SPOKEN: Final = re.compile(
    r"^ganger (recipe NAME|job|node|policy|service|simulate|recommend|logs|cancel|submit|up|show"
    r"|explain|suspend|policy set|up --web|trace info|trace convert|requests synth|history|profile"
    r"|serve|load)$"
    r"|^ganger (submit --(wait|dry-run|json \.\.\.)|allocate --json|submit --resume.*"
    r"|simulate \.\.\. --report report\.html|simulate --profiles FILE|simulate --curves|whatif)$"
)
"""Names of commands in a sentence, which are not to be typed so."""


class Written(NamedTuple):
    """A command as it is written on a page."""

    page: str
    line: int
    text: str

    @property
    def reason(self) -> str:
        """Why it is not run; empty if it is."""
        return next((why for looks, why in NOT_RUN if re.search(looks, self.text)), "")


def written(page: str) -> list[Written]:
    """The commands of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [Written(page, text.count("\n", 0, at) + 1, one) for at, one in sorted(_all(text))]
    return [one for one in found if not SPOKEN.search(one.text)]


def _all(text: str) -> Iterator[tuple[int, str]]:
    blocks = list(_BLOCK.finditer(text))
    for block in blocks:
        if block[1] in ("", "sh", "bash"):
            body = re.sub(r"\\\n\s*", lambda found: " " * len(found[0]), block[2])
            at = block.start(2)
            for line in body.split("\n"):
                if _COMMAND.match(line):
                    bare = re.sub(r"\s+#.*", "", line).removeprefix(".venv/bin/")
                    parts = [bare] if bare.startswith(("curl", "sacct")) else bare.split(";")
                    yield from ((at + i, " ".join(part.split())) for i, part in enumerate(parts))
                at += len(line) + 1
    for code in _CODE.finditer(text):
        if not any(block.start() <= code.start() < block.end() for block in blocks):
            yield code.start(), code[1].replace("\\|", "|").strip()


def block(page: str, kind: str) -> str:
    """The page's first block of that kind."""
    return blocks(page, kind)[0]


def blocks(page: str, kind: str) -> list[str]:
    """The page's blocks of that kind."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [one[2] for one in _BLOCK.finditer(text) if one[1] == kind]


def pythons(page: str) -> list[str]:
    """The page's programmes that import ganger."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        body
        for kind, body in _BLOCK.findall(text)
        if kind == "python" and "import ganger\n" in body
    ]


if __name__ == "__main__":
    for page in PAGES:
        for one in written(page):
            print(f"{one.page}:{one.line}: {one.text}{'    # ' * bool(one.reason)}{one.reason}")
