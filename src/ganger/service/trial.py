"""What another policy would do at once, tried on a copy of the present state."""

from __future__ import annotations

import msgspec

from ganger.client.answers import PolicyAnswer
from ganger.core.events import Batch, Woke
from ganger.core.kernel import Kernel
from ganger.core.plan import Resize, Start, Stop
from ganger.core.snapshot import capture, forget
from ganger.service.daemon import Daemon, plain
from ganger.service.recovery import guard_of, make_kernel


def copy_under(daemon: Daemon, policy: str, knows: str) -> Kernel:
    """The present state under another policy, as a kernel of its own. Raises BadInput."""
    with daemon.lock:
        snapshot, header = forget(plain(capture(daemon.kernel))), daemon.header
    if knows != header.knows:
        snapshot = msgspec.structs.replace(snapshot, learnt=msgspec.msgpack.encode(None))
    return make_kernel(msgspec.structs.replace(header, policy=policy, knows=knows), snapshot)


def try_policy(daemon: Daemon, policy: str, knows: str) -> PolicyAnswer:
    """Which jobs it would start, stop and resize in its first plan. Raises BadInput."""
    kernel = copy_under(daemon, policy, knows)
    plan = kernel.step(Batch(max(daemon.now(), kernel.now), [Woke()]))
    actions = plan.actions if plan is not None else []
    return PolicyAnswer(
        recipe=policy,
        knows=knows,
        dry_run=True,
        error=guard_of(kernel).error,
        starts=[action.job + 1 for action in actions if isinstance(action, Start)],
        stops=[action.job + 1 for action in actions if isinstance(action, Stop)],
        resizes=[action.job + 1 for action in actions if isinstance(action, Resize)],
    )
