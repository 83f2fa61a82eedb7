import dataclasses
import json
import math
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from kmyriad.checks import Between
from kmyriad.config import (
    RULES,
    ActorCritic,
    JumpstartConfig,
    ObjectiveConfig,
    PopulationConfig,
    PretrainConfig,
    Reinforce,
    RunConfig,
    StartConfig,
    TaskConfig,
    TrustRegion,
    WorldConfig,
    config_from_json,
    even_split,
    settings_of,
    with_settings,
)
from kmyriad.errors import UsageError
from kmyriad.presets import JUMPSTART_PRESETS, METHODS, PRESETS, jumpstart_preset, preset

BLOCKS = (
    *(WorldConfig, PopulationConfig, ObjectiveConfig, ActorCritic, Reinforce, TrustRegion, RunConfig),
    *(StartConfig, TaskConfig),
)
HINTS = {block: get_type_hints(block, include_extras=True) for block in BLOCKS}
SETTINGS = [(block, setting.name) for block in BLOCKS for setting in dataclasses.fields(block)]

NAN, INF, THING = math.nan, math.inf, object()
NO_NUMBER = ["x", [], {}, True, NAN, INF, -INF, np.nan, np.float32(1.5) * np.inf, np.True_, 1j, THING]
WRONG: dict[Any, list[Any]] = {
    int: [*NO_NUMBER, 1.5, np.float64(1.5), "1"],
    float: [*NO_NUMBER, "1.5"],
    bool: ["x", [], {}, NAN, INF, 1.5, 0, 1, "true", THING],
    str: [[], {}, True, NAN, INF, 1.5, 1, b"x", THING],
}
"""What is no value of a type."""
NO_LIST = ["x", {}, True, NAN, INF, 1.5, 1, {1}, np.zeros((2, 2)), THING]
NO_DICT = ["x", [], True, NAN, INF, 1.5, {1: 2}, {"a": NAN}, {"a": [INF]}, {"a": THING}, {"a": {"b": {1}}}, THING]


def split(kind):
    """(the type itself, its limits, whether None will do) of an annotation."""
    limits, optional = None, False
    while get_origin(kind) in (Annotated, Union, types.UnionType):
        if get_origin(kind) is Annotated:
            limits = next((one for one in get_args(kind)[1:] if isinstance(one, Between)), limits)
            kind = get_args(kind)[0]
        else:
            (kind,) = (one for one in get_args(kind) if one is not type(None))
            optional = True
    return kind, limits, optional


def wrong_values(kind):
    """Values of wrong types for an annotation."""
    plain, _, optional = split(kind)
    none = [] if optional else [None]
    if get_origin(plain) is Literal:
        return [*none, "x", "", [], {}, True, NAN, INF, 1.5, THING]
    if get_origin(plain) is tuple:
        *kinds, last = get_args(plain)
        is_open = last is Ellipsis
        inner = [[value] if is_open else [value] * 2 for value in wrong_values(kinds[0])]
        return [*none, *NO_LIST, *inner, *([] if is_open else [[], [1.0], [1.0, 2.0, 3.0]])]
    if get_origin(plain) is dict:
        return [*none, *NO_DICT]
    return none + WRONG[plain]


@pytest.mark.parametrize(("block", "name"), SETTINGS)
def test_every_setting_refuses_what_is_of_another_type(block, name):
    values = wrong_values(HINTS[block][name])
    assert len(values) >= 8
    for value in values:
        with pytest.raises(UsageError) as caught:
            block(**{name: value})
        assert name in str(caught.value), value
        assert "\n" not in str(caught.value), value


@pytest.mark.parametrize(("block", "name"), SETTINGS)
def test_every_default_is_of_its_type_and_none_is_taken_where_it_may_be(block, name):
    value = getattr(block(), name)
    kind, _, optional = split(HINTS[block][name])
    assert value is None or type(value) is (get_origin(kind) if get_origin(kind) in (tuple, dict) else type(value))
    assert getattr(block(**{name: value}), name) == value
    if optional:
        assert getattr(block(**{name: None}), name) is None


NUMBERS = [(block, name) for block, name in SETTINGS if split(HINTS[block][name])[0] in (int, float)]


@pytest.mark.parametrize(("block", "name"), NUMBERS)
def test_every_number_has_limits_that_are_enforced(block, name):
    kind, limits, _ = split(HINTS[block][name])
    assert limits is not None
    below = [limits.low - 1] + ([limits.low / 2] if kind is float and limits.low else [])
    for bad in (*below, limits.high * 2 + 1, 10**400, -(10**400), 10**5000):
        with pytest.raises(UsageError, match=f"^{name} must be ") as caught:
            block(**{name: bad})
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300
        if abs(bad) < 1e300:
            assert f"{name} must be between {limits.low:g} and {limits.high:g}; got {kind(bad)!r}" == str(caught.value)
    others = {"std_range": (1e-6, 1e4)} if name == "initial_std" else {}
    for good in (limits.low, limits.high):
        assert getattr(block(**{name: good}, **others), name) == good


def test_each_of_several_numbers_has_limits_as_well():
    for block, name in SETTINGS:
        kind = split(HINTS[block][name])[0]
        if get_origin(kind) is tuple:
            for one in get_args(kind):
                assert one is Ellipsis or one is str or isinstance(split(one)[1], Between), name
    for setting, bad in (("trunk_hidden", [0]), ("trunk_hidden", [8, 65_537]), ("std_range", (0.1, 1e5))):
        with pytest.raises(UsageError, match=f"each of {setting} must be between"):
            PopulationConfig(**{setting: bad})
    with pytest.raises(UsageError, match="each of lr_milestones must be between 1 and"):
        Reinforce(lr_milestones=(3, 0))
    with pytest.raises(UsageError, match=r"each of goal must be between -1e.09 and 1e.09; got 2000000000\.0"):
        TaskConfig(goal=(1, 2e9))


COUNTS = [(block, name) for block, name in NUMBERS if split(HINTS[block][name])[0] is int]
FLOATS = [(block, name) for block, name in NUMBERS if split(HINTS[block][name])[0] is float]


@pytest.mark.parametrize(("block", "name"), COUNTS)
def test_counts_may_be_whole_floats_and_numpys_numbers(block, name):
    whole = min(1_000_000, split(HINTS[block][name])[1].high)
    for value in (
        float(whole),
        np.int64(whole),
        np.int32(whole),
        np.uint32(whole),
        np.float64(whole),
        np.float32(whole),
    ):
        taken = getattr(block(**{name: value}), name)
        assert type(taken) is int
        assert taken == whole
    assert getattr(block(**{name: np.int16(1)}), name) == 1


@pytest.mark.parametrize(("block", "name"), FLOATS)
def test_numbers_may_be_whole_and_numpys(block, name):
    others = {"std_range": (1e-6, 1e4)} if name == "initial_std" else {}
    for value in (1, 1.0, np.float32(1), np.float64(1), np.int64(1), np.uint8(1)):
        taken = getattr(block(**{name: value}, **others), name)
        assert type(taken) is float
        assert taken == 1.0


def test_lists_and_arrays_do_for_tuples():
    assert PopulationConfig(trunk_hidden=[8, 4.0]).trunk_hidden == (8, 4)
    assert PopulationConfig(trunk_hidden=np.array([8, 4])).trunk_hidden == (8, 4)
    assert TaskConfig(goal=np.array([1, -2.5], np.float32)).goal == (1.0, -2.5)
    assert WorldConfig(features=["x", "y"]).features == ("x", "y")
    assert type(PopulationConfig(trunk_hidden=np.array([8])).trunk_hidden[0]) is int
    assert PopulationConfig(normalise_observations=np.False_).normalise_observations is False


def test_settings_of_environments_become_plain():
    given = {"size": np.int64(3), "map": ("101", "111"), "start": np.array([1, 2]), "deep": {"a": np.float32(0.5)}}
    plain = {"size": 3, "map": ["101", "111"], "start": [1, 2], "deep": {"a": 0.5}}
    settings = WorldConfig(env_settings=given | {"zero": np.array(5)}).env_settings
    assert settings == plain | {"zero": 5}
    assert json.loads(json.dumps(settings)) == settings
    assert given["map"] == ("101", "111")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent": 3}, "unknown setting 'agent' .did you mean 'agents'"),
        ({"epochs": 3}, "unknown setting 'epochs'"),
        ({"update": "reinforcement"}, "unknown update 'reinforcement' .did you mean 'reinforce'"),
        ({"update": None}, "unknown update None"),
        ({"update": ["reinforce"]}, "unknown update .'reinforce'."),
        ({"initial_std": 5.0}, "initial_std must lie within std_range; got 5 and 0.01 to 2"),
        ({"std_range": (2.0, 0.01)}, "initial_std must lie within std_range"),
        ({"trunk_hidden": [0]}, "each of trunk_hidden must be between"),
        ({"critic_hidden": []}, "critic_hidden must name at least one hidden size; got none"),
        ({"activation": "rleu"}, "unknown activation 'rleu' .did you mean 'relu'"),
        ({"kl_bound": 0.1}, "kl_bound is a setting of update trust_region, and this run has update actor_critic"),
        (
            {"update": "reinforce", "gamma": 0.9},
            "gamma is a setting of update actor_critic, and this run has update rei",
        ),
        (
            {"agents": 7, "replicas": 1000},
            "1000 replicas cannot be split evenly over 7 agents; use 994 or 1001 replicas$",
        ),
        ({"agents": 5, "replicas": 3}, "use 5 replicas$"),
        ({"goal": (1, 2)}, "unknown setting 'goal'"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings, message):
    with pytest.raises(UsageError, match=message) as error:
        with_settings(PretrainConfig(), settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"goal": (1, 2), "goal_names": ("x",)}, "goal has 2 numbers for 1 names; give one each"),
        ({"agent": 1, "top": 2}, "agent 1 and top 2 exclude each other"),
        ({"init": "bset"}, "unknown init 'bset' .did you mean 'best'"),
        ({"update": "reinforce"}, "a jump-start is trained by actor_critic; got update reinforce"),
        (
            {"horizon": 100, "top": 3, "replicas": 200},
            "200 replicas cannot be split evenly over 3 agents; use 198 or 201",
        ),
        ({"agents": 3}, "unknown setting 'agents'"),
    ],
)
def test_bad_settings_of_a_jumpstart_are_refused_in_one_sentence(settings, message):
    with pytest.raises(UsageError, match=message) as error:
        with_settings(JumpstartConfig(), settings)
    assert "\n" not in str(error.value)


def test_even_splits_pass():
    for agents, replicas, share in ((10, 1000, 100), (7, 7, 1)):
        config = with_settings(PretrainConfig(), {"agents": agents, "replicas": replicas})
        assert (config.rollouts.replicas, config.rollouts.per_agent) == (replicas, share)
    assert [even_split(100, agents) for agents in (1, 7, 10, 60, 300)] == [100, 98, 100, 120, 300]


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({}, (10, 100, 200, 25, 10, True, 8, 2500)),
        ({"rollout_steps": None}, (10, 100, 200, 200, 10, False, 1, 20_000)),
        ({"rollout_steps": 200}, (10, 100, 200, 200, 10, False, 1, 20_000)),
        ({"rollout_steps": 150, "agents": 3, "replicas": 9}, (3, 9, 200, 150, 3, True, 2, 1350)),
    ],
)
def test_the_sizes_that_settings_come_to(settings, sizes):
    rollouts = with_settings(PretrainConfig(), settings).rollouts
    names = (
        "agents",
        "replicas",
        "horizon",
        "steps",
        "per_agent",
        "are_segments",
        "per_horizon",
        "steps_per_iteration",
    )
    assert tuple(getattr(rollouts, name) for name in names) == sizes


def test_a_jumpstart_has_its_sizes_once_its_horizon_is_known():
    with pytest.raises(UsageError, match="the horizon is the source's, which has not been read yet; give horizon"):
        _ = JumpstartConfig().rollouts
    rollouts = with_settings(JumpstartConfig(), {"horizon": 50, "top": 3}).rollouts
    assert (rollouts.agents, rollouts.replicas, rollouts.horizon, rollouts.steps) == (3, 201, 50, 25)


def test_names_are_unique_across_the_blocks_of_a_config():
    configs = [PretrainConfig(update=rule()) for rule in RULES.values()] + [JumpstartConfig()]
    for config in configs:
        blocks = [getattr(config, block.name) for block in dataclasses.fields(config)]
        names = [setting.name for block in blocks for setting in dataclasses.fields(block)]
        assert len(names) == len(set(names))
        assert "update" not in names  # names the rule
        assert set(settings_of(config)) == {*names, "update"}


@pytest.mark.parametrize("block", [*BLOCKS, PretrainConfig, JumpstartConfig])
def test_no_block_has_more_settings_than_fit_a_page(block):
    assert 1 <= len(dataclasses.fields(block)) <= 14


def other_value(block, name):
    """A value that is not the default."""
    kind, limits, _ = split(HINTS[block][name])
    if get_origin(kind) is Literal:
        return get_args(kind)[-1]
    if name in ("initial_std", "keep_checkpoints"):
        return {"initial_std": 0.5, "keep_checkpoints": 4}[name]
    if kind in (int, float):
        return kind(limits.low + (limits.high - limits.low) / 7 if kind is float else limits.low + 2)
    special = {
        "env": "ant-cave",
        "source": 'runs/é "x"',
        "policy": "elsewhere/ppo.zip",
        "features": ("x", "y"),
        "feature_scale": (0.5, 0.0),
        "action_range": (-2.0, 2.0),
        "engine": "serial",
        "goal_names": ("x", "z"),
        "trunk_hidden": (32,),
        "goal": (1.5, -2.0),
    }
    special |= {"env_settings": {"size": 3, "map": ["101"]}, "std_range": (0.02, 1.5), "lr_milestones": (3, 9)}
    special |= {
        "pace": 0.5,
        "critic_hidden": (7, 9),
        "objective_function": "mine.function",
        "wandb": "project",
        "device": "cuda:1",
    }
    return special[name] if name in special else not getattr(block(), name)


def changed(block):
    """A block with other than default values for everything that can differ at once."""
    names = [setting.name for setting in dataclasses.fields(block) if setting.name != "top"]
    return block(**{name: other_value(block, name) for name in names})


CHANGED = [
    PretrainConfig(changed(WorldConfig), changed(PopulationConfig), changed(ObjectiveConfig), changed(rule), run)
    for rule in RULES.values()
    for run in [dataclasses.replace(changed(RunConfig), replicas=9, rollout_steps=2)]
] + [
    JumpstartConfig(changed(TaskConfig), changed(StartConfig), changed(ActorCritic), changed(RunConfig)),
    JumpstartConfig(start=StartConfig(top=4)),
    JumpstartConfig(),
]


@pytest.mark.parametrize(
    "config", [PretrainConfig(), *CHANGED, *(PretrainConfig(update=rule()) for rule in RULES.values())]
)
def test_configs_survive_their_json_form(config):
    text = json.dumps(config.as_json(), allow_nan=False)
    again = config_from_json(json.loads(text))
    assert again == config
    assert repr(again) == repr(config)  # types and all
    assert json.dumps(again.as_json()) == text
    command = "pretrain" if isinstance(config, PretrainConfig) else "jumpstart"
    assert (config.as_json()["format"], config.as_json()["command"]) == (2, command)


@pytest.mark.parametrize("config", CHANGED)
def test_settings_are_the_same_flat(config):
    base = type(config)()
    assert with_settings(base, settings_of(config)) == config
    assert with_settings(config, {}) == config


def test_every_setting_was_changed_for_these_tests():
    default = {rule: settings_of(PretrainConfig(update=kind())) for rule, kind in RULES.items()}
    for config in CHANGED[:3]:
        told = settings_of(config)
        same = [name for name, value in default[config.rule].items() if told[name] == value]
        assert same == ["update"]


def test_another_rule_has_its_own_defaults_and_the_same_one_keeps_its_settings():
    config = with_settings(PretrainConfig(), {"gamma": 0.5, "learning_rate": 0.5})
    assert with_settings(config, {"update": "actor_critic"}) == config
    assert with_settings(config, {"update": "reinforce"}).update == Reinforce()
    assert with_settings(config, {"update": "trust_region", "kl_bound": 0.3}).update == TrustRegion(kl_bound=0.3)
    assert with_settings(config, {"update": TrustRegion(kl_bound=0.3)}).rule == "trust_region"


@pytest.mark.parametrize("command", ["pretrain", "jumpstart"])
@pytest.mark.parametrize("told", [None, 1, "2", 2.5, [], {}])
def test_other_formats_are_refused_in_one_sentence(command, told):
    content = {"command": command, "env": "ant-maze", "epochs": 200, "heads": 10, "k": 5}
    if told is not None:
        content["format"] = told
    with pytest.raises(
        UsageError, match=f"its settings are of format {1 if told is None else '.*'}, and .* reads format 2"
    ) as caught:
        config_from_json(content)
    assert "\n" not in str(caught.value)
    assert "versions.json" in str(caught.value)


@pytest.mark.parametrize("config", [PretrainConfig(), PretrainConfig(update=TrustRegion()), JumpstartConfig()])
def test_settings_that_are_missing_have_the_defaults_of_their_command(config):
    bare = config.as_json() | {"update": {"rule": config.as_json()["update"]["rule"]}, "run": {}}
    assert config_from_json(bare) == config


@pytest.mark.parametrize("config", [PretrainConfig(), PretrainConfig(update=TrustRegion()), JumpstartConfig()])
def test_json_that_is_no_config_is_refused_in_one_sentence(config):
    """Whatever block is taken out, or put in the place of a block or a setting.

    A missing setting has its default, but for the rule and the environment.
    """
    good = config.as_json()
    for name in good:
        for value in (None, "x", 3, [], {}):
            is_block_of_defaults = value == {} and isinstance(good[name], dict) and not {"rule", "env"} & {*good[name]}
            if value != good[name] and not is_block_of_defaults:
                with pytest.raises(UsageError) as caught:
                    config_from_json(good | {name: value})
                assert "\n" not in str(caught.value)
        if not isinstance(good[name], dict):
            continue
        for setting in good[name]:
            less = {other: value for other, value in good[name].items() if other != setting}
            wrong = [less | {"other": 1}]
            if setting != "env_settings":
                wrong.append(less | {setting: {"a": {}}})
            if setting in ("rule", "env"):
                wrong.append(less)
            for block in wrong:
                with pytest.raises(UsageError) as caught:
                    config_from_json(good | {name: block})
                assert "\n" not in str(caught.value)


@pytest.mark.parametrize("update", [None, *RULES])
@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("agents", [1, 2, 10, 50])
@pytest.mark.parametrize("env", ["ant-maze", "point-maze"])
def test_presets_are_valid(name, env, agents, update):
    config = preset(name, env, agents, update)
    assert (config.world.env, config.population.agents) == (env, agents)
    assert config.rule == (update or ("reinforce" if name == "paper" else "actor_critic"))
    assert config_from_json(config.as_json()) == config


@pytest.mark.parametrize("name", JUMPSTART_PRESETS)
@pytest.mark.parametrize("init", ["best", "single", "random"])
def test_presets_of_jumpstarts_are_valid(name, init):
    config = jumpstart_preset(name, init)
    assert config.start.init == init
    assert config_from_json(config.as_json()) == config


@pytest.mark.parametrize(
    ("settings", "gamma", "kl"),
    [
        ({}, 0.99, 0.03),  # what they were chosen with
        ({"horizon": 50}, 0.99, 0.03),
        ({"horizon": 1000}, 0.998, 0.006),
        ({"horizon": 1000, "gamma": 0.9, "desired_kl": None}, 0.98, None),
        ({"horizon": 1000, "pace": 1.0}, 0.99, 0.03),
        ({"pace": 0.1}, 0.999, 0.003),
        ({"horizon": 1000, "goal": ()}, 0.99, 0.03),  # the environment's own reward comes with no way to a goal
    ],
)
def test_jumpstarts_to_a_goal_go_at_a_pace_that_fits_their_horizon(settings, gamma, kl):
    config = with_settings(jumpstart_preset("quick", "best"), {"goal": (1, 2), "horizon": 200} | settings)
    assert config.paced_update.gamma == pytest.approx(gamma, abs=1e-12)
    assert config.paced_update.desired_kl == (None if kl is None else pytest.approx(kl))
    same = {"gamma": config.update.gamma, "desired_kl": config.update.desired_kl}
    assert dataclasses.replace(config.paced_update, **same) == config.update


def test_the_papers_jumpstarts_and_stored_ones_keep_their_pace():
    for stored in (with_settings(jumpstart_preset("paper", "best"), {"goal": (1, 2)}), JumpstartConfig()):
        assert with_settings(stored, {"horizon": 1000}).paced_update == stored.update


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_one_recipe_for_every_environment_and_number_of_agents(name, method):
    """But for what the numbers of replicas come to, the paper's rates, a world's own settings and time limit."""

    def told(env, agents):
        free = {"env": "", "env_settings": {}, "agents": 1, "replicas": None, "learning_rate": 1e-3, "horizon": 200}
        return with_settings(preset(name, env, agents, method=method), free)

    recipes = [told(env, agents) for env in ("ant-empty", "point-maze", "Pusher-v5") for agents in (1, 10, 11, 50)]
    assert all(recipe == recipes[0] for recipe in recipes)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("agents", [1, 10, 50])
def test_nothing_of_ours_is_in_the_papers_method(name, agents):
    config = preset(name, "ant-empty", agents, method="paper")
    assert (config.rule, config.rollouts.are_segments, config.objective.diversity_weight) == ("reinforce", False, 0)
    population = config.population
    assert (population.code_size, population.priors, population.normalise_observations) == (None, False, False)
    assert (population.trunk_hidden, population.agent_hidden, population.activation) == ((512, 256), 256, "relu")
    assert config.update.learning_rate == {1: 2e-4, 10: 2e-4, 50: 5e-4}[agents]
    sizes = preset(name, "ant-empty", agents, method="ours")
    for setting in ("horizon", "total_steps", "replicas", "neighbours"):
        assert settings_of(config)[setting] == settings_of(sizes)[setting]


def test_the_method_is_ours_but_for_the_papers_preset():
    assert preset("paper", "ant-empty", 10) == preset("paper", "ant-empty", 10, method="paper")
    for name in ("quick", "desk"):
        assert preset(name, "ant-empty", 10) == preset(name, "ant-empty", 10, method="ours")
    with pytest.raises(UsageError, match=r"unknown method 'theirs'; known: ours, paper"):
        preset("quick", "ant-empty", 10, method="theirs")


def test_desk_is_six_million_steps_of_the_papers_horizon():
    configs = [preset("desk", env, 10) for env in ("ant-empty", "point-maze")]
    assert [config.world.horizon for config in configs] == [600, 600]
    assert [(config.rollouts.replicas, config.objective.neighbours) for config in configs] == [(200, 15), (200, 15)]
    assert [config.run.total_steps for config in configs] == [6_000_000, 6_000_000]


@pytest.mark.parametrize("env", ["point-maze", "kmyriad/PointMaze-v0"])
def test_a_world_brings_settings_to_train_with(env):
    assert preset("quick", env, 10).world.env_settings == {"decimation": 5}
    assert preset("quick", "ant-empty", 10).world.env_settings == {}


def test_segments_are_the_actor_critics_alone():
    for env in ("ant-empty", "Pusher-v5"):
        assert preset("quick", env, 10).rollouts.steps == 25
    for env in ("ant-empty", "point-maze", "Pusher-v5"):
        for update in ("reinforce", "trust_region"):
            assert not preset("quick", env, 10, update).rollouts.are_segments


@pytest.mark.parametrize(("agents", "rate"), [(1, 2e-4), (10, 2e-4), (50, 5e-4)])
def test_the_paper_preset_is_table_2(agents, rate):
    config = preset("paper", "ant-empty", agents)
    assert (config.run.replicas, config.world.horizon, config.objective.neighbours) == (1000, 600, 5)
    assert config.run.total_steps == 200 * 1000 * 600
    assert (config.rule, config.run.rollout_steps) == ("reinforce", None)
    assert (config.population.trunk_hidden, config.population.agent_hidden) == ((512, 256), 256)
    assert config.update == Reinforce(rate, (30, 80), 0.5)


def test_unknown_presets_get_a_hint():
    with pytest.raises(UsageError, match=r"unknown preset 'papier' .did you mean 'paper'"):
        preset("papier", "ant-empty", 10)
    with pytest.raises(UsageError, match=r"unknown update 'reinforced' .did you mean 'reinforce'"):
        preset("paper", "ant-empty", 10, "reinforced")
    with pytest.raises(UsageError, match=r"unknown preset 'desk'; known: quick, paper"):
        jumpstart_preset("desk", "best")
    with pytest.raises(UsageError, match="agents must be a whole number; got None"):
        preset("quick", "ant-empty", None)
    with pytest.raises(UsageError, match="env must be text; got None"):
        preset("quick", None, 10)


@pytest.mark.parametrize(
    ("asked", "steps", "are_segments"), [(25, 20, False), (20, 20, False), (None, 20, False), (7, 7, True)]
)
def test_rollouts_are_at_most_a_horizon_long(asked, steps, are_segments):
    rollouts = with_settings(PretrainConfig(), {"horizon": 20, "rollout_steps": asked}).rollouts
    assert (rollouts.steps, rollouts.are_segments) == (steps, are_segments)
