"""Policies from elsewhere: the same actions here as in their own library, and a bad file is one sentence."""

import contextlib
import io
import json
import zipfile

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import kmyriad as km
from kmyriad import cli
from kmyriad.errors import UsageError
from kmyriad.population.distributions import action_spec
from kmyriad.runs.foreign import STD_OF_NONE, read_policy
from tests import walk_env
from tests.exporters.untrained import CASES, close, untrained_run

walk_env.register()
SIZE, ACTIONS = 5, 3
LOW, HIGH = np.array([-1, -2, 0], np.float32), np.array([1, 2, 3], np.float32)
BOX = gymnasium.spaces.Box(LOW, HIGH)
SEEN = torch.from_numpy(np.random.default_rng(0).normal(0, 3, (1000, SIZE)).astype(np.float32))
TINY = {"replicas": 8, "rollout_steps": 10, "horizon": 20, "total_steps": 1500, "critic_epochs": 1, "threads": 1}


class Nothing(gymnasium.Env):
    """Only has spaces."""

    def __init__(self, actions):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
        self.action_space = actions


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def acts(population, seen=SEEN):
    """(distribution, the environment's action in its middle)."""
    with torch.no_grad():
        policy = population(seen[None])
    middle = policy.logits if population.actions.is_discrete else policy.mean
    return policy, population.actions.squash(middle[0]).numpy()


@pytest.mark.parametrize("activation", ["Tanh", "ReLU", "ELU"])
@pytest.mark.parametrize("discrete", [False, True])
def test_sb3_ppo(activation, discrete, tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    space = gymnasium.spaces.Discrete(4) if discrete else BOX
    settings = {"net_arch": [16, 8], "log_std_init": -0.5}
    if activation != "Tanh":  # SB3's own default goes unnamed
        settings["activation_fn"] = getattr(torch.nn, activation)
    model = sb3.PPO("MlpPolicy", Nothing(space), policy_kwargs=settings, device="cpu")
    torch.nn.init.normal_(model.policy.action_net.weight)
    model.save(tmp_path / "ppo.zip")
    population = read_policy(tmp_path / "ppo.zip", SIZE, action_spec(space))
    policy, actions = acts(population)
    assert close(actions, model.predict(SEEN.numpy(), deterministic=True)[0])
    raw = torch.randint(4, (1000,)) if discrete else policy.mean[0] + torch.randn(1000, ACTIONS)
    with torch.no_grad():
        _, log_prob, _ = model.policy.evaluate_actions(SEEN, raw)
    ours = policy.log_prob((torch.nn.functional.one_hot(raw, 4) if discrete else raw)[None])[0]
    assert close(ours, log_prob)


@pytest.mark.parametrize("space", [gymnasium.spaces.MultiDiscrete([3, 2]), gymnasium.spaces.MultiBinary(3)], ids=str)
def test_sb3_ppo_of_several_choices(space, tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", Nothing(space), policy_kwargs={"net_arch": [16, 8]}, device="cpu")
    torch.nn.init.normal_(model.policy.action_net.weight)
    model.save(tmp_path / "ppo.zip")
    population = read_policy(tmp_path / "ppo.zip", SIZE, action_spec(space))
    policy, actions = acts(population)
    assert close(actions, model.predict(SEEN.numpy(), deterministic=True)[0])
    raw = policy.sample(torch.from_numpy(population.actions.noise(np.random.default_rng(0), policy.logits.shape)))
    with torch.no_grad():
        taken = population.actions.squash(raw[0]).float()
        _, log_prob, _ = model.policy.evaluate_actions(SEEN, taken)
    assert close(policy.log_prob(raw)[0], log_prob)


def test_sb3_sac(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.SAC("MlpPolicy", Nothing(BOX), policy_kwargs={"net_arch": [16, 8]}, buffer_size=10, device="cpu")
    model.save(tmp_path / "sac.zip")
    policy, actions = acts(read_policy(tmp_path / "sac.zip", SIZE, action_spec(BOX)))
    assert close(actions, model.predict(SEEN.numpy(), deterministic=True)[0])
    with torch.no_grad():
        _, log_std, _ = model.policy.actor.get_action_dist_params(SEEN)
    assert close(policy.log_std[0], log_std)


def rsl_rl_runner(folder, std_type="log", normalises=True):
    from rsl_rl.runners import OnPolicyRunner
    from tensordict import TensorDict

    from kmyriad.exporters.carried.rsl_rl import GROUP, Blank

    gaussian = {"class_name": "GaussianDistribution", "init_std": 0.4, "std_type": std_type}
    model = {"class_name": "MLPModel", "hidden_dims": [16, 8], "obs_normalization": normalises}
    cfg = {"num_steps_per_env": 4, "save_interval": 1, "obs_groups": {"actor": [GROUP], "critic": [GROUP]}}
    cfg |= {"actor": model | {"distribution_cfg": gaussian}, "critic": model, "algorithm": {"class_name": "PPO"}}
    with contextlib.redirect_stdout(io.StringIO()):
        env = Blank({"actions": ACTIONS, "horizon": 10, "observation_size": SIZE})
        runner = OnPolicyRunner(env, cfg, device="cpu")
    seen = TensorDict({GROUP: SEEN}, batch_size=[1000])
    runner.alg.actor.train()
    runner.alg.actor.update_normalization(seen)
    runner.save(str(folder / "model.pt"))
    return runner, seen


@pytest.mark.parametrize(("std_type", "normalises"), [("log", True), ("scalar", False)])
def test_rsl_rl(std_type, normalises, tmp_path):
    pytest.importorskip("rsl_rl")
    runner, seen = rsl_rl_runner(tmp_path, std_type, normalises)
    policy, actions = acts(read_policy(tmp_path / "model.pt", SIZE, action_spec(BOX)))
    with torch.no_grad():
        mean = runner.alg.actor(seen)
    assert close(policy.mean[0], mean)
    assert close(policy.log_std.exp(), torch.full((1, 1000, ACTIONS), 0.4))
    assert close(actions, np.clip(mean.numpy(), LOW, HIGH))


def test_rsl_rl_of_former_years(tmp_path):
    """Actor and critic were one module, the normaliser beside it or within."""
    stored = {
        f"actor.{place}.{part}": torch.randn(*shape)
        for place, part, shape in (
            (0, "weight", (8, SIZE)),
            (0, "bias", (8,)),
            (2, "weight", (ACTIONS, 8)),
            (2, "bias", (ACTIONS,)),
        )
    }
    mean, deviation = torch.randn(1, SIZE), 1 + torch.rand(1, SIZE)
    seen = (SEEN - mean) / (deviation + 0.01)
    hidden = torch.nn.functional.elu(seen @ stored["actor.0.weight"].T + stored["actor.0.bias"])
    expected = hidden @ stored["actor.2.weight"].T + stored["actor.2.bias"]
    for name, model, beside in (
        ("beside", {}, {"obs_norm_state_dict": {"_mean": mean, "_std": deviation}}),
        ("within", {"actor_obs_normalizer._mean": mean, "actor_obs_normalizer._std": deviation}, {}),
    ):
        model_state = stored | {"std": torch.full((ACTIONS,), 0.3)} | model
        torch.save({"model_state_dict": model_state, "iter": 3, **beside}, tmp_path / name)
        policy, _ = acts(read_policy(tmp_path / name, SIZE, action_spec(BOX)))
        assert close(policy.mean[0], expected)


class Scaled(torch.nn.Module):
    """A network as other exporters write it: normalised, perhaps squashed at the end."""

    def __init__(self, squashes):
        super().__init__()
        self.mean, self.scale = torch.randn(SIZE), 1 + torch.rand(SIZE)
        end = [torch.nn.Tanh()] if squashes else []
        linear = torch.nn.Linear
        self.layers = torch.nn.Sequential(
            linear(SIZE, 16), torch.nn.ReLU(), linear(16, 8), torch.nn.ReLU(), linear(8, 3), *end
        )

    def forward(self, observation):
        return self.layers((observation - self.mean) / self.scale)


@pytest.mark.parametrize("squashes", [False, True])
@pytest.mark.filterwarnings("ignore")  # torch's exporter warns about its own parts
def test_onnx_of_another_exporter(squashes, tmp_path):
    pytest.importorskip("onnxscript")
    module = Scaled(squashes).eval()
    torch.onnx.export(module, (SEEN[:2],), tmp_path / "policy.onnx", dynamo=True, external_data=False, verbose=False)
    policy, actions = acts(read_policy(tmp_path / "policy.onnx", SIZE, action_spec(BOX)))
    with torch.no_grad():
        told = module(SEEN)
    assert close(actions, LOW + (HIGH - LOW) * (told.numpy() + 1) / 2 if squashes else np.clip(told.numpy(), LOW, HIGH))
    assert close(policy.log_std.exp(), torch.full((1, 1000, ACTIONS), STD_OF_NONE))


FILES = {"onnx": "policy.onnx", "sb3-ppo": "ppo.zip", "sb3-sac": "sac.zip", "rsl-rl": "model.pt", "skrl": "agent.pt"}
FILES |= {"cleanrl": "policy.safetensors"}


@pytest.mark.parametrize("case", CASES)
def test_what_was_exported_comes_back(case, tmp_path):
    run = untrained_run(tmp_path / "run", CASES[case])
    alone = km.load_population(run).select([1])
    for to, file in FILES.items():
        if not (alone.actions.is_discrete and to in ("sb3-sac", "rsl-rl")):
            folder = km.export(run, to, tmp_path / to, agent=1)
            seen = load_file(folder / "reference.safetensors")["observations"]
            ours, actions = acts(alone, seen)
            theirs, again = acts(read_policy(folder / file, alone.observation_size, alone.actions), seen)
            assert close(actions, again)
            if not alone.actions.is_discrete:
                assert close(ours.log_std, theirs.log_std)


@pytest.fixture(scope="module")
def zipped_ppo(tmp_path_factory):
    """A policy of SB3 for PointMaze."""
    sb3 = pytest.importorskip("stable_baselines3")
    path = tmp_path_factory.mktemp("sb3") / "ppo.zip"
    env = gymnasium.make("kmyriad/PointMaze-v0")
    sb3.PPO("MlpPolicy", env, policy_kwargs={"net_arch": [16, 8]}, n_steps=8, batch_size=8, device="cpu").save(path)
    env.close()
    return path


def test_a_jumpstart_begins_with_it_and_goes_home_again(zipped_ppo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["jumpstart", "point-maze", "--init", "policy", "--policy", str(zipped_ppo), "--goal", "1", "-2"]
    flags = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    cli.main([*words, *flags, "--out", "run"])
    run = km.open_run("run")
    assert run.last_row()["env_steps"] >= TINY["total_steps"]
    assert json.loads(run.selection_path.read_text())["standings"][0]["agent"] == 0
    cli.main(["compare", "run"])
    assert "policy" in capsys.readouterr().out
    km.write_report([run], "report.html")
    assert "a policy that was trained elsewhere" in (tmp_path / "report.html").read_text()
    population = km.load_population(run)
    for to in ("onnx", "sb3-ppo", "rsl-rl", "cleanrl"):  # actions that are cut off, tanh in the layers
        folder = km.export(run, to, tmp_path / to)
        seen = load_file(folder / "reference.safetensors")["observations"]
        again = read_policy(folder / FILES[to], 4, action_spec(gymnasium.spaces.Box(-1, 1, (2,))))
        assert again.architecture()["clips"]
        assert close(acts(population, seen)[1], acts(again, seen)[1])
    with pytest.raises(UsageError, match="this policy cuts them off"):
        km.export(run, "sb3-sac", tmp_path / "sac")


def refused(path, actions=BOX, size=SIZE, **settings):
    with pytest.raises(UsageError) as caught:
        read_policy(path, size, action_spec(actions), **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Evil:
    def __reduce__(self):
        return print, ("this must never be seen",)


def test_a_pickle_is_never_run(tmp_path, capsys):
    import pickle

    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil()))
    torch.save({"actor_state_dict": Evil()}, tmp_path / "evil2.pt")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("data", json.dumps({"policy_class": {":serialized:": "gASVKQ=="}}))
        archive.write(tmp_path / "evil2.pt", "policy.pth")
    for name in ("evil.pt", "evil2.pt", "evil.zip"):
        assert "holds no policy that can be read" in refused(tmp_path / name)
    assert capsys.readouterr().out == ""


def test_other_files_are_one_sentence(zipped_ppo, tmp_path):
    (tmp_path / "empty.zip").write_bytes(b"")
    (tmp_path / "torn.zip").write_bytes(zipped_ppo.read_bytes()[:3000])
    (tmp_path / "text.onnx").write_text("hello")
    save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    torch.save({"weights": torch.zeros(1)}, tmp_path / "x.pt")
    torch.save([1], tmp_path / "list.pt")
    assert "holds no policy that can be read" in refused(tmp_path / "empty.zip")
    assert "holds no policy that can be read" in refused(tmp_path / "torn.zip")
    refused(tmp_path / "text.onnx")
    assert "policy.json" in refused(tmp_path / "x.safetensors")
    assert "it has weights" in refused(tmp_path / "x.pt")
    assert "holds a list" in refused(tmp_path / "list.pt")
    assert "No such file" in refused(tmp_path / "nothing.zip")
    assert "maps 4 observations to 2 actions, and the environment has 5 and 3" in refused(zipped_ppo)
    broken = torch.load(io.BytesIO(zipfile.ZipFile(zipped_ppo).read("policy.pth")), weights_only=True)
    broken["action_net.bias"] += torch.nan
    torch.save(broken, tmp_path / "policy.pth")
    with zipfile.ZipFile(tmp_path / "nan.zip", "w") as archive:
        archive.writestr("data", "{}")
        archive.write(tmp_path / "policy.pth", "policy.pth")
    assert "not finite" in refused(tmp_path / "nan.zip", gymnasium.spaces.Box(-1, 1, (2,)), 4)


def test_policy_and_file_go_together():
    with pytest.raises(UsageError, match="go together"):
        km.jumpstart("point-maze", init="policy", goal=(1, 1))
    with pytest.raises(UsageError, match="go together"):
        km.jumpstart("point-maze", policy="x.zip", goal=(1, 1))
