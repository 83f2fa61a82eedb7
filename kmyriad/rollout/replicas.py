"""Replicas of any environment, as training sees them: observations in, features out, episodes restarted by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from kmyriad.config import Rollouts
from kmyriad.envs import WORLDS, find_id, short_name
from kmyriad.envs.make import make_vector_env
from kmyriad.envs.symmetry import SignedOrder, Symmetry, check_symmetry, group_of
from kmyriad.envs.vector_env import SimulatorState, WorldVectorEnv
from kmyriad.envs.world import World
from kmyriad.errors import TrainingStoppedError, UsageError, first_line, nearest_name

POSITION = ("x", "y")

OURS = ("horizon", "max_episode_steps", "threads", "autoreset_mode", "num_envs", "world", "vectorization_mode")
"""What replicas decide themselves, whatever an environment calls its settings."""

CELL = 1.0
"""Side of a coverage cell where the environment does not say how large things are in it."""


@dataclass(frozen=True)
class Transition:
    """Where a step led, before ended episodes start again."""

    observation: NDArray[np.float32]
    """(n, d)."""
    reward: NDArray[np.float32]
    """(n,), the environment's own; pretraining never looks at it."""
    features: NDArray[np.float32]
    """(n, f), the entropy features."""
    xy: NDArray[np.float32] | None
    """(n, 2), or None where the world has no x and y."""
    done: NDArray[np.bool_]
    """(n,), the episode is over."""
    terminated: NDArray[np.bool_]
    """(n,), it is over for good, not just for lack of time: what follows is worth nothing."""
    success: NDArray[np.bool_]
    """(n,), the task was solved in this episode, as the environment's `info["success"]` (or `is_success`) tells."""
    valid: NDArray[np.bool_]
    """(n,), False from the step on in which a replica's physics broke (or its observation was not finite)."""


class Replicas:
    """n copies of an environment.

    `observation` (n, d) is what the policies see next, `episode_steps` (n,) how many steps the episodes have had. They
    end after `episode_limit`, if they have not before. `tells_success`: whether anything is said about success. What an
    environment can beyond Gymnasium's interface (be saved, read features by name, show its ground) it can through
    `engine`; without one there are observations only.
    """

    def __init__(
        self,
        env: gymnasium.vector.VectorEnv[Any, Any, Any],
        features: Sequence[str] = (),
        *,
        horizon: int,
        engine: WorldVectorEnv | None = None,
        default_features: Sequence[str] = (),
    ) -> None:
        self.env, self.engine = env, engine
        self.count = env.num_envs
        self.action_space = env.single_action_space
        space = env.single_observation_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise UsageError(f"observation space {space} is not supported; it must be a one-dimensional Box")
        self.observation_size = int(space.shape[0])
        default_features = default_features or [str(index) for index in range(self.observation_size)]
        self.features = tuple(features) or tuple(default_features)
        self.has_xy = engine is not None and all(name in engine.world.features for name in POSITION)
        self.observation = np.zeros((self.count, self.observation_size), np.float32)
        self.episode_steps = np.zeros(self.count, np.int64)
        self.episode_limit = horizon
        self.are_running = False
        self.tells_success = engine is not None and engine.has_goal
        self._broken = np.zeros(self.count, bool)
        self._columns = self._parse_columns() if engine is None else []
        self.feature_size = self._read(self.features).shape[1]  # a misspelt name is told now

    @property
    def world(self) -> World | None:
        """What is simulated, where that can be looked at: terrain, model, names of features."""
        return None if self.engine is None else self.engine.world

    @property
    def goal_radius(self) -> float:
        """Metres around a goal that count as there."""
        return CELL if self.engine is None else self.engine.goal_radius

    @property
    def cell(self) -> float:
        """Side of a coverage cell, metres: as large as the goals that the world has by default."""
        return CELL if self.engine is None else self.engine.world.goal_radius

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """That the environment declares, where actions are continuous and features only change among themselves."""
        declared = self.world.symmetries if self.world is not None else _declared_symmetries(self.env)
        columns = self._feature_columns()
        if columns is None or not isinstance(self.action_space, gymnasium.spaces.Box):
            return ()
        for symmetry in declared:
            check_symmetry(symmetry, self.observation_size, self.action_space.shape[0])
        return tuple(symmetry for symmetry in declared if symmetry.observation.of(columns) is not None)

    def views(self) -> tuple[list[Symmetry], list[SignedOrder]]:
        """(all views of the world that its symmetries give, what becomes of the features in each); perhaps none."""
        group, columns = group_of(self.symmetries), self._feature_columns() or []
        of_features = [view.observation.of(columns) for view in group]
        return group, [view for view in of_features if view is not None]

    def _feature_columns(self) -> list[int] | None:
        """Where in the observation the features are; None where one of them is not."""
        if self.world is None:
            return self._columns
        features = [self.world.features[name] for name in self.features]
        if any(feature.source != "observation" for feature in features):
            return None
        return [column for feature in features for column in range(feature.slice.start, feature.slice.stop)]

    def begin(self, rollouts: Rollouts, seed: int) -> None:
        """Put the replicas where an iteration begins. Replica i is agent i // (replicas per agent)'s, always.

        Whole horizons begin with a reset; segments go on, from episode steps staggered once in the beginning.
        """
        if not rollouts.are_segments or not self.are_running:
            self.start(seed)
            if rollouts.are_segments:
                self._stagger(rollouts)

    def start(self, seed: int) -> None:
        """Reset every replica."""
        try:
            self._receive(self.env.reset(seed=seed)[0])
        except UsageError:
            raise
        except Exception as error:  # what somebody's environment raises is anyone's guess
            raise _broke("reset", error) from error
        self.episode_steps[:], self._broken[:] = 0, False
        self.are_running = True

    def step(self, actions: NDArray[Any]) -> Transition:
        """One control step of every replica; episodes that end start again at once."""
        try:
            observation, reward, terminated, truncated, info = self.env.step(actions)
        except UsageError:
            raise
        except Exception as error:  # what somebody's environment raises is anyone's guess
            raise _broke("step", error) from error
        self._receive(observation)
        if not np.isfinite(reward).all():
            replica = int(np.flatnonzero(~np.isfinite(reward))[0])
            raise TrainingStoppedError(
                f"the environment gave replica {replica} a reward of {reward[replica]} in step"
                f" {self.episode_steps[replica] + 1} of its episode; mend it and resume from the last checkpoint"
            )
        self.episode_steps += 1
        self._broken |= info.get("diverged", False) | ~np.isfinite(self.observation).all(axis=1)
        done = terminated | truncated | (self.episode_steps >= self.episode_limit)
        xy = self._read(POSITION) if self.has_xy else None
        success = info.get("success", info.get("is_success"))
        self.tells_success |= self.engine is None and success is not None
        reached = np.where(self._broken[:, None], 0, self.observation) if self._broken.any() else self.observation
        transition = Transition(
            reached,
            reward.astype(np.float32),
            self._read(self.features),
            xy,
            done,
            terminated,
            np.zeros(self.count, bool) if success is None else np.asarray(success, bool),
            ~self._broken,
        )
        if done.any():
            self._receive(self.env.reset(options={"reset_mask": done})[0])
            self.episode_steps[done], self._broken[done] = 0, False
        if self._broken.any():
            self.observation[self._broken] = np.nan_to_num(self.observation[self._broken])
        return transition

    @property
    def can_be_saved(self) -> bool:
        """Whether the replicas can be put back to a state in the middle of an episode."""
        return self.engine is not None

    def get_state(self) -> SimulatorState | None:
        """A copy of the simulator's state, None where it cannot be saved."""
        return None if self.engine is None else self.engine.get_state()

    def set_state(self, state: SimulatorState) -> None:
        """Go back to a saved state, exactly."""
        if self.engine is None:
            raise UsageError("this environment cannot be put back to a saved state; start its episodes anew")
        self.engine.set_state(state)
        self._receive(state.observation)
        self.episode_steps[:], self._broken[:] = state.age, state.diverged
        self.are_running = True

    def close(self) -> None:
        self.env.close()

    def _stagger(self, rollouts: Rollouts) -> None:
        """Spread each agent's episodes evenly over their steps; the first ones are shorter.

        Where few replicas leave gaps longer than a segment, agents fill them in turn: every segment has all steps.
        """
        agent, replica = np.divmod(np.arange(self.count), rollouts.per_agent)
        longest = self.episode_limit
        segments_between = max(longest // rollouts.per_agent // rollouts.steps, 1)
        self.episode_steps[:] = replica * longest // rollouts.per_agent + agent % segments_between * rollouts.steps
        if self.engine is not None:
            state = self.engine.get_state()
            state.age[:] = self.episode_steps
            self.engine.set_state(state)

    def _receive(self, observation: NDArray[Any]) -> None:
        self.observation = np.asarray(observation, np.float32)

    def _read(self, names: Sequence[str]) -> NDArray[np.float32]:
        return self.observation[:, self._columns] if self.engine is None else self.engine.read_features(names)

    def _parse_columns(self) -> list[int]:
        columns = []
        for name in self.features:
            if not name.isdecimal() or int(name) >= self.observation_size:
                known = [str(index) for index in range(self.observation_size)]
                raise UsageError(f"unknown feature {name!r}{nearest_name(name, known)} (indices of the observation)")
            columns.append(int(name))
        return columns


def _declared_symmetries(env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> tuple[Symmetry, ...]:
    """What an environment that is not one of ours tells in an attribute `symmetries`."""
    copies = getattr(env, "envs", None)
    return tuple(getattr(copies[0].unwrapped, "symmetries", ())) if copies else ()


def _broke(what: str, error: Exception) -> TrainingStoppedError:
    """One sentence about an exception of the environment's own."""
    said = f"{type(error).__name__}: {first_line(error)}"
    return TrainingStoppedError(f"the environment's {what} raised {said}; mend it and resume from the last checkpoint")


def make_replicas(
    env: str,
    count: int,
    *,
    horizon: int,
    features: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Replicas:
    """`count` replicas of a world by its short name, or of any environment registered with Gymnasium."""
    settings = dict(settings or {})
    for name in OURS:
        if name in settings:
            raise UsageError(f"{name} is no setting of the environment here; give the run's own, such as --horizon")
    env_id, name = find_id(env), short_name(env)
    if name in WORLDS:
        engine = make_vector_env(
            name, count, horizon=horizon, threads=threads, autoreset_mode=AutoresetMode.DISABLED, **settings
        )
        return Replicas(engine, features, horizon=horizon, engine=engine, default_features=WORLDS[name].features)
    try:
        vector = gymnasium.make_vec(
            env_id,
            count,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.DISABLED},
            max_episode_steps=horizon,
            **settings,
        )
    except UsageError:
        raise
    except Exception as error:  # what somebody's environment raises is anyone's guess
        raise UsageError(f"{env} cannot be made: {type(error).__name__}: {first_line(error)}") from error
    return Replicas(vector, features, horizon=horizon)
