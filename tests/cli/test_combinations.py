"""Recipes by words: for jobs, services, requests, trials and for sharing; each may be several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.typed import typed
from ganger.cli.lab.combinations import combinations, halves
from ganger.core.errors import BadInput
from ganger.lab.serving.hosting import Traffic
from ganger.lab.simulating.setup import Setup

POOL = Path(__file__).parents[2] / "examples" / "one-pool"
NONE = {"inner": "fifo", "serving": "", "sharing": ""}


def test_a_recipe_for_services_and_a_router_are_one_word() -> None:
    assert halves("") == ("", "")
    assert halves("clockwork") == ("", "clockwork")
    assert halves("scale.threshold(up=0.5)") == ("scale.threshold(up=0.5)", "")
    both = "scale.threshold(up=0.5,down=0.1)", "clipper(step=2)"
    assert halves("+".join(both)) == halves(" + ".join(reversed(both))) == both
    for text, told in (
        ("clockwork+clipper", "clockwork and clipper decide over the same"),
        ("fifo+scale.threshold", "fifo and scale.threshold decide over the same"),
        ("tune.asha", "tune.asha decides over the trials of a search only"),
        ("clockwerk", "no recipe 'clockwerk'"),
        ("mark+clipper(step=0)", "step"),
    ):
        with pytest.raises(BadInput, match=told):
            halves(text)


def test_every_combination_runs_and_is_called_by_what_differs() -> None:
    alone = combinations("fifo,las", NONE)
    assert [(each.recipe, each.label) for each in alone] == [("fifo", ""), ("las", "")]
    words = {"inner": "tune.sha,tune.asha", "serving": "mark", "sharing": "aryl"}
    some = combinations("fifo", words)
    assert [each.label for each in some] == ["fifo, tuning tune.sha", "fifo, tuning tune.asha"]
    words = {"inner": "fifo", "serving": "mark+clipper,mark+clockwork", "sharing": "first,separate"}
    labels = [each.label for each in combinations("fifo", words)]
    assert labels[1] == "fifo, serving clipper, sharing separate", "mark is in all of them"
    assert len(set(labels)) == 4
    setup = combinations("fifo", words)[1].setup(Setup(inner="las"))
    assert (setup.inner, setup.serving, setup.sharing) == ("fifo", "mark", "separate")
    traffic = Traffic(None, None, "nexus")  # type: ignore[arg-type]
    assert [
        each.setup(Setup(traffic=traffic)).traffic.router  # type: ignore[union-attr]
        for each in combinations("fifo", {**words, "serving": "mark+clipper,mark"})[::2]
    ] == ["clipper", "nexus"]
    kept = combinations("fifo", {**words, "inner": ""})[0].setup(Setup(inner="las"))
    assert kept.inner == "las", "nobody asked for another"
    for word, told in (("nobody", "no recipe 'nobody'"), ("las", "does not say how services")):
        with pytest.raises(BadInput, match=told):
            combinations("fifo", {**NONE, "sharing": word})
    with pytest.raises(BadInput, match="names none"):
        combinations(" ", NONE)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example for a quarter of an hour."""
    folder = tmp_path_factory.mktemp("pool")
    for file in POOL.iterdir():
        text = file.read_text()
        for long, short in (("80m", "15m"), ("40m", "15m"), ('20m"', '8m"'), ("30m", "3m")):
            text = text.replace(long, short)
        (folder / file.name).write_text(text.replace('"10s"', '"30s"'))
    return folder


def test_words_take_the_place_of_what_a_scenario_says_in_one_report(small: Path) -> None:
    words = ("--training", "aryl", "--serving", "serve.triton", "--tuning", "tune.sha")
    rules = ("--sharing", "separate,aryl(every=1m)", "--workers", "1", "--json")
    done = typed(small, "simulate", "scenario.toml", *words, *rules)
    apart, lent = json.loads(done.stdout)["runs"]
    assert [apart["recipe"], lent["recipe"]] == [
        "aryl, sharing separate",
        "aryl, sharing aryl(every=1m)",
    ]
    assert apart["services"]["photos"]["attainment"] == pytest.approx(
        lent["services"]["photos"]["attainment"], abs=0.01
    )
    assert lent["experiments"][0]["recipe"] == "tune.sha"
    assert "loans" not in apart
    loans = lent["loans"]
    assert loans["loans"] >= loans["returns"] > 0
    assert loans["lent_gpu_hours"] >= loans["used_gpu_hours"] > 0
    assert loans["seconds"] == sorted(loans["seconds"])
    assert max(map(int, loans["lent"])) <= 8, "what there is for services"
    assert {"jobs", "services", "idle", "all"} <= lent["cost"].keys()
    assert lent["energy"]


def test_what_cannot_be_is_one_line(small: Path) -> None:
    for words, told in (
        (("--training", "clockwork"), "clockwork decides over requests"),
        (("--training", "hybrid.aryl"), "use it as --sharing hybrid.aryl"),
        (("--tuning", "clockwork"), "clockwork decides over requests"),
        (("--sharing", "separate(services=web)"), "no node is named 'web'"),
        (("--sharing", "aryl(notice=-1s)"), "notice"),
        (("--slo", "1s"), "a scenario says it"),
    ):
        done = typed(small, "simulate", "scenario.toml", *words, code=2)
        assert told in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
