"""Somebody's own vector environment as an engine: what it does between episodes is its own affair, up to a point.

Gymnasium knows three ways. DISABLED: we reset what ended. SAME_STEP: the step that ends an episode begins the next, and
its last observation is in the info. NEXT_STEP: the step after does nothing but reset; that step does not count.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import flatten
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from kmyriad.engines.engine import Outcome, State
from kmyriad.engines.features import Seen, Term, columns_of, parse_terms
from kmyriad.engines.replica import Goal, action_of, flat_space
from kmyriad.engines.source import find_function
from kmyriad.envs.plane import plane_of_features, xy_of
from kmyriad.envs.symmetry import Symmetry
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.envs.world import World
from kmyriad.errors import TrainingStoppedError, UsageError, first_line


class VectorEngine:
    """An `Engine` around a Gymnasium vector environment. Its state cannot be saved."""

    device = "cpu"
    speaks_tensors = False
    can_be_saved = False
    world: World | None = None
    simulation: WorldVectorEnv | None = None

    def __init__(
        self,
        env: gymnasium.vector.VectorEnv[Any, Any, Any],
        names: Sequence[str],
        numbers: NDArray[np.int64],
        goal: Goal | None = None,
    ) -> None:
        self.env, self.count, self._first = env, env.num_envs, int(numbers[0])
        self.action_space = env.single_action_space
        self.observation_space = flat_space(env.single_observation_space)
        self.observation_size = self.observation_space.shape[0]
        mode = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._mode = AutoresetMode(mode)
        self.obeys_limit = self._mode == AutoresetMode.DISABLED
        if goal is not None and goal.ends and not self.obeys_limit:
            raise UsageError(
                f"this vector environment resets its replicas itself ({self._mode.value}), so that episodes cannot stop"
                " at a goal; use --no-stop-at-goal, or make it with autoreset_mode DISABLED"
            )
        self._goal, self.tells_success = goal, goal is not None
        self._act = action_of(env.single_action_space)
        observation, info = env.reset(seed=0)
        flat = self._flat(observation)
        first = Seen(flat[0], observation, {key: value[:1] for key, value in _arrays(info).items()}, None)
        self._terms = parse_terms(names, env.single_observation_space, first)
        self.features = tuple(feature for term in self._terms for feature in term.features)
        self.symmetries: tuple[Symmetry, ...] = tuple(getattr(env, "symmetries", ()))
        self.columns = columns_of(self._terms)
        fps = (env.metadata or {}).get("render_fps")
        start = self._read(flat, observation, info)
        self.plane = plane_of_features(self.features, np.nan_to_num(start[0]), 1 / fps if fps else None)
        self._resets_now = np.zeros(self.count, bool)
        self._solved = np.zeros(self.count, bool)

    def start(self, seed: int) -> NDArray[np.float32]:
        self._resets_now[:], self._solved[:] = False, False
        return self._flat(self._call("reset", seed=seed + self._first)[0]).astype(np.float32)

    def step(self, actions: NDArray[Any], last: NDArray[np.bool_]) -> Outcome:
        taken = np.stack([np.asarray(self._act(row)) for row in actions.reshape(self.count, -1)])
        observation, reward, terminated, truncated, info = self._call("step", taken)
        reached = self._flat(observation)
        terminated, done = np.asarray(terminated, bool), np.asarray(terminated | truncated, bool)
        following = reached
        if self._mode == AutoresetMode.SAME_STEP and done.any():
            reached = reached.copy()
            for index in np.flatnonzero(done):
                reached[index] = flatten(self.env.single_observation_space, info["final_obs"][index])
        features = self._read(reached, observation, info)
        was_reset, self._resets_now = self._resets_now, done & (self._mode == AutoresetMode.NEXT_STEP)
        success = info.get("success", info.get("is_success"))
        if self._goal is not None:
            success = self._goal.distance(features) <= 1
            reward, terminated = success.astype(np.float64), terminated | (success & self._goal.ends)
            done |= terminated
        if success is not None:
            self._solved |= np.asarray(success, bool) & ~was_reset
            self.tells_success = True
        solved = self._solved.copy()
        if self.obeys_limit:
            done = done | last
            if done.any():
                following = self._flat(self._call("reset", options={"reset_mask": done})[0])
        done = done | was_reset  # a reset is a step that leads nowhere
        self._solved[done] = False
        return Outcome(
            reached.astype(np.float32),
            following.astype(np.float32),
            features,
            xy_of(features),
            np.asarray(reward, np.float64),
            terminated,
            done,
            solved if self.tells_success else None,
            was_reset,
        )

    def get_state(self) -> State | None:
        return None

    def set_state(self, state: State) -> bool:
        return False

    def render(self) -> list[NDArray[np.uint8]]:
        return [np.asarray(picture) for picture in self.env.render() or ()]

    def close(self) -> None:
        self.env.close()

    def _call(self, what: str, *arguments: Any, **settings: Any) -> Any:
        try:
            return getattr(self.env, what)(*arguments, **settings)
        except Exception as error:  # what somebody's environment raises is anyone's guess
            raise TrainingStoppedError(
                f"the environment's {what} raised {type(error).__name__}: {first_line(error)}; mend it and resume from"
                " the last checkpoint"
            ) from error

    def _flat(self, observation: Any) -> NDArray[Any]:
        """(n, d)."""
        space = self.env.single_observation_space
        if isinstance(space, gymnasium.spaces.Box):
            return np.asarray(observation).reshape(self.count, -1)
        rows = gymnasium.vector.utils.iterate(self.env.observation_space, observation)
        return np.stack([np.asarray(flatten(space, row)) for row in rows])

    def _read(self, flat: NDArray[Any], observation: Any, info: dict[str, Any]) -> NDArray[np.float32]:
        """(n, f)."""
        parts = [self._read_one(term, flat, observation, info) for term in self._terms]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def _read_one(self, term: Term, flat: NDArray[Any], observation: Any, info: dict[str, Any]) -> NDArray[Any]:
        if term.kind == "observation":
            return flat[:, term.where]
        if term.kind == "info":
            return np.asarray(info[str(term.key)], np.float64).reshape(self.count, -1)[:, term.where]
        if term.kind == "function":
            return np.asarray(find_function(str(term.key))(observation, info), np.float64).reshape(self.count, -1)
        raise UsageError(f"feature {term.name!r} cannot be read from a vector environment; use columns or info")


def _arrays(info: dict[str, Any]) -> dict[str, NDArray[Any]]:
    return {key: value for key, value in info.items() if isinstance(value, np.ndarray) and value.dtype.kind in "fiub"}
