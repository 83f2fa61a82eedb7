"""What iterations take, and the physics' share of it."""

import time
from typing import Any

from kmyriad.objective.rewards import rewards_of, slide
from kmyriad.presets import preset
from kmyriad.rollout.collect import collect
from kmyriad.rollout.randomness import SHUFFLING, generator, reset_seed
from kmyriad.rollout.replicas import make_replicas
from kmyriad.training.pretrain import initial_state
from kmyriad.updates import update


class Stopwatch:
    """Times every call of an environment's `step`."""

    def __init__(self, env: Any) -> None:
        self._env, self._step, self.seconds = env, env.step, 0.0
        env.step = self._timed

    def _timed(self, *arguments: Any) -> Any:
        start = time.perf_counter()
        result = self._step(*arguments)
        self.seconds += time.perf_counter() - start
        return result

    def stop(self) -> float:
        """The seconds so far."""
        self._env.step = self._step
        return self.seconds


class TimedTraining:
    """Iterations of ant-empty with the default settings, timed: (physics, update, everything else) in seconds."""

    def __init__(self, agents: int) -> None:
        self.config = preset("quick", "ant-empty", agents)
        rollouts = self.config.rollouts
        self.replicas = make_replicas("ant-empty", rollouts.replicas, horizon=rollouts.horizon)
        self.state = initial_state(self.config, self.replicas)
        self.seconds: list[tuple[float, float, float]] = []

    def iteration(self) -> None:
        """As in `algorithm_1`, without what is written down."""
        config, state = self.config, self.state
        seed, rollouts = config.run.seed, config.rollouts
        stopwatch, start = Stopwatch(self.replicas.engine), time.perf_counter()
        state.iteration += 1
        self.replicas.begin(rollouts, reset_seed(seed, state.iteration))
        trajectory = collect(
            self.replicas, state.population, rollouts.steps, seed, state.iteration, keep_next_observations=True
        )
        middle, physics = time.perf_counter(), stopwatch.stop()
        state.pool = slide(state.pool, trajectory.segment, rollouts.per_horizon)
        rewards = rewards_of(state.pool, config)
        population, rng = state.population, generator(seed, state.iteration, SHUFFLING)
        update(config.update, population, state.critic, state.optimizer, trajectory, rewards, state.iteration, rng)
        population.see(trajectory.observations, trajectory.valid)
        end = time.perf_counter()
        self.seconds.append((physics, end - middle, middle - start - physics))
