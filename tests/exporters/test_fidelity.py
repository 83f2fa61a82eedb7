"""What was exported gives the same actions and log-probabilities in the real library, opened in the library's own way.

On a thousand observations each, far ones among them.
"""

import contextlib
import io
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import kmyriad as km
from kmyriad.exporters.folder import carried_module
from tests.exporters.untrained import CASES, close, untrained_jumpstart, untrained_run

AGENT = 1
CONTINUOUS = [name for name in CASES if "discrete" not in name]


@pytest.fixture(autouse=True)
def _one_thread():
    """Small networks; spinning threads would slow a busy machine down."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: untrained_run(folder / str(index), config) for index, (name, config) in enumerate(CASES.items())}


def exported(run, to, folder, **settings):
    """(the folder, what kmyriad itself computes)."""
    path = km.export(run, to, folder / to, **{"agent": AGENT} | settings)
    reference = load_file(path / "reference.safetensors")
    assert len(reference["observations"]) == 1000
    return path, reference


def taken(run, reference):
    """Sampled actions as libraries take them: raw ones, or indices."""
    actions = km.load_population(run).actions
    return actions.squash(reference["raw"]) if actions.is_discrete else reference["raw"]


def test_the_reference_is_what_the_population_does(runs, tmp_path):
    """And not what the exporter made of it."""
    for name, run in runs.items():
        _, reference = exported(run, "cleanrl", tmp_path / name)
        population = km.load_population(run)
        alone = population.select([AGENT])
        with torch.no_grad():
            policy = alone(reference["observations"][None])
            assert close(policy.log_prob(reference["raw"][None])[0], reference["log_prob"])
            middle = policy.logits if population.actions.is_discrete else policy.mean
        assert close(population.actions.squash(middle[0]), reference["actions"])
        assert reference["observations"].abs().max() >= 100
        assert len(np.unique(reference["actions"].numpy().round(3), axis=0)) >= (2 if "discrete" in name else 500)


@pytest.mark.parametrize("case", CASES)
def test_plain_torch_and_cleanrl(runs, case, tmp_path):
    folder, reference = exported(runs[case], "cleanrl", tmp_path)
    raw = taken(runs[case], reference)
    with carried_module(folder, "ppo") as ppo, torch.no_grad():
        agent = ppo.Agent(folder)
        action, log_prob, entropy, value = agent.get_action_and_value(reference["observations"], raw)
        assert close(log_prob, reference["log_prob"])
        assert close(agent.policy.act(reference["observations"]), reference["actions"])
        assert (action.shape, entropy.shape, value.shape) == (raw.shape, (1000,), (1000, 1))


@pytest.mark.parametrize("case", ["mirrors and turns", "discrete", "discrete, two choices"])
def test_a_torch_program_needs_no_code_of_ours(runs, case, tmp_path):
    folder, reference = exported(runs[case], "torch", tmp_path)
    program = torch.export.load(folder / "policy.pt2").module()
    for count in (1, 3, 1000):
        mean, action = program(reference["observations"][-count:])
        assert close(mean.detach(), reference["mean"][-count:])
        assert close(action.detach(), reference["actions"][-count:])


@pytest.mark.parametrize("case", CASES)
def test_onnx(runs, case, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    folder, reference = exported(runs[case], "onnx", tmp_path)
    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    names = ["logits"] if "discrete" in case else ["mean", "log_std"]
    for count in (1, 1000):  # any batch
        seen = reference["observations"][-count:].numpy()
        *told, action = session.run([*names, "action"], {"observation": seen})
        for one, name in zip(told, ["mean", "log_std"], strict=False):
            assert close(one, reference[name][-count:])
        assert close(action, reference["actions"][-count:])
    metadata = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
    population = km.load_population(runs[case])
    assert metadata["low"] == population.actions.low.tolist()
    assert metadata["agent"] == AGENT
    if "mirrors" in case:
        assert metadata["observations"][0] == {"name": "x", "start": 0, "size": 1, "unit": "m"} | {
            "meaning": metadata["observations"][0]["meaning"]
        }


@pytest.mark.parametrize("case", CASES)
def test_all_agents_in_one_onnx_file(runs, case, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    folder = km.export(runs[case], "onnx", tmp_path / "all", all_agents=True)
    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    population = km.load_population(runs[case])
    seen = load_file(folder / "reference.safetensors")["observations"]
    agents = torch.arange(len(seen)) % population.agents  # another one in every row
    names = ["logits"] if population.actions.is_discrete else ["mean", "log_std"]
    *told, action = session.run([*names, "action"], {"observation": seen.numpy(), "agent": agents.numpy()})
    for agent in range(population.agents):
        rows = agents == agent
        with torch.no_grad():
            policy = population.agent(agent)(seen[rows])
        middle = policy.logits if population.actions.is_discrete else policy.mean
        assert close(population.actions.squash(middle), action[rows.numpy()])
        for name, one in zip(names, told, strict=True):
            assert close(getattr(policy, name), one[rows.numpy()])


@pytest.mark.parametrize("case", CASES)
def test_sb3_ppo(runs, case, tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    folder, reference = exported(runs[case], "sb3-ppo", tmp_path)
    seen = reference["observations"]
    raw = taken(runs[case], reference)
    with carried_module(folder, "sb3"):
        model = sb3.PPO.load(folder / "ppo.zip")
        model.save(folder / "again.zip")
        for one in (model, sb3.PPO.load(folder / "again.zip")):
            actions, _ = one.predict(seen.numpy(), deterministic=True)
            assert close(actions, reference["actions"])
            with torch.no_grad():
                _, log_prob, _ = one.policy.evaluate_actions(seen, raw.float() if "bits" in case else raw)
            assert close(log_prob, reference["log_prob"])


@pytest.mark.parametrize("case", CONTINUOUS)
def test_sb3_sac(runs, case, tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    folder, reference = exported(runs[case], "sb3-sac", tmp_path)
    with carried_module(folder, "sb3"):
        model = sb3.SAC.load(folder / "sac.zip")
        actions, _ = model.predict(reference["observations"].numpy(), deterministic=True)
        with torch.no_grad():
            mean, log_std, _ = model.policy.actor.get_action_dist_params(reference["observations"])
            distribution = model.policy.actor.action_dist.proba_distribution(mean, log_std)
            gaussian = distribution.distribution.log_prob(reference["raw"]).sum(-1)
    assert close(actions, reference["actions"])
    assert close(gaussian, reference["log_prob"])  # SAC adds the squashing's Jacobian to this
    critics = [model.policy.critic, model.policy.critic_target]
    for part in critics:
        for name, tensor in model.policy.actor.features_extractor.state_dict().items():
            assert torch.equal(part.features_extractor.state_dict()[name], tensor)


@pytest.mark.parametrize("case", CONTINUOUS)
def test_rsl_rl(runs, case, tmp_path):
    pytest.importorskip("rsl_rl")
    from tensordict import TensorDict

    folder, reference = exported(runs[case], "rsl-rl", tmp_path)
    with carried_module(folder, "rsl_rl") as rsl_rl, contextlib.redirect_stdout(io.StringIO()):
        runner = rsl_rl.OnPolicyRunner(rsl_rl.Blank(rsl_rl.read_facts(folder)), rsl_rl.train_cfg(folder), device="cpu")
        runner.load(str(folder / "model.pt"))
        actor, policy = runner.alg.actor, rsl_rl.load_policy(folder)
        seen = TensorDict({rsl_rl.GROUP: reference["observations"]}, batch_size=[1000])
        with torch.no_grad():
            mean = actor(seen)
            actor(seen, stochastic_output=True)
            assert close(actor.get_output_log_prob(reference["raw"]), reference["log_prob"])
            assert close(mean, reference["mean"])
            assert close(policy.to_environment(mean), reference["actions"])
            actor.update_normalization(seen)  # the normaliser does not go on learning
            assert torch.equal(actor(seen), mean)


@pytest.mark.parametrize("case", CASES)
def test_skrl(runs, case, tmp_path):
    pytest.importorskip("skrl")
    folder, reference = exported(runs[case], "skrl", tmp_path)
    raw = taken(runs[case], reference)
    with carried_module(folder, "skrl") as skrl:
        agent = skrl.make_agent(folder)
        for parameter in agent.policy.parameters():
            parameter.data.zero_()
        agent.load(str(folder / "agent.pt"))
        with torch.no_grad():
            inputs = {"observations": reference["observations"], "taken_actions": raw}
            _, outputs = agent.policy.act(inputs, role="policy")
            assert close(outputs["log_prob"][:, 0], reference["log_prob"])
            assert close(agent.policy.network.act(reference["observations"]), reference["actions"])


@pytest.mark.parametrize("to", ["sb3-ppo", "rsl-rl", "skrl", "cleanrl"])
@pytest.mark.parametrize("stops", [True, False])
def test_the_critic_of_a_jumpstart_comes_along(to, stops, tmp_path):
    """In units of the environment's reward: where episodes do not stop at the goal ours are scaled by 1 - gamma."""
    pytest.importorskip({"sb3-ppo": "stable_baselines3", "rsl-rl": "rsl_rl"}.get(to, "torch"))
    run = untrained_jumpstart(tmp_path / "run", stop_at_goal=stops)
    folder, reference = exported(run, to, tmp_path, agent=None)
    seen = reference["observations"]
    from kmyriad.exporters.portable import open_source

    source = open_source(run)
    with torch.no_grad():
        ours = source.critic(source.population.inputs(seen[None]))[0] * (1 if stops else 100)
    name = {"sb3-ppo": "sb3", "rsl-rl": "rsl_rl", "cleanrl": "ppo"}.get(to, to)
    with carried_module(folder, name) as library, torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        if to == "sb3-ppo":
            values = library.PPO.load(folder / "ppo.zip").policy.predict_values(seen)
        elif to == "rsl-rl":
            runner = library.make_runner(folder)
            values = runner.alg.critic(library.TensorDict({library.GROUP: seen}, batch_size=[1000]))
        elif to == "skrl":
            values, _ = library.make_agent(folder).value.act({"observations": seen}, role="value")
        else:
            values = library.Agent(folder).get_value(seen)
    assert close(ours, values[:, 0], 1e-4)
