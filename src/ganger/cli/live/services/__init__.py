"""`ganger service`: inference services on the cluster, each with one address for its replicas."""

from ganger.cli.live.services import changing, looking, starting
from ganger.cli.live.services.group import service

__all__ = ["changing", "looking", "service", "starting"]
