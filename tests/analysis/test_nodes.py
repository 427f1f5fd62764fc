"""How much of the variation between processes lies between nodes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from attnbench.analysis.report import analyse
from attnbench.analysis.trust import node_share
from attnbench.records import Origin, Shard
from tests import sweeps

LENGTHS = (128, 256, 512, 1024, 2048)


def divided(between, within, nodes=4, seed=0, rounds=4):
    """A sweep on several nodes, with these standard deviations of the log times."""
    rng = np.random.default_rng(seed)
    whole = sweeps.sweep(
        ("fastformer", "linformer"),
        lengths=LENGTHS,
        rounds=rounds,
        restart=within,
        noise=1e-6,
        seed=seed,
    )
    effects = between * rng.standard_normal(nodes)
    place = {line.case.key: i for i, line in enumerate(whole.plan)}

    def placed(run):
        node = (place[run.case] + run.round) % nodes
        origin = Origin(host=f"n{node}", shard=Shard(node + 1, nodes))
        return replace(sweeps.slowed(run, math.exp(effects[node])), origin=origin)

    shards = tuple(Shard(i, nodes) for i in range(1, nodes + 1))
    return replace(sweeps.altered(whole, placed), shards=shards)


@pytest.mark.parametrize(
    ("between", "within", "share"), [(0.03, 0.03, 0.5), (0.03, 0.01, 0.9), (0.01, 0.03, 0.1)]
)
def test_the_share_is_that_of_the_simulation(between, within, share):
    found = [node_share(divided(between, within, nodes=8, seed=seed)) for seed in range(40)]
    assert abs(float(np.mean(found)) - share) < 0.08


def test_without_differences_between_nodes_hardly_anything_is_left():
    assert np.median([node_share(divided(0.0, 0.03, seed=seed)) for seed in range(20)]) < 0.05


def test_costs_of_cases_do_not_count():
    """Cases differ a hundredfold; nodes by 5 %, processes hardly."""
    assert node_share(divided(0.05, 0.0001)) > 0.99


def test_one_node_or_one_round_has_no_share():
    assert node_share(divided(0.03, 0.03, nodes=1)) is None
    assert node_share(divided(0.03, 0.03, rounds=1)) is None
    assert node_share(sweeps.sweep(("fastformer",))) is None


def test_a_gpu_is_a_node_of_its_own():

    def on_one_host(run):
        return replace(run, origin=replace(run.origin, host="n", device_uuid=run.origin.host))

    sweep = divided(0.03, 0.01, nodes=2)
    beside = sweeps.altered(sweep, on_one_host)
    assert node_share(beside) == pytest.approx(node_share(sweep))
    assert analyse(beside).nodes == ["n n0", "n n1"]


def test_a_sweep_that_was_not_divided_names_no_nodes():
    whole = sweeps.sweep(("fastformer",))
    here = sweeps.altered(whole, lambda run: replace(run, origin=Origin(host="here")))
    assert analyse(here).nodes == []
