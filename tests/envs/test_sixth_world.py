"""A world of one's own, made as CONTRIBUTING says, works everywhere, and nothing takes it for an Ant."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import gymnasium
import mujoco
import numpy as np
import pytest

import kmyriad as km
from kmyriad import envs
from kmyriad.checks import Between
from kmyriad.cli import main
from kmyriad.envs.terrain import TERRAINS, Terrain
from kmyriad.envs.world import Feature, FeatureTable
from kmyriad.presets import preset

NAME = "puck-open"
SMALL = {"horizon": 20, "replicas": 12, "rollout_steps": 10, "trunk_hidden": (8,), "agent_hidden": 8}


@dataclass(frozen=True)
class Puck:
    """A puck that slides on open ground."""

    terrain: Terrain
    horizon: int

    features = FeatureTable([Feature("x", 1, "m", "position", 1e4), Feature("y", 1, "m", "position", 1e4)])
    decimation = 5
    goal_radius = 0.5
    symmetries = ()
    has_reset_noise = False
    speaks_tensors = False

    @cached_property
    def model(self):
        spec = mujoco.MjSpec()
        spec.option.timestep = 0.02
        spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        self.terrain.add_to_spec(spec)
        body = spec.worldbody.add_body(name="puck", pos=[0, 0, 0.3])
        for name, axis in (("x", [1, 0, 0]), ("y", [0, 1, 0])):
            body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis).damping[0] = 1
            motor = spec.add_actuator(name=name, target=name, ctrlrange=[-1, 1])
            motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
            motor.set_to_motor()
            motor.gear[0] = 10
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.1, 0, 0], contype=0, conaffinity=0)
        body.add_camera(name="follow", mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM, pos=[0, -2, 2])
        return spec.compile()

    def initial_state(self, rng):
        return np.zeros(2), np.zeros(2)

    def before_step(self, batch):
        pass

    def positions(self, batch):
        return np.column_stack([batch.bind("qpos"), np.zeros(len(batch.bind("qpos")))])

    def observe(self, batch, last_action, out):
        out[:] = batch.bind("qpos")


def puck_world(*, size: Annotated[int, Between(1, 9)] = 1, horizon: Annotated[int, Between(1, 10_000)] = 100) -> Puck:
    return Puck(TERRAINS["empty"](size, 0), horizon)


@pytest.fixture(autouse=True)
def _puck(monkeypatch):
    row = envs.WorldRow("kmyriad-test/Puck-v0", f"{__name__}:puck_world", {}, ("x", "y"), "a puck on open ground")
    monkeypatch.setitem(envs.WORLDS, NAME, row)
    envs.register()
    yield
    for world in [one for one in gymnasium.registry if one.startswith("kmyriad-test/Puck")]:
        del gymnasium.registry[world]


@pytest.mark.filterwarnings("ignore:.*already in registry")
def test_it_trains_and_shows_like_any_other(tmp_path, capsys):
    run = km.pretrain(NAME, agents=3, total_steps=960, out=tmp_path / "run", env_settings={"size": 3}, **SMALL)
    assert km.load_population(run).frames is None
    evaluation = km.evaluate(run, episodes=12)
    assert evaluation.measures["features"] == ["x", "y"]
    assert evaluation.visits.xy is not None
    assert km.select(run, goal=(0.2, 0.1), steps=240).standings
    start = km.jumpstart(run, goal=(0.2, 0.1), total_steps=900, selection_steps=240, replicas=8, out=tmp_path / "start")
    page = km.write_report([run, start], tmp_path / "page.html")
    assert "a puck on open ground" in page.read_text()
    main(["pretrain", NAME, "--show-config"])
    assert '"puck-open"' in capsys.readouterr().out
    with pytest.raises(km.UsageError, match="size must be between 1 and 9; got 20"):
        km.make_world(NAME, size=20)


@pytest.mark.filterwarnings("ignore:.*already in registry")
@pytest.mark.parametrize("agents", [1, 10, 50])
def test_its_settings_are_those_of_a_world_that_nobody_tuned(agents):
    ours, theirs = (preset("quick", env, agents) for env in (NAME, "Pendulum-v1"))
    assert (ours.population, ours.objective, ours.update, ours.run) == (
        theirs.population,
        theirs.objective,
        theirs.update,
        theirs.run,
    )
