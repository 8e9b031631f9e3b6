"""What tenants are entitled to, by hand."""

from __future__ import annotations

import numpy as np

from bench import Bench
from ganger.core.spec import ClusterSpec, NodeSpec, TenantSpec
from ganger.recipes.training.fairness.astraea import LongTermFairness
from worlds import job


def test_tenants_without_a_quota_share_what_no_quota_claims() -> None:
    """Astraea: of eight GPUs two are claimed; three tenants without a quota get two each."""
    spec = ClusterSpec((NodeSpec(gpus=8, gpu_type="A"),), (), (TenantSpec("two", 2),))
    names = ["two", "x", "y", "z"]
    view = Bench(*(job(name, tenant=name) for name in names), on=spec).kernel.view
    rule = LongTermFairness(interval=1, window=1, starving=1)
    tenants = view.jobs.tenants
    quota = rule._quota(view, np.array([tenants.find(name) for name in names], np.int32))
    assert quota == {tenants.find(name): 2.0 for name in names}
    quota = rule._quota(view, np.array([tenants.find("two"), tenants.find("x")], np.int32))
    assert quota == {tenants.find("two"): 2.0, tenants.find("x"): 6.0}
