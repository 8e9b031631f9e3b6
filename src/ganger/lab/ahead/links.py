"""Which link between nodes slows a job that computes, and which jobs share that link."""

from __future__ import annotations

from ganger.client.answers import Explanation
from ganger.core.profiles import Profiles
from ganger.core.state.jobs import Phase
from ganger.lab.ahead.explaining import HOLDERS_MAX, Scene, jobs_named
from ganger.sim.links.grains import MeanGrain
from ganger.sim.links.sharing import terms_of
from ganger.sim.physics import Physics


def explain_links(scene: Scene, row: int, answer: Explanation) -> None:
    """Say which link slows the job, by what is known of the models that run; nothing if none does,
    or if the cluster file states no links."""
    kernel = scene.kernel
    jobs, oracle = kernel.jobs, kernel.view.oracle
    if kernel.nodes.spec.network is None or oracle is None:
        return
    held = {
        job: placement
        for job, placement in sorted(kernel.placements().items())
        if jobs.phase[job] in (Phase.STARTING, Phase.RUNNING)
    }
    models = {jobs.models[jobs.model[job]] for job in held}
    known = Profiles({model: oracle.profile(model) for model in models})
    physics = Physics(kernel.nodes, known)
    if physics.links is None or row not in held:
        return
    grain = MeanGrain(physics.links)
    for job, placement in held.items():
        transfer = physics.transfer(jobs, job, placement)
        grain.put(job, transfer, terms_of(kernel.view.knobs.get(job, {})), scene.now)
    grain.settle(scene.now)
    slow = grain.slowed_by(row)
    if slow is None:
        return
    link, others = slow
    beside = f", which {jobs_named(scene.label, others)} use{'s' * (len(others) == 1)}, too"
    answer.holders = [other + 1 for other in others[:HOLDERS_MAX]]
    answer.lines.append(
        f"The link {physics.links.name(link)} slows it{beside if others else ''}: it is left"
        f" {grain.part(row):.1%} of the speed that its model has on this placement."
    )
