"""Who pays for nodes that are named for services, and for those of them that are on loan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ganger.core.units import MINUTE
from ganger.lab.billing.reserve import Reserve
from ganger.lab.metrics import to_json
from ganger.lab.simulation import Setup, run_one
from mechanisms.shared_days import POOLS, SCALING, day

SERVICE = np.array([True, True, False, False])


def test_a_bill_by_hand() -> None:
    """Nodes for services cost 20. Two services held 6 and 2 of that, a job 4 on loan, and 3
    elsewhere; another job 5 elsewhere. At half the price 20 - 8 - 2 = 10 are left for services."""
    cost, held = np.array([6.0, 2.0, 7.0, 5.0]), np.array([6.0, 2.0, 4.0, 0.0])
    reserve = Reserve(20.0, held, 0.5)
    assert reserve.lent(SERVICE) == 4
    assert reserve.charged(cost, SERVICE).tolist() == [6 + 7.5, 2 + 2.5, 5, 5]
    assert Reserve(20.0, held, 1.0).charged(cost, SERVICE).tolist() == [12, 4, 7, 5]
    assert Reserve(20.0, held, 0.0).charged(cost, SERVICE).tolist() == [15, 5, 3, 5]


def test_services_without_replicas_share_alike_and_without_services_nobody_pays() -> None:
    cost, held = np.array([0.0, 0.0, 3.0, 1.0]), np.array([0.0, 0.0, 3.0, 0.0])
    assert Reserve(9.0, held, 1.0).charged(cost, SERVICE).tolist() == [3, 3, 3, 1]
    alone = Reserve(9.0, held, 1.0).charged(cost, np.zeros(4, np.bool_))
    assert alone.tolist() == [0, 0, 3, 1]


@pytest.mark.parametrize("rate", [1.0, 0.25])
@pytest.mark.parametrize("rule", ["separate", "aryl(every=1m)"])
def test_bills_add_up_and_services_pay_what_others_do_not(rule: str, rate: float) -> None:
    """Two nodes of four GPUs and three for services, at 2 an hour for a GPU."""
    trace, loads = day(0)
    setup = Setup(serving=SCALING, sharing=rule, loads=loads, window=MINUTE)
    setup = replace(setup, prices={"V100": 2.0}, loan_rate=rate)
    run = run_one(trace, POOLS, "fifo(walk=skip)", setup)
    account = run.account
    assert account is not None
    reserve = account.reserve
    assert reserve is not None
    assert account.cost is not None
    hours = reserve.cost / (12 * 2)
    assert hours > 9600 / 3600, "as long as the services, and until the last job let go"
    assert sum(account.costs.values()) == pytest.approx(20 * 2 * hours, abs=0.005)
    lent = reserve.lent(account.service)
    assert (lent > 1) == (rule != "separate")
    assert account.costs["services"] == pytest.approx(reserve.cost - rate * lent)
    theirs = to_json([run])["runs"][0]["energy"]["reserve"]
    assert theirs["paid_for_loans"] == pytest.approx(rate * lent)
    assert theirs["held"] + lent < theirs["cost"]
    assert account.costs["idle"] < 8 * 2 * hours, "only of the nodes for jobs"
