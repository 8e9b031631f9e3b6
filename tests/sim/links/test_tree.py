"""Trees of links: which of them rings and parameter servers cross, and how a file states them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganger.core.books.links import Links
from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, Network, NodeSpec, Switch
from ganger.core.state.cluster import Nodes
from ganger.workloads.clusters import load_cluster

SWITCHES = (Switch("rack-0", "pod", 4.0), Switch("rack-1", "pod", 4.0), Switch("pod", "", 8.0))


def tree() -> Links:
    """Three racks of two nodes; the first two are below a pod."""
    network = Network(1.0, 2.0, SWITCHES)
    nodes = Nodes(ClusterSpec((NodeSpec(6, 1, "V100", nodes_per_rack=2),), network=network))
    return Links(nodes, network)


def crossed(links: Links, path: tuple[tuple[int, float], ...]) -> dict[str, float]:
    return {links.name(link): part for link, part in path}


def test_a_ring_enters_and_leaves_each_switch_below_its_top_once() -> None:
    links = tree()
    in_rack = crossed(links, links.ring({0: 1, 1: 1}))
    assert set(in_rack) == {
        "from node-0 up",
        "from above to node-0",
        "from node-1 up",
        "from above to node-1",
    }
    in_pod = set(crossed(links, links.ring({0: 1, 2: 1})))
    assert {"from rack-0 up", "from above to rack-1"} <= in_pod
    assert not any("pod" in name for name in in_pod)
    across = crossed(links, links.ring({0: 1, 4: 1}))
    assert across["from pod up"] == across["from rack-2 up"] == 1.0
    assert links.capacity[2 * 6 :] == [4.0, 4.0, 4.0, 4.0, 2.0, 2.0, 8.0, 8.0]


def test_servers_hear_all_workers_that_are_elsewhere() -> None:
    """Four workers on node 0 and one on node 1 with the only server: pushes of four of five pass
    the link to node 1; pulls the other way."""
    links = tree()
    push, pull = links.servers({0: 4, 1: 1}, {1: 1})
    assert crossed(links, push) == {"from node-0 up": 0.8, "from above to node-1": 0.8}
    assert crossed(links, pull) == {"from above to node-0": 0.8, "from node-1 up": 0.8}


FILE = """
format = "ganger.cluster/1"
[[nodes]]
count = 4
gpus = 8
gpu_type = "A100"
"""
HOSTS = "ip,DSW,PSW,ASW\na,G1,P1,S1\nb,G1,P2,S1\nc,G1,P1,S2\nd,G1,P1,S1\n"


def read(folder: Path, more: str) -> ClusterSpec:
    (folder / "hosts.csv").write_text(HOSTS)
    (folder / "lab.toml").write_text(FILE + more)
    return load_cluster(folder / "lab.toml")


def test_a_file_states_links(tmp_path: Path) -> None:
    more = "nodes_per_rack = 2\nuplink = 25\n[network]\nnode = 12.5\nrack = 50\n"
    more += '[[network.switches]]\nname = "rack-1"\nbandwidth = 30\n'
    spec = read(tmp_path, more)
    assert spec.network == Network(12.5, 50.0, (Switch("rack-1", "", 30.0),))
    assert Links(Nodes(spec), spec.network).capacity[::2] == [25.0] * 4 + [50.0, 30.0]


def test_lingjuns_hosts_are_laid_out_by_their_switches(tmp_path: Path) -> None:
    """S1 below P1 and S1 below P2 are two racks."""
    more = '[network]\nnode = 50\nrack = 400\npod = 800\ntopology = "hosts.csv"\n'
    spec = read(tmp_path, more)
    nodes = Nodes(spec)
    assert [nodes.racks[code] for code in nodes.rack[:4]] == ["P1/S1", "P1/S1", "P1/S2", "P2/S1"]
    assert spec.network is not None
    links = Links(nodes, spec.network)
    names = crossed(links, links.ring({0: 8, 3: 8}))
    assert {"from P1/S1 up", "from P1 up", "from above to P2"} <= set(names)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("[network]\nnode = 0\n", "node = 0"),
        ("[network]\nnode = 1\nrack = -1\n", "rack = -1"),
        ("[network]\nnode = 1\nrak = 1\n", "rak"),
        ("[network]\nnode = 1\npod = 1\n", "pod without topology"),
        ('[network]\nnode = 1\nswitches = [{name = "a", above = "b"}]\n', "no switch 'b'"),
        ('[network]\nnode = 1\nswitches = [{name = "a", above = "a"}]\n', "above itself"),
        ('[network]\nnode = 1\nswitches = [{name = ""}]\n', "no name"),
        ('[network]\nnode = 1\ntopology = "none.csv"\n', "none.csv"),
        ('[network]\nnode = 1\ntopology = "hosts.csv"\nswitches = [{name = "a"}]\n', "beside"),
    ],
)
def test_wrong_links_are_one_error(tmp_path: Path, more: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        read(tmp_path, more)


def test_as_many_hosts_as_nodes(tmp_path: Path) -> None:
    more = '[[nodes]]\ncount = 1\n[network]\nnode = 1\ntopology = "hosts.csv"\n'
    with pytest.raises(BadInput, match=r"5 nodes, 4 in hosts\.csv"):
        read(tmp_path, more)
