import dataclasses

import pytest

from kmyriad.config import BOUNDS, PretrainConfig, config_from, replicas_per_agent
from kmyriad.errors import UsageError
from kmyriad.presets import PRESETS, preset


@pytest.mark.parametrize("name", BOUNDS)
def test_every_number_has_bounds_that_are_enforced(name):
    low, high = BOUNDS[name]
    for bad in (low - 1, high * 2 + 1, float("nan"), "many", True):
        with pytest.raises(UsageError, match=f"{name} must be between .*; got {bad!r}"):
            config_from({name: bad})


def test_no_number_is_without_bounds():
    defaults = {field.name: field.default for field in dataclasses.fields(PretrainConfig)}
    numbers = {n for n, value in defaults.items() if value is None or type(value) in (int, float)}
    assert numbers == set(BOUNDS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent": 3}, "unknown setting 'agent' .did you mean 'agents'"),
        ({"update": "reinforcement"}, "unknown update 'reinforcement' .did you mean 'reinforce'"),
        ({"initial_sigma": 5.0}, "initial_sigma must lie between sigma_min and sigma_max"),
        ({"segment": 7, "horizon": 600}, "segment must divide the horizon of 600.*nearest: 6 or 8"),
        ({"trunk": [0]}, "each of trunk must be between"),
        (
            {"agents": 7, "replicas": 1000},
            "1000 replicas cannot be split evenly over 7 agents; use 994 or 1001 replicas, or 5 or 8 agents",
        ),
        ({"agents": 5, "replicas": 3}, "use 5 replicas, or 3 agents"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings, message):
    with pytest.raises(UsageError, match=message) as error:
        config_from(settings)
    assert "\n" not in str(error.value)


def test_even_splits_pass():
    assert replicas_per_agent(10, 1000) == 100
    assert replicas_per_agent(7, 7) == 1


def test_config_survives_its_json_form():
    config = PretrainConfig(env="ant-cave", features=("x", "y"), trunk=(32,), env_settings={"size": 3})
    assert config_from(config.as_json()) == config


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("agents", [1, 2, 10, 50])
@pytest.mark.parametrize("env", ["ant-maze", "point-maze"])
def test_presets_are_valid(name, env, agents):
    config = preset(name, env, agents)
    assert (config.env, config.agents) == (env, agents)


def test_the_more_agents_the_slower_their_own_layers():
    rates = [preset("quick", "Pusher-v5", agents).own_rate for agents in (1, 10, 50, 100)]
    assert rates == [0.1, 0.1, 0.03, 0.015]
    assert [preset("quick", "ant-maze", agents).own_rate for agents in (2, 10, 50)] == [0.03, 0.03, 0.006]


def test_many_ants_have_turned_views_and_few_in_the_maze_layers_that_know_their_directions():
    cases = [("ant-empty", 10), ("ant-empty", 11), ("ant-maze", 1), ("ant-maze", 2), ("point-maze", 50)]
    assert [preset("quick", *case).direction_rate for case in cases] == [0.0, 0.0, 0.0, 0.03, 0.0]
    assert [preset("quick", *case).own_adapters for case in cases] == [True, False, True, True, True]
    assert [preset("quick", *case).turns for case in cases] == [False, True, False, False, False]
    assert [preset("quick", *case).initial_sigma for case in cases] == [0.18, 0.14, 0.18, 0.18, 0.6]


def test_desk_is_six_million_steps_of_the_papers_horizon():
    configs = [preset("desk", env, 10) for env in ("ant-empty", "point-maze")]
    assert [config.horizon for config in configs] == [600, 600]
    assert [(config.replica_count, config.k) for config in configs] == [(200, 15), (100, 5)]
    assert [config.epochs * config.replica_count * config.epoch_steps for config in configs] == [6_000_000, 6_000_000]


def test_lambda_is_smaller_where_that_keeps_ants_on_their_feet():
    found = {env: preset("quick", env, 10).gae_lambda for env in ("ant-empty", "ant-pyramid", "ant-cave", "ant-maze")}
    assert found == {"ant-empty": 0.9, "ant-pyramid": 0.9, "ant-cave": 0.95, "ant-maze": 0.9}


def test_several_ants_have_a_compass_and_nothing_else_has():
    ants = ("ant-empty", "kmyriad/AntCave-v0", "ant-pyramid", "ant-maze")
    assert all(preset("quick", env, 2).compass and preset("quick", env, 2).mirrors for env in ants)
    assert not any(preset("quick", env, 2).compass for env in ("point-maze", "Pusher-v5"))
    assert preset("quick", "ant-empty", 1).compass == preset("paper", "ant-empty", 10).compass == 0


@pytest.mark.parametrize(("horizon", "steps"), [(200, 100), (250, 125), (600, 100), (60, 60)])
def test_point_maze_has_longer_segments_that_fit_the_horizon(horizon, steps):
    config = dataclasses.replace(preset("quick", "point-maze", 10), horizon=horizon)
    assert config.epoch_steps == steps
    assert dataclasses.replace(config, env="kmyriad/PointMaze-v0").epoch_steps == steps


@pytest.mark.parametrize(("agents", "rate"), [(1, 2e-4), (10, 2e-4), (50, 5e-4)])
def test_the_paper_preset_is_table_2(agents, rate):
    config = preset("paper", "ant-empty", agents)
    assert (config.replicas, config.epochs, config.horizon, config.k, config.update) == (1000, 200, 600, 5, "reinforce")
    assert (config.trunk, config.adapter, config.learning_rate) == ((512, 256), 256, rate)
    assert (config.learning_rate_milestones, config.learning_rate_decay, config.segment) == ((30, 80), 0.5, None)


def test_unknown_preset_gets_a_hint():
    with pytest.raises(UsageError, match=r"unknown preset 'papier' .did you mean 'paper'"):
        preset("papier", "ant-empty", 10)
