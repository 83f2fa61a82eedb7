"""The runs of each target; at size paper they are Tables 2 and 3 to the letter."""

import pytest

import kmyriad
from kmyriad.config import ActorCritic, JumpstartConfig, PretrainConfig, Reinforce, settings_of
from kmyriad.envs.goal import AFFORDABLE
from kmyriad.reproduction.plan import (
    SIZES,
    TARGETS,
    goals_in,
    mapped,
    narrowed,
    own_steps,
    plan_of,
    region_goals,
    sources_of,
)
from kmyriad.reproduction.reproduce import cost_of
from kmyriad.reproduction.verdicts import CLAIMS, WORLDS
from kmyriad.rollout.task import task_of
from kmyriad.runs.resume import CHANGEABLE

SEEDS = {0, 1, 56, 123}


def jobs_of(targets, size, method, folder):
    return {job.name: job for job in plan_of(targets, size, method, folder).jobs}


@pytest.mark.parametrize("size", ["quick", "desk", "paper"])
@pytest.mark.parametrize("method", ["paper", "ours"])
def test_runs_that_figures_share_are_planned_once(tmp_path, size, method):
    jobs = plan_of(TARGETS, size, method, tmp_path).jobs
    names = [job.name for job in jobs]
    assert len({*names}) == len(names)
    curves = jobs_of(["entropy-curves"], size, method, tmp_path)
    for target in ("kl-table", "heatmaps", "diversity"):
        assert {*jobs_of([target], size, method, tmp_path)} <= {*curves}
    starts = [job for job in jobs_of(["success-rates"], size, method, tmp_path).values() if job.after]
    assert {job.after for job in starts} <= {*curves}
    assert all(job.after is None or names.index(job.after) < names.index(job.name) for job in jobs)


@pytest.mark.parametrize("method", ["paper", "ours"])
def test_targets_agree_on_the_runs_that_they_share(tmp_path, method):
    alone = [jobs_of([target], "desk", method, tmp_path) for target in TARGETS]
    for jobs in alone:
        for others in alone:
            assert all(others[name].config == job.config for name, job in jobs.items() if name in others)


def test_table_2_to_the_letter(tmp_path):
    jobs = jobs_of(["entropy-curves"], "paper", "paper", tmp_path)
    for agents, rate in ((1, 2e-4), (10, 2e-4), (50, 5e-4)):
        for world in WORLDS:
            configs = [jobs[f"{world}-{agents}-agents-seed-{seed}"].config for seed in SEEDS]
            for config in configs:
                assert isinstance(config, PretrainConfig)
                assert config.population.agents == agents
                assert config.rollouts.replicas == 1000
                assert config.rollouts.per_agent == 1000 // agents
                assert config.rollouts.steps == config.world.horizon == 600
                assert config.run.total_steps == 200 * 1000 * 600
                assert config.population.trunk_hidden == (512, 256)
                assert config.population.agent_hidden == 256
                assert config.population.activation == "relu"
                assert config.update == Reinforce(rate, (30, 80), 0.5)
                assert config.objective.neighbours == 5
                assert config.population.code_size is None
                assert not config.population.priors
                assert config.objective.diversity_weight == 0
    assert jobs["ant-empty-50-agents-one-rate-seed-0"].config.update.learning_rate == 2e-4


def test_long_run_and_budgets_as_printed(tmp_path):
    long = [job.config for job in plan_of(["long-run"], "paper", "paper", tmp_path).jobs if job.after]
    assert {(config.run.total_steps, config.population.agents) for config in long} == {
        (600_000_000, agents) for agents in (1, 10, 50)
    }
    budgets = [job.config for job in plan_of(["budget"], "paper", "paper", tmp_path).jobs]
    assert {config.rollouts.replicas for config in budgets} == {500, 1000, 2000, 3000, 4000}
    assert {config.run.total_steps // config.rollouts.steps_per_iteration for config in budgets} == {200}
    for config in budgets:  # one checkpoint of when the smallest budget is spent, to 2 %, and it is kept
        wanted = 500 * 600 * 200 / config.rollouts.steps_per_iteration
        every = config.run.checkpoint_every
        assert abs(round(wanted / every) * every - wanted) <= 0.02 * wanted
        assert config.run.keep_checkpoints * every >= 200


@pytest.mark.parametrize("method", ["paper", "ours"])
def test_long_runs_go_on_with_the_usual_ones(tmp_path, method):
    jobs = jobs_of(["long-run"], "desk", method, tmp_path)
    long = [job for job in jobs.values() if job.after]
    assert len(jobs) == 2 * len(long) == 24
    for job in long:
        usual, longer = settings_of(jobs[job.after].config), settings_of(job.config)
        assert {name for name in usual if usual[name] != longer[name]} <= {*CHANGEABLE}
        assert own_steps(job, [*jobs.values()]) == 4 * usual["total_steps"] == longer["total_steps"] * 4 // 5


@pytest.mark.parametrize("size", ["quick", "desk", "paper"])
def test_runs_that_are_packed_or_shown_are_in_the_plan(tmp_path, size):
    jobs = jobs_of(TARGETS, size, "paper", tmp_path)
    assert {job.after for job in jobs.values() if isinstance(job.config, JumpstartConfig)} == sources_of(size)
    assert mapped(size) <= {*jobs}


def test_table_3_to_the_letter(tmp_path):
    jobs = jobs_of(["success-rates"], "paper", "paper", tmp_path)
    starts = [job for job in jobs.values() if isinstance(job.config, JumpstartConfig)]
    assert len(starts) == 4 * 3 * 4 * 6
    for job in starts:
        config, fresh = job.config, job.config.start.init == "random"
        assert config.update == ActorCritic(
            learning_rate=1e-5,
            critic_learning_rate=3e-4,
            gamma=0.99,
            gae_lambda=0.95,
            clip_range=0.2 if fresh else 0.15,
            entropy_coef=0.001 if fresh else 0.0,
            max_grad_norm=0.5,
            update_epochs=10 if fresh else 3,
            minibatches=10,
            critic_hidden=(256, 256),
            desired_kl=None,
        )
        assert config.start.critic_warm_up == (1 if fresh else 5)
        assert config.rollouts.replicas == 300
        assert config.rollouts.steps == config.rollouts.horizon == 600
        assert config.run.total_steps == 10_000_000
        agents = jobs[job.after].config.population
        assert (*agents.trunk_hidden, agents.agent_hidden) == (512, 256, 256)
        assert agents.agents == (50 if config.start.init == "best" else 1)
        assert config.run.seed == jobs[job.after].config.run.seed
    regions = [job.config for job in plan_of(["goal-regions"], "paper", "paper", tmp_path).jobs if job.after]
    assert [config.run.total_steps for config in regions] == 12 * [15_000_000]
    assert {config.start.init for config in regions} == {"random"}


def test_our_method_has_its_own_settings_at_the_size_of_the_paper(tmp_path):
    jobs = jobs_of(["success-rates"], "paper", "ours", tmp_path)
    for job in jobs.values():
        assert isinstance(job.config.update, ActorCritic)
        assert job.config.run.total_steps == (10_000_000 if job.after else 120_000_000)


@pytest.mark.parametrize("size", ["quick", "desk", "paper"])
def test_goals_lie_in_their_zones_and_can_be_reached(tmp_path, size):
    for world in WORLDS:
        terrain = kmyriad.make_world(world).terrain
        for zone, count in SIZES[size].goals.items():
            for goal in goals_in(world, zone, count):
                away = ((goal[0] - terrain.start[0]) ** 2 + (goal[1] - terrain.start[1]) ** 2) ** 0.5
                assert (away > AFFORDABLE) == (zone == "outside")
    assert len({*region_goals(size, "inside").values()}) == len(SIZES[size].region_seeds)
    targets = ["success-rates", "goal-regions", "point-maze"]
    configs = {job.config.task.goal: job.config for job in plan_of(targets, size, "ours", tmp_path).jobs if job.after}
    for config in configs.values():
        task_of(config).replicas(1, threads=1).close()


def test_desk_has_four_seeds_and_goals_on_both_sides():
    scale = SIZES["desk"]
    assert {*scale.seeds} == SEEDS
    assert scale.goals["outside"] >= 4
    assert scale.goals["inside"] >= 1
    assert len(scale.region_seeds) == 6
    assert scale.updates == SIZES["paper"].updates == 200
    assert scale.goal_steps / (scale.goal_replicas * scale.horizon) >= 10_000_000 / (300 * 600)  # updates of Table 3


def test_every_claim_names_a_target():
    assert {claim.target for claim in CLAIMS} <= {*TARGETS, ""}


def test_a_plan_tells_what_it_costs(tmp_path):
    lines = cost_of(plan_of(["diversity"], "desk", "paper", tmp_path), "desk", "paper", processes=2)
    assert len(lines) == 5
    assert "16,000,000 steps left" in lines[-1]
    longer = cost_of(plan_of(["long-run"], "desk", "paper", tmp_path), "desk", "paper", processes=2)
    assert "24 runs, 240,000,000 steps left" in longer[-1]


def test_some_runs_alone_with_what_they_start_from(tmp_path):
    plan = plan_of(["success-rates"], "desk", "paper", tmp_path)
    names = [job.name for job in narrowed(plan, ["ant-cave-best-*-seed-0", "ant-maze-1-agents-seed-56"]).jobs]
    assert sorted(names) == sorted(
        [
            "ant-cave-50-agents-seed-0",
            "ant-maze-1-agents-seed-56",
            "ant-cave-best-to-inside-0-seed-0",
            *(f"ant-cave-best-to-outside-{number}-seed-0" for number in range(4)),
        ]
    )
    assert narrowed(plan, []) is plan
    with pytest.raises(kmyriad.UsageError, match="dry-run"):
        narrowed(plan, ["ant-hill-*"])


def test_bad_targets_are_one_sentence():
    for names in (["nothing"], ["pointmaze"], []):
        with pytest.raises(kmyriad.UsageError):
            kmyriad.reproduce(names)
