import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.config import config_from
from kmyriad.population.frames import directions
from kmyriad.rollout.replicas import make_replicas
from kmyriad.runs.state import load_population
from kmyriad.training.pretrain import initial_state
from tests.conftest import are_one_policy

SMALL = {"agents": 4, "replicas": 8, "horizon": 12, "segment": 6, "epochs": 4, "compass": 1.0}


def test_directions_are_evenly_around_the_first_two_features():
    np.testing.assert_allclose(directions(4, 2), [(1, 0), (0, 1), (-1, 0), (0, -1)], atol=1e-6)
    np.testing.assert_allclose(directions(4, 3), [(1, 0, 0), (0, 1, 0), (-1, 0, 0), (0, -1, 0)], atol=1e-6)
    np.testing.assert_allclose(directions(2, 1), [(1,), (-1,)])


def test_agents_start_as_one_policy_and_part_by_what_all_learn(tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", own_rate=0.1, **SMALL)
    config, replicas = config_from(run.config), make_replicas("point-maze", 8, horizon=12)
    before, after = initial_state(config, replicas).population, load_population(run)
    observations = torch.randn(1, 5, 4).expand(4, 5, 4)
    assert are_one_policy(before)
    after.adapter_weight.data.zero_(), after.adapter_bias.data.zero_()
    after.output_weight.data.zero_(), after.output_bias.data.zero_()
    assert not torch.allclose(after(observations).mean[0], after(observations).mean[2], atol=1e-6)


@pytest.mark.parametrize("direction_rate", [0.0, 0.1])
def test_a_run_with_a_compass_goes_on_as_if_never_stopped(direction_rate, tmp_path):
    settings = SMALL | {"checkpoint_every": 2, "direction_rate": direction_rate}
    whole = kmyriad.pretrain("point-maze", out=tmp_path / "whole", **settings)
    kmyriad.pretrain("point-maze", out=tmp_path / "parts", **settings | {"epochs": 2})
    parts = kmyriad.pretrain("point-maze", out=tmp_path / "parts", resume=True, epochs=4)
    for ours, theirs in zip(load_population(whole).parameters(), load_population(parts).parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("changes", [{"agents": 1}, {"compass": 0.0}, {"update": "reinforce", "segment": None}])
def test_without_others_or_a_critic_there_is_no_direction(changes, tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL | changes)
    assert load_population(run).directions is None
