"""Training on a device that is not the CPU, without a GPU: what crosses the boundary, and how often the host waits."""

from importlib import import_module

import numpy as np
import pytest
import torch

import kmyriad
from kmyriad import processes
from kmyriad.errors import UsageError
from kmyriad.objective import neighbours
from kmyriad.objective.neighbours import nearest_in, nearest_neighbours
from kmyriad.population.distributions import action_spec
from kmyriad.population.population import Population
from kmyriad.processes import find_device
from kmyriad.rollout.collect import collect
from kmyriad.rollout.replicas import make_replicas
from kmyriad.runs.state import load_population
from tests.far_device import FAR, FarDevice

SMALL = {"agents": 2, "replicas": 8, "horizon": 20, "rollout_steps": 10, "total_steps": 4 * 80, "trunk_hidden": (16,)}
RULES = {
    "actor_critic": {"critic_hidden": (8,), "agent_hidden": 8},
    "reinforce": {"rollout_steps": None},
    "trust_region": {"rollout_steps": None, "trust_region_steps": 3},
}


@pytest.fixture
def far(monkeypatch):
    """A far device, which `--device auto` finds."""
    find = processes.find_device
    for module in ("pretrain", "jumpstart"):
        found = import_module(f"kmyriad.training.{module}")
        monkeypatch.setattr(found, "find_device", lambda name: FAR if name == "auto" else find(name))
    with FarDevice() as device:
        yield device


def weights(run):
    return load_population(run).state_dict()


@pytest.mark.parametrize("rule", RULES)
def test_a_run_on_a_device_learns_what_it_learns_on_the_cpu(far, rule, tmp_path):
    settings = SMALL | RULES[rule] | {"update": rule}
    here = kmyriad.pretrain("point-maze", out=tmp_path / "cpu", **settings)
    there = kmyriad.pretrain("point-maze", out=tmp_path / "far", device="auto", **settings)
    for one, other in zip(weights(here).values(), weights(there).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=2e-3)
    first = [run.metrics()[0] for run in (here, there)]
    assert first[0]["entropy"] == pytest.approx(first[1]["entropy"], abs=1e-5)
    assert first[0].keys() == first[1].keys()


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")  # on the real one it would be lost
def test_a_run_goes_on_on_another_device_and_back(far, tmp_path):
    settings = SMALL | RULES["actor_critic"]
    whole = kmyriad.pretrain("point-maze", out=tmp_path / "whole", **settings)
    kmyriad.pretrain("point-maze", out=tmp_path / "run", **settings | {"total_steps": 160})
    kmyriad.pretrain("point-maze", out=tmp_path / "run", resume=True, total_steps=240, device="auto")
    moved = kmyriad.pretrain("point-maze", out=tmp_path / "run", resume=True, total_steps=320, device="cpu")
    for one, other in zip(weights(whole).values(), weights(moved).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=2e-3)


def test_a_jump_start_on_a_device(far, tmp_path):
    source = kmyriad.pretrain("point-maze", out=tmp_path / "source", **SMALL)
    settings = {"goal": (1.5, 0.5), "replicas": 8, "rollout_steps": 10, "selection_steps": 800, "total_steps": 1200}
    for init in ("best", "random"):
        run = kmyriad.jumpstart(source, out=tmp_path / init, device="auto", init=init, **settings)
        assert run.is_finished
        assert all(value.isfinite().all() for value in weights(run).values())


def test_the_host_waits_once_per_step(far):
    """For the actions, which a simulator on the CPU takes; at the end it looks at the rewards."""
    replicas = make_replicas("point-maze", 6, horizon=10)
    population = Population(3, replicas.observation_size, action_spec(replicas.action_space), normalises=True).to(FAR)
    replicas.start(0)
    far.waits.clear()
    trajectory = collect(replicas, population, 10, seed=0, iteration=1, keep_next_observations=True)
    assert far.waits.total() == 10 + 1
    assert trajectory.features.device == FAR


@pytest.mark.parametrize(("rule", "per_iteration"), [("actor_critic", 35), ("reinforce", 20), ("trust_region", 40)])
def test_the_host_waits_seldom_in_updates(far, rule, per_iteration, tmp_path):
    """Once per gradient step, whether it is finite, and a few times per iteration: rewards, metrics, the step taken."""
    settings = SMALL | RULES[rule] | {"update": rule, "device": "auto", "checkpoint_every": 1000}
    told = []
    for iterations in (2, 6):
        far.waits.clear()
        steps = iterations * (settings["rollout_steps"] or 20)
        run = kmyriad.pretrain("point-maze", out=tmp_path / str(iterations), **settings | {"total_steps": 8 * steps})
        told.append((far.waits.total(), steps, sum(row["update_steps"] for row in run.metrics())))
    waits, steps, gradient_steps = np.diff(told, axis=0)[0]
    assert waits <= steps + gradient_steps + 4 * per_iteration


def test_a_device_tensor_refuses_what_a_gpu_refuses(far):
    there = torch.arange(4.0, device=FAR)
    with pytest.raises((AssertionError, RuntimeError, TypeError)):
        there.numpy()
    with pytest.raises(AssertionError, match="mixes tensors of two devices"):
        there + torch.ones(4)
    far.waits.clear()
    assert (float(there.sum()), there.cpu().tolist()) == (6.0, [0, 1, 2, 3])
    assert far.waits.total() == 2


@pytest.mark.parametrize("dimension", [1, 3, 12])
@pytest.mark.parametrize("table", [2**23, 900])
def test_neighbours_on_a_device_are_those_of_the_tree(far, dimension, table, monkeypatch):
    monkeypatch.setattr(neighbours, "LARGEST_TABLE", table)
    rng = np.random.default_rng(0)
    points, queries = 50 + rng.normal(size=(300, dimension)), 50 + rng.normal(size=(40, dimension))
    there, asked = (torch.from_numpy(array).to(FAR) for array in (points, queries))
    for here, far_off in (
        (nearest_neighbours(points, 5), nearest_neighbours(there, 5)),
        (nearest_in(points, queries, 5), nearest_in(there, asked, 5)),
    ):
        torch.testing.assert_close(far_off.distances.cpu(), here.distances, rtol=1e-5, atol=1e-6)
        assert (far_off.indices.cpu() == here.indices).float().mean() > 0.99


def test_copies_are_neighbours_on_a_device_too_and_nobody_is_its_own(far):
    points = torch.zeros(30, 2, device=FAR)
    found = nearest_neighbours(points, 5)
    assert (found.distances.cpu() == 0).all()
    assert (found.indices.cpu() != torch.arange(30)[:, None]).all()


def test_too_many_pairs_go_to_the_tree(far, monkeypatch):
    monkeypatch.setattr(neighbours, "MOST_PAIRS", 100)
    monkeypatch.setattr(neighbours, "_compare", lambda *_: pytest.fail("compared all the same"))
    points = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 3)))
    there = nearest_neighbours(points.to(FAR), 4)
    assert there.distances.device == FAR
    torch.testing.assert_close(there.distances.cpu(), nearest_neighbours(points, 4).distances)


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_device_that_is_not_there_is_one_sentence(name):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert find_device("auto") == find_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match=f"device {name}: torch .* sees no GPU here; use --device cpu"):
        kmyriad.pretrain("point-maze", device=name)


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:-1", "", "meta"])
def test_a_device_of_no_kind_is_refused(name):
    with pytest.raises(UsageError, match=r"device must be cpu, cuda, cuda:1 \(or another number\) or auto; got"):
        kmyriad.pretrain("point-maze", device=name)


def test_numbers_of_gpus_are_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("auto") == torch.device("cuda", 0)
    assert find_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(UsageError, match="device cuda:2: there are 2 GPUs here, cuda:0 to cuda:1"):
        find_device("cuda:2")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert find_device("cuda") == torch.device("cuda", 1)
