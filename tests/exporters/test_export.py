"""What `km.export` and `kmyriad export` write and refuse, and that the scripts in exported folders run."""

import contextlib
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import kmyriad as km
from kmyriad import cli
from kmyriad.config import PretrainConfig, with_settings
from kmyriad.exporters.carried.policy import make_env
from kmyriad.exporters.export import POLICY_TARGETS
from kmyriad.exporters.folder import carried_module
from tests import walk_env
from tests.exporters.untrained import CASES, SMALL, untrained_jumpstart, untrained_run
from tests.test_benchmarks import BENCHMARKS

GOAL = (1.0, -2.0)
OTHERS = {"own vector": "CartPole-v1", "function": "tests.walk_env:WalkEnding"}
LIBRARIES = {"onnx": "onnxruntime", "sb3-ppo": "stable_baselines3", "sb3-sac": "stable_baselines3", "rsl-rl": "rsl_rl"}
SHORT = {
    "sb3-ppo": ["--steps", "512", "--envs", "1", "--critic-first", "256"],
    "sb3-sac": ["--steps", "60", "--envs", "2", "--critic-first", "30"],
    "onnx": [],
}
OTHERWISE = ["--steps", "256", "--envs", "2", "--critic-first", "1"]
TRAINED = {"sb3-ppo": "ppo-trained.zip", "sb3-sac": "sac-trained.zip", "rsl-rl": "model-trained.pt"}
TRAINED |= {"skrl": "agent-trained.pt", "torch": "agent-trained.safetensors", "cleanrl": "agent-trained.safetensors"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    untrained_run(folder / "maze", CASES["the paper's"])
    untrained_run(folder / "discrete", CASES["discrete"])
    untrained_run(folder / "choices", CASES["discrete, two choices"])
    untrained_run(folder / "bits", CASES["discrete, bits"])
    untrained_run(folder / "shifted", with_settings(CASES["discrete"], {"env": walk_env.SHIFTED}))
    for name, env in OTHERS.items():
        settings = {"env": env, "env_settings": {"lucky": True} if name == "function" else {}}
        untrained_run(folder / name, with_settings(CASES["discrete"], settings))
    untrained_jumpstart(folder / "jumpstart")
    untrained_jumpstart(folder / "two", top=2)
    return folder


@pytest.fixture(autouse=True)
def _one_thread():
    """Small networks; spinning threads would slow a busy machine down."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run_script(folder, arguments, monkeypatch):
    """As `python train_on.py` in the folder, without importing torch anew."""
    (script,) = [path for path in folder.glob("*.py") if not path.name.startswith("kmyriad_")]
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    with carried_module(folder, "policy"):
        runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize(
    ("to", "kind"),
    [*((to, "pretrained") for to in POLICY_TARGETS), *((to, "jump-started") for to in ("sb3-ppo", "rsl-rl"))],
)
def test_the_script_of_every_target_runs(to, kind, runs, tmp_path, monkeypatch, capsys):
    pytest.importorskip(LIBRARIES.get(to, "torch" if to in ("torch", "cleanrl") else to))
    if kind == "pretrained":
        folder = km.export(runs / "maze", to, tmp_path / "out", agent=1, goal=GOAL)
    else:
        folder = km.export(runs / "jumpstart", to, tmp_path / "out")
    facts = json.loads((folder / "policy.json").read_text())
    assert facts["goal"] == list(GOAL)
    assert bool(facts["critic_hidden"]) == (kind == "jump-started")
    readme = (folder / "README.md").read_text()
    assert 8 <= len(readme.splitlines()) <= 14
    assert "kmyriad/PointMaze-v0`, 20 steps per episode, reward 1 at the goal 1 -2" in readme
    assert ("its critic came along" in readme) == (kind == "jump-started")
    run_script(folder, SHORT.get(to, OTHERWISE), monkeypatch)
    shown = capsys.readouterr().out
    assert to == "onnx" or [shown.count(f"{when} training: success in ") for when in ("before", "after")] == [1, 1]
    assert float(shown.split("kmyriad's actions: ")[1].split()[0]) < 1e-5
    assert to == "onnx" or (folder / TRAINED[to]).stat().st_size > 5_000


@pytest.mark.parametrize("kind", ["discrete", "choices", "bits"])
@pytest.mark.parametrize("to", ["sb3-ppo", "skrl", "cleanrl"])
def test_discrete_policies_train_on(to, kind, runs, tmp_path, monkeypatch, capsys):
    pytest.importorskip(LIBRARIES.get(to, "torch" if to == "cleanrl" else to))
    folder = km.export(runs / kind, to, tmp_path / "out", agent=0)
    run_script(folder, SHORT.get(to, OTHERWISE), monkeypatch)
    assert "largest difference from kmyriad's actions: 0.0e+00" in capsys.readouterr().out
    assert (folder / TRAINED[to]).exists()


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("to", ["sb3-ppo", "cleanrl"])
def test_environments_of_any_kind_are_made_again(name, to, runs, tmp_path, monkeypatch, capsys):
    """Gymnasium's own vector versions restart in another way, and a function has no id."""
    pytest.importorskip(LIBRARIES.get(to, "torch"))
    folder = km.export(runs / name, to, tmp_path / "out", agent=0)
    run_script(folder, SHORT.get(to, OTHERWISE), monkeypatch)
    shown = capsys.readouterr().out
    for when in ("before", "after"):  # a reward of 1 for every step, of which there are 20
        assert 1 < float(shown.split(f"{when} training: return ")[1].split(",")[0]) <= 20


def test_success_is_of_whole_episodes(runs, tmp_path):
    folder = km.export(runs / "maze", "cleanrl", tmp_path / "out", agent=0, goal=GOAL, goal_radius=20.0)
    with carried_module(folder, "policy") as policy:
        facts = policy.read_facts(folder)
        everywhere = policy.returns(policy.load_policy(folder).act, policy.make_envs(facts, 5))
        facts["env_settings"]["goal_radius"] = 0.1
        nowhere = policy.returns(policy.load_policy(folder).act, policy.make_envs(facts, 5))
    assert everywhere.tolist() == [1.0] * 5
    assert nowhere.tolist() == [0.0] * 5


@pytest.mark.parametrize(
    ("env_id", "sentence"),
    [("given:Walk", "was an object given in Python"), ("gymnasium:make_vec", "makes many environments at once")],
)
def test_environments_that_cannot_be_made_again_say_so(env_id, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_env({"env_id": env_id, "env_settings": {}})


def test_without_a_goal_there_is_nothing_to_learn(runs, tmp_path, monkeypatch, capsys):
    folder = km.export(runs / "maze", "cleanrl", tmp_path / "out", agent=0)
    assert "no reward without a goal" in (folder / "README.md").read_text()
    run_script(folder, OTHERWISE, monkeypatch)
    assert capsys.readouterr().out.count("there is no reward to learn from: this was exported without a goal") == 1


@pytest.mark.parametrize("agent", ["3", "4"])
def test_an_agent_of_the_portfolio_plays(agent, runs, tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    folder = km.export(runs / "maze", "onnx", tmp_path / "out", all_agents=True)
    with contextlib.nullcontext() if agent == "3" else pytest.raises(SystemExit):
        run_script(folder, ["--agent", agent], monkeypatch)
    told = capsys.readouterr()
    assert "one episode: 20 steps" in told.out if agent == "3" else "invalid choice: 4" in told.err


@pytest.fixture
def trained(runs, tmp_path, monkeypatch):
    """`trained("skrl")` is a folder whose script has trained on and saved, in the library's own way."""

    def training(to):
        folder = km.export(runs / "maze", to, tmp_path / to, agent=1, goal=GOAL)
        run_script(folder, SHORT.get(to, OTHERWISE), monkeypatch)
        return folder

    return training


SEEN = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("to", "kind"), [("sb3-ppo", "PPO"), ("sb3-sac", "SAC")])
def test_sb3_goes_on(to, kind, trained):
    """Saved by the script, loaded by the library, trained again, saved and loaded again."""
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env

    def acts(model):
        return model.predict(SEEN.numpy(), deterministic=True)[0]

    folder, algorithm = trained(to), getattr(sb3, kind)
    with carried_module(folder, "sb3") as carried:
        facts = carried.read_facts(folder)
        env = make_vec_env(lambda: sys.modules["kmyriad_policy"].make_env(facts), 2)
        model = algorithm.load(folder / TRAINED[to], env=env)
        begun = acts(model)
        model.learn(64, reset_num_timesteps=False)
        model.save(folder / "again.zip")
        assert (acts(model) != begun).any()
        assert (acts(algorithm.load(folder / "again.zip")) == acts(model)).all()


def test_rsl_rl_goes_on(trained):
    pytest.importorskip("rsl_rl")
    from tensordict import TensorDict

    folder = trained("rsl-rl")
    with carried_module(folder, "rsl_rl") as carried, torch.no_grad():
        seen = TensorDict({carried.GROUP: SEEN}, batch_size=[len(SEEN)])
        environments, cfg = carried.make_environments(folder, 2), carried.train_cfg(folder)
        runner = carried.OnPolicyRunner(environments, cfg, device="cpu")
        runner.load(str(folder / TRAINED["rsl-rl"]))
        begun = runner.alg.actor(seen)
        with torch.enable_grad():
            runner.learn(1)
        runner.save(str(folder / "again.pt"))
        again = carried.OnPolicyRunner(environments, carried.train_cfg(folder), device="cpu")
        again.load(str(folder / "again.pt"))
        assert not torch.equal(runner.alg.actor(seen), begun)
        assert torch.equal(runner.alg.actor(seen), again.alg.actor(seen))


def test_skrl_goes_on(trained):
    pytest.importorskip("skrl")
    folder = trained("skrl")
    with carried_module(folder, "skrl") as carried:
        agent, again = carried.make_agent(folder), carried.make_agent(folder)
        begun = agent.policy.network.act(SEEN)
        agent.load(str(folder / TRAINED["skrl"]))
        agent.save(str(folder / "again.pt"))
        again.load(str(folder / "again.pt"))
        assert not torch.equal(agent.policy.network.act(SEEN), begun)
        assert torch.equal(agent.policy.network.act(SEEN), again.policy.network.act(SEEN))


def test_cleanrl_goes_on(trained):
    folder = trained("cleanrl")
    with carried_module(folder, "ppo") as carried:
        agent = carried.Agent(folder)
        begun = agent.policy.act(SEEN)
        agent.load_state_dict(load_file(folder / TRAINED["cleanrl"]))
        assert not torch.equal(agent.policy.act(SEEN), begun)


def test_the_best_agent_for_a_goal_is_taken(runs, tmp_path, capsys):
    folder = km.export(runs / "maze", "cleanrl", tmp_path / "out", goal=GOAL, threads=1)
    best = km.select(runs / "maze", GOAL, threads=1).best
    assert json.loads((folder / "policy.json").read_text())["agent"] == best


def test_all_agents_have_a_folder_each(runs, tmp_path):
    folder = km.export(runs / "maze", "cleanrl", tmp_path / "out", all_agents=True)
    assert sorted(path.name for path in folder.iterdir()) == [f"agent-{index}" for index in range(4)]
    assert json.loads((folder / "agent-3/policy.json").read_text())["agent"] == 3


def test_the_command(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(["export", str(runs / "maze"), "--to", "cleanrl", "--agent", "2"])
    assert "wrote exports/maze-agent-2-cleanrl" in capsys.readouterr().err
    assert (tmp_path / "exports/maze-agent-2-cleanrl/policy.safetensors").exists()
    cli.main(["export", str(runs / "maze"), "--to", "cleanrl", "--all"])
    readme = Path(capsys.readouterr().err.split(" cat ")[1].strip())
    assert readme == Path("exports/maze-all-cleanrl/agent-0/README.md")
    assert readme.exists()


def test_carried_code_knows_nothing_of_this_package(runs, tmp_path):
    """The folder works where kmyriad is not installed; only its worlds need it."""
    for to in POLICY_TARGETS:
        pytest.importorskip(LIBRARIES.get(to, "torch" if to in ("torch", "cleanrl") else to))
        folder = km.export(runs / "maze", to, tmp_path / to, agent=1)
        for path in folder.glob("*.py"):
            lines = [line.strip() for line in path.read_text().splitlines() if "import" in line]
            assert not [line for line in lines if "kmyriad." in line]
            assert all("# noqa" in line for line in lines if line.startswith("import kmyriad"))
        assert not [*folder.rglob("__pycache__")]
    assert not [name for name in sys.modules if name.startswith("kmyriad_")]


@pytest.mark.parametrize(
    ("run", "settings", "sentence"),
    [
        ("maze", {"to": "sb4"}, "unknown target 'sb4'"),
        ("maze", {"to": "onnx"}, "has 4 agents; name one (--agent 3), or a goal"),
        ("two", {"to": "onnx"}, "has 2 agents; name one (--agent 1), or take all (--all)"),
        ("maze", {"to": "onnx", "agent": 4}, "agent must be between 0 and 3; got 4"),
        ("maze", {"to": "onnx", "agent": 1, "all_agents": True}, "exclude each other"),
        ("maze", {"to": "onnx", "goal": (1.0,)}, "goal must be (x, y), (x, y, z)"),
        ("maze", {"to": "onnx", "agent": 1, "goal": (100.0, 0.0)}, "cannot be reached"),
        ("discrete", {"to": "sb3-sac", "agent": 0}, "has no discrete actions"),
        ("discrete", {"to": "rsl-rl", "agent": 0}, "has no discrete actions"),
        ("choices", {"to": "sb3-sac", "agent": 0}, "has no discrete actions"),
        ("shifted", {"to": "onnx", "agent": 0}, "are no plain vector of numbers or of indices from 0"),
        ("jumpstart", {"to": "onnx", "goal": GOAL}, "has a goal of its own"),
        ("nothing", {"to": "onnx"}, "there is no run folder"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(run, settings, sentence, runs, tmp_path):
    with pytest.raises(km.UsageError) as caught:
        km.export(runs / run, out=tmp_path / "out", **settings)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("to", "module"),
    [("sb3-ppo", "stable_baselines3"), ("rsl-rl", "rsl_rl"), ("skrl", "skrl"), ("onnx", "onnx")],
)
def test_a_missing_library_is_one_sentence(to, module, runs, tmp_path, monkeypatch):
    for known in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(km.UsageError, match=r"is not installed; install it with: pip install 'kmyriad\["):
        km.export(runs / "maze", to, tmp_path / "out", agent=1)
    assert not [*tmp_path.iterdir()]


def test_a_folder_with_something_in_it_stays_as_it_is(runs, tmp_path):
    (tmp_path / "out").mkdir()
    km.export(runs / "maze", "cleanrl", tmp_path / "out", agent=1)  # an empty one will do
    with pytest.raises(km.UsageError, match="already there and not empty"):
        km.export(runs / "maze", "cleanrl", tmp_path / "out", agent=1)
    with pytest.raises(km.UsageError, match="already there and not empty"):
        km.export(runs / "maze", "cleanrl", tmp_path / "out/README.md", agent=1)


@pytest.mark.slow
def test_success_survives_the_journey(tmp_path):
    """As often there as here, on 1,000 episodes, and hardly lower while the library trains on for 20,000 steps."""
    report = tmp_path / "report.json"
    one = ["--worlds", "point-maze", "--seeds", "1"]
    command = [sys.executable, str(BENCHMARKS / "export.py"), *one, "--json", str(report)]
    subprocess.run(command, check=True, capture_output=True, timeout=3000)
    content = json.loads(report.read_text())
    assert {row["target"] for row in content["rows"]} == {*POLICY_TARGETS}
    assert 0.4 < content["rows"][0]["success_here"] < 0.95  # there is something to lose
    figures = content["figures"]
    assert figures["max_difference"] < 1e-5
    assert figures["drop_error"] < 0.025
    assert figures["largest_gap"] < 0.09  # four deviations of the difference of two rates
    assert figures["worst_drop"] <= 0.1


def test_the_benchmark_writes_its_figures(tmp_path):
    pytest.importorskip("onnxruntime")
    report = tmp_path / "report.json"
    targets = ["--targets", "onnx", "cleanrl"]
    command = [sys.executable, str(BENCHMARKS / "export.py"), "--quick", *targets, "--json", str(report)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    figures = json.loads(report.read_text())["figures"]
    assert {*figures} == {"max_difference", "largest_gap", "worst_drop", "drop_error", "fifty_agents_seconds"}
    assert figures["max_difference"] < 1e-5


def test_the_benchmark_of_data_writes_its_figures(tmp_path):
    report = tmp_path / "report.json"
    command = [sys.executable, str(BENCHMARKS / "dataset.py"), "--quick", "--formats", "npz", "--json", str(report)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert 0 < json.loads(report.read_text())["figures"]["most_memory_gb"] < 1


def test_a_folder_stands_alone(tmp_path):
    """In somebody's environment, where kmyriad cannot be imported."""
    pytest.importorskip("stable_baselines3")
    config = with_settings(PretrainConfig(), {"env": "Pendulum-v1", "agents": 2, **SMALL})
    run = untrained_run(tmp_path / "run", config)
    code = (
        "import runpy, sys, torch\n"
        "torch.set_num_threads(1)\n"
        "sys.modules['kmyriad'] = None\n"
        "for folder in sys.argv[1:]:\n"
        "    for name in [name for name in sys.modules if name.startswith('kmyriad_')]:\n"
        "        del sys.modules[name]\n"
        "    sys.path.insert(0, folder)\n"
        "    sys.argv = ['train_on.py', '--steps', '256', '--envs', '1']\n"
        "    runpy.run_path(f'{folder}/train_on.py', run_name='__main__')\n"
    )
    folders = [str(km.export(run, to, tmp_path / to, agent=1)) for to in ("cleanrl", "sb3-ppo")]
    command = [sys.executable, "-c", code, *folders]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    differences = [float(part.split()[0]) for part in shown.split("kmyriad's actions: ")[1:]]
    assert len(differences) == 2
    assert max(differences) < 1e-5


@pytest.mark.slow
def test_the_goal_is_learned_from_data_alone():
    example = BENCHMARKS.parent / "examples/offline.py"
    small = ["--pretrain-steps", "100000", "--episodes", "400", "--steps", "2000", "--trials", "50"]
    shown = subprocess.run([sys.executable, str(example), *small], capture_output=True, text=True, check=True).stdout
    in_data, learned = (float(shown.split(words)[1].split()[0]) for words in ("agents: ", "gradient steps: "))
    assert learned > in_data
