import mujoco
import numpy as np
import pytest

from kmyriad.envs.ant import FEATURES, LEGS, ant_world, mirror
from tests.conftest import random_actions


def test_body_is_the_papers():
    model = ant_world().model
    assert model.nbody == 1 + 9
    assert model.nu == 8
    assert model.nq == 15
    assert model.body_mass.sum() == pytest.approx(0.911, abs=1e-3)
    np.testing.assert_allclose(model.dof_armature[6:], 0.05)
    np.testing.assert_allclose(model.dof_damping[6:], 0.1)
    np.testing.assert_allclose(model.actuator_gear[:, 0], 7.5)
    np.testing.assert_allclose(model.geom_friction[:, 0], 1.0)
    degrees = np.rad2deg(model.jnt_range[1:])
    np.testing.assert_allclose(degrees[0::2], [[-40, 40]] * 4)
    np.testing.assert_allclose(degrees[1::2], [[30, 100], [-100, -30], [-100, -30], [30, 100]])
    assert model.opt.timestep == 1 / 60
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_IMPLICITFAST


def test_settings_reach_the_model():
    world = ant_world(timestep=0.01, decimation=3, armature=0.01, density=10.0, horizon=7)
    assert world.model.opt.timestep == 0.01
    assert (world.decimation, world.horizon) == (3, 7)
    assert world.model.dof_armature[6] == 0.01
    assert world.model.body_mass.sum() == pytest.approx(2 * 0.911, abs=2e-3)


def test_actions_drive_the_joint_they_name(make_vec):
    names = [f"{leg}_{joint}" for leg in LEGS for joint in ("hip", "ankle")]
    model = ant_world().model
    for index, name in enumerate(names):
        assert model.actuator_trnid[index, 0] == model.joint(name).id
    env = make_vec("kmyriad/AntEmpty-v0", 8)
    env.reset()
    before = env.read_features(["joint_angles"])
    env.step(np.eye(8, dtype=np.float32))
    turned = env.read_features(["joint_angles"]) - before
    assert (np.diag(turned) > 0.1).all()


def test_robot_does_not_collide_with_itself():
    world = ant_world()
    model, data = world.model, mujoco.MjData(world.model)
    data.qpos[:] = world.initial_state(None)[0]
    data.qpos[2] = 5.0
    data.qpos[7::2] = np.deg2rad([40, -40, 40, -40])  # neighbouring legs folded onto each other
    mujoco.mj_forward(model, data)
    assert data.ncon == 0


def test_observation_has_the_papers_62_numbers_in_order():
    assert FEATURES.observation_size == 62
    observed = [name for name in FEATURES if FEATURES[name].source == "observation"]
    assert observed[:3] == ["x", "y", "z"]
    assert [FEATURES[name].slice.start for name in observed] == [0, 1, 2, 3, 6, 9, 10, 11, 12, 13, 14, 22, 30, 54]


def test_observation_formulas_against_mujocos_own_functions(make_vec):
    env = make_vec("kmyriad/AntPyramid-v0", 6, reset_noise=1.0)
    env.reset(seed=0)
    model = env.world.model
    for step, actions in enumerate(random_actions(env, 25)):
        before = env.get_state().physics
        env.step(actions)
        if step % 6:
            continue
        for replica in range(env.num_envs):
            _check_one(env, model, before[replica], replica, actions[replica])


def _check_one(env, model, before, replica, action):
    """Replays one control step in a plain MjData and computes every term from MuJoCo's frames."""
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, before, mujoco.mjtState.mjSTATE_INTEGRATION)
    data.ctrl[:] = action
    for _ in range(env.world.decimation):
        mujoco.mj_step(model, data)
    wrench = np.array(data.sensordata)  # what acted in the last physics step
    mujoco.mj_forward(model, data)
    torso = data.body("torso")
    axes = torso.xmat.reshape(3, 3)
    velocity = np.empty(6)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, torso.id, velocity, 1)
    yaw = np.arctan2(axes[1, 0], axes[0, 0])
    roll = np.arctan2(axes[2, 1], axes[2, 2])
    to_target = np.array([1000.0, 0.0]) - torso.xpos[:2]
    angle = (np.arctan2(to_target[1], to_target[0]) - yaw + np.pi) % (2 * np.pi) - np.pi
    heading = axes[:2, 0] @ to_target / np.linalg.norm(to_target)
    low, high = model.jnt_range[1:].T
    expected = {
        "x": torso.xpos[0],
        "y": torso.xpos[1],
        "z": torso.xpos[2],
        "linear_velocity": velocity[3:],
        "angular_velocity": velocity[:3],
        "yaw": yaw,
        "roll": roll,
        "angle_to_target": angle,
        "up": axes[2, 2],
        "heading": heading,
        "joint_positions": 2 * (data.qpos[7:] - (low + high) / 2) / (high - low),
        "joint_velocities": 0.2 * data.qvel[6:],
        "feet_wrenches": 0.1 * wrench,
        "last_action": action,
        "quaternion": torso.xquat,
        "joint_angles": data.qpos[7:],
        "world_velocity": data.qvel[:3],
    }
    assert expected.keys() == set(FEATURES)
    for name, value in expected.items():
        read = env.read_features([name])[replica]
        np.testing.assert_allclose(read, np.atleast_1d(value), rtol=1e-5, atol=2e-5, err_msg=name)


def test_feet_carry_the_weight_when_standing(make_vec):
    """At rest the legs press the feet down: the wrench's vertical part is what carries torso and legs."""
    env = make_vec("kmyriad/AntEmpty-v0", 1)
    env.reset()
    for _ in range(60):
        env.step(np.zeros((1, 8), np.float32))
    model, state = env.world.model, env.get_state()
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, state.physics[0], mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    forces = env.read_features(["feet_wrenches"])[0].reshape(4, 6)[:, :3] * 10
    shanks = [data.body(f"{leg}_foot") for leg in LEGS]
    upwards = sum((shank.xmat.reshape(3, 3) @ force)[2] for shank, force in zip(shanks, forces, strict=True))
    carried = model.body_mass.sum() - sum(model.body_mass[shank.id] for shank in shanks)
    assert upwards == pytest.approx(-9.81 * carried, rel=0.05)


def test_actions_beyond_one_are_clipped(make_vec):
    strong, full = make_vec("kmyriad/AntEmpty-v0", 1), make_vec("kmyriad/AntEmpty-v0", 1)
    strong.reset(), full.reset()
    sign = np.where(np.arange(8) % 2, 1.0, -1.0)[None]
    np.testing.assert_array_equal(strong.step(50 * sign)[0], full.step(sign)[0])
    assert np.abs(strong.read_features(["last_action"])).max() == 1.0


@pytest.mark.parametrize("axis", [0, 1])
def test_an_ant_and_its_mirror_image_stay_mirror_images(axis, make_vec):
    """For a second of random actions, contacts with the ground included."""
    env = make_vec("kmyriad/AntEmpty-v0", 2)
    env.reset(seed=3)
    along, joints = np.where(np.arange(3) == axis, -1, 1), mirror(axis).action
    qpos, qvel = env._qpos, env._qvel
    qpos[1] = [*along * qpos[0, :3], qpos[0, 3], *-along * qpos[0, 4:7], *joints(qpos[0, 7:])]
    qvel[1] = [*along * qvel[0, :3], *-along * qvel[0, 3:6], *joints(qvel[0, 6:])]
    rng = np.random.default_rng(0)
    for _ in range(30):
        action = rng.uniform(-1, 1, 8).astype(np.float32)
        observation = env.step(np.stack([action, joints(action)]))[0]
        # The far target is on the positive x axis in either world: its bearing is off by y / 1000 in the mirror of x.
        np.testing.assert_allclose(observation[1], mirror(axis).observation(observation[0]), atol=[2e-3, 1e-6][axis])
    assert np.abs(observation[0] - observation[1]).max() > 0.1
