"""`kmyriad evaluate`: its numbers, computed again from the stored episodes by brute force, and what it says."""

import json
import math
import shutil

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import digamma
from scipy.stats import t

import kmyriad
from kmyriad.cli import main
from kmyriad.evaluation.evaluate import current_evaluation, evaluate, stored_evaluation
from kmyriad.runs.run import open_run
from kmyriad.runs.tensor_file import checkpoint_path, read_checkpoint, write_checkpoint
from tests import walk_env
from tests.cli.test_cli import kmyriad as command

TINY = {"replicas": 6, "horizon": 20, "epochs": 2, "trunk": (8,), "adapter": 8, "threads": 1}
FIGURES = {f"here-{name}.{kind}" for name in ("entropy", "heads", "visitation", "kl") for kind in ("png", "svg")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of three heads, never changed."""
    return kmyriad.pretrain("point-maze", agents=3, out=tmp_path_factory.mktemp("runs") / "here", **TINY)


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained.path, tmp_path / "here")
    return open_run(tmp_path / "here")


def evaluated(run, *arguments):
    main(["evaluate", str(run.path), "--episodes", "12", "--threads", "1", *arguments])
    return json.loads((run.path / "evaluation.json").read_text())


def clouds(values, sound):
    return [values[head][sound[head]] for head in range(len(sound))]


def entropy(points, k=5):
    radius = np.maximum(np.sort(cdist(points, points), axis=1)[:, k], 1e-6)
    n, d = points.shape
    ball = math.pi ** (d / 2) / math.gamma(d / 2 + 1)
    return math.log(n) - digamma(k) + np.log(ball * radius**d).mean()


def kl(p, q, k=5):
    own, other = np.sort(cdist(p, p), axis=1)[:, k], np.sort(cdist(p, q), axis=1)[:, k - 1]
    ratio = np.maximum(other, 1e-6) / np.maximum(own, 1e-6)
    return p.shape[1] * np.log(ratio).mean() + math.log(len(q) / (len(p) - 1))


def test_the_real_command_tells_and_writes_the_numbers(run):
    shown = command(
        *["evaluate", str(run.path), "--episodes", "12", "--threads", "1", "--figures", "figures"],
        folder=run.path.parent,
    ).stdout
    facts = json.loads((run.path / "evaluation.json").read_text())
    visits = stored_evaluation(run).visits
    assert visits.features.shape == (3, 4, 20, 2)
    assert (facts["agents"], facts["episodes"], facts["epoch"]) == (3, 12, 2)

    heads = [cloud.astype(np.float64) for cloud in clouds(visits.features, visits.sound)]
    assert facts["entropy"] == pytest.approx(entropy(np.concatenate(heads)), abs=1e-4)
    assert facts["entropy_per_head"] == pytest.approx([entropy(head) for head in heads], abs=1e-4)
    others = [np.concatenate(heads[:head] + heads[head + 1 :]) for head in range(3)]
    each = [kl(head, rest) for head, rest in zip(heads, others, strict=True)]
    assert facts["kl_between_heads"] == pytest.approx(each, abs=1e-3)
    margin = t.ppf(0.975, 2) * np.std(each, ddof=1) / math.sqrt(3)
    found = facts["kl_between_heads_mean"]
    assert (found["mean"], found["margin"]) == (
        pytest.approx(np.mean(each), abs=1e-3),
        pytest.approx(margin, abs=1e-3),
    )
    pairs = [[kl(p, q) if p is not q else 0 for q in heads] for p in heads]
    np.testing.assert_allclose(facts["kl_pairs"], pairs, atol=1e-3)
    cells = [{(math.floor(x / 0.45), math.floor(y / 0.45)) for x, y in head} for head in heads]
    assert facts["covered_cells_per_head"] == [len(one) for one in cells]
    assert facts["covered_cells"] == len(set.union(*cells))

    words = " ".join(shown.split())
    assert "here: 3 heads in point-maze after epoch 2 (240 env steps), on 12 fresh episodes of 20 steps." in words
    assert f"KL of each head from all others: {np.mean(each):.2f} ± {margin:.2f} nats" in words
    assert f"would show {facts['kl_floor']:.2f}." in words
    assert {path.name for path in (run.path.parent / "figures").iterdir()} == FIGURES


def test_another_seed_gives_other_episodes_and_the_same_seed_the_same(run):
    first, again, other = (evaluated(run, "--seed", seed) for seed in ("1", "1", "2"))
    assert first == again
    assert first["entropy"] != other["entropy"]


def test_the_json_goes_where_asked(run, tmp_path):
    asked = tmp_path / "new" / "numbers.json"
    main(["evaluate", str(run.path), "--episodes", "3", "--threads", "1", "--json", str(asked)])
    assert json.loads(asked.read_text())["episodes"] == 3
    assert not (run.path / "evaluation.json").exists()


def test_one_head_has_no_kl(tmp_path, capsys):
    run = kmyriad.pretrain("point-maze", agents=1, out=tmp_path / "one", **TINY)
    facts = evaluated(run)
    assert "kl_between_heads" not in facts
    assert "kl_pairs" not in facts
    assert facts["covered_cells"] == facts["covered_cells_per_head"][0]
    assert "There is no KL between heads: there is only one." in capsys.readouterr().out


def test_without_positions_there_is_no_coverage(tmp_path, capsys):
    walk_env.register()
    run = kmyriad.pretrain(walk_env.CONTINUOUS, agents=2, out=tmp_path / "walk", **TINY)
    facts = evaluated(run, "--figures", str(tmp_path / "figures"))
    assert "covered_cells" not in facts
    assert "There is no coverage: this environment has no x and y." in capsys.readouterr().out
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"walk-entropy", "walk-kl"}


def test_a_stored_evaluation_counts_while_it_is_of_the_newest_checkpoint(run):
    evaluate(run, episodes=6, threads=1)
    assert current_evaluation(run, threads=1).visits.sound.shape == (3, 2, 20)
    shutil.copy(checkpoint_path(run.checkpoints, 2), checkpoint_path(run.checkpoints, 3))
    assert current_evaluation(run, threads=1).visits.sound.shape == (3, 100, 20)


def test_a_damaged_evaluation_is_made_again(run):
    run.evaluation_path.write_bytes(b"torn")
    assert current_evaluation(run, threads=1).visits.sound.shape == (3, 100, 20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no run folder nowhere"),
        (["here", "--episodes", "0"], "episodes must be between 1 and"),
        (["here", "--seed", "-1"], "seed must be between 0 and"),
        (["bare"], "bare has no checkpoint yet"),
        (["jump"], "jump is a jumpstart run; only populations are evaluated"),
        (["here", "--episodes", "3", "--json", "here/config.json/x.json"], "cannot write here/config.json/x.json"),
    ],
)
def test_bad_input_is_one_sentence(arguments, message, run, monkeypatch, capsys):
    monkeypatch.chdir(run.path.parent)
    config = json.loads(run.config_path.read_text())
    for name, more in (("bare", {}), ("jump", {"command": "jumpstart"})):
        (run.path.parent / name).mkdir()
        (run.path.parent / name / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", *arguments])
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("lacks", ["population.output_weight", "architecture"])
def test_policies_of_another_version_are_one_sentence(lacks, run, capsys):
    path = checkpoint_path(run.checkpoints, 2)
    stored = read_checkpoint(path)
    stored.tensors.pop(lacks, None)
    stored.facts.pop(lacks, None)
    write_checkpoint(path, stored)
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", str(run.path)])
    assert stopped.value.code == 2
    assert "do not fit this version of kmyriad" in " ".join(capsys.readouterr().err.split())
