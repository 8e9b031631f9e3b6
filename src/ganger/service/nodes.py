"""The cluster that machines make up: what they offer, and what they must not change."""

from __future__ import annotations

from collections.abc import Sequence

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.workloads.clusters import describe


def cluster_of(nodes: Sequence[NodeSpec]) -> ClusterSpec:
    """A cluster of these nodes, its GPU types described where they are known. Raises BadInput."""
    return describe(ClusterSpec(tuple(nodes), name="live")).check("--gpus")


def refuse_others(cluster: ClusterSpec, nodes: Sequence[NodeSpec]) -> None:
    """Raise BadInput if a node has not the GPUs that the cluster knows it by."""
    known = {spec.name: spec for spec in cluster.nodes}
    for spec in nodes:
        before = known.get(spec.name, spec)
        if (before.gpus, before.gpu_type) != (spec.gpus, spec.gpu_type):
            had = f"{before.gpus} {before.gpu_type}".strip()
            has = f"{spec.gpus} {spec.gpu_type}".strip()
            raise BadInput(
                f"it had {had} GPUs and now offers {has}",
                where=f"node {spec.name!r}",
                mend="give it another --name, or the GPUs that it had",
            )
