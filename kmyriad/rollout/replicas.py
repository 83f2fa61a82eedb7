"""Replicas of any environment, as training sees them: observations in, features out, episodes restarted by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from kmyriad.config import Rollouts
from kmyriad.envs.engine import Engine, State
from kmyriad.envs.engines import EngineName, GoalPoint, make_engine
from kmyriad.envs.plane import Plane
from kmyriad.envs.symmetry import SignedOrder, Symmetry, check_symmetry, group_of
from kmyriad.envs.world import World
from kmyriad.errors import TrainingStoppedError


@dataclass(frozen=True)
class Transition:
    """Where a step led, before ended episodes start again."""

    observation: NDArray[np.float32]
    """(n, d)."""
    reward: NDArray[np.float32]
    """(n,), the environment's own; pretraining never looks at it."""
    features: NDArray[np.float32]
    """(n, f), the entropy features."""
    xy: NDArray[np.float32]
    """(n, 2), where that is on maps: x and y of a world, the first two features elsewhere."""
    done: NDArray[np.bool_]
    """(n,), the episode is over."""
    terminated: NDArray[np.bool_]
    """(n,), it is over for good, not just for lack of time: what follows is worth nothing."""
    success: NDArray[np.bool_]
    """(n,), the task was solved in this episode, as the environment's `info["success"]` (or `is_success`) tells."""
    valid: NDArray[np.bool_]
    """(n,), False from the step on in which a replica's physics broke (or its observation was not finite)."""


class Replicas:
    """n copies of an environment, stepped by an `engine`.

    `observation` (n, d) is what the policies see next, `episode_steps` (n,) how many steps the episodes have had. They
    end after `episode_limit`, if they have not before.
    """

    def __init__(self, engine: Engine, horizon: int) -> None:
        self.engine, self.count = engine, engine.count
        self.action_space = engine.action_space
        self.observation_size, self.feature_size = engine.observation_size, len(engine.features)
        self.observation = np.zeros((self.count, self.observation_size), np.float32)
        self.episode_steps = np.zeros(self.count, np.int64)
        self.episode_limit = horizon
        self.are_running = False
        self._broken = np.zeros(self.count, bool)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what is explored."""
        return tuple(feature.name for feature in self.engine.features)

    @property
    def feature_scale(self) -> tuple[float, ...]:
        """Length that counts as one in each feature; 0 for its deviation over the visited states."""
        return tuple(feature.scale for feature in self.engine.features)

    @property
    def tells_success(self) -> bool:
        """Whether anything is said about success."""
        return self.engine.tells_success

    @property
    def world(self) -> World | None:
        """What is simulated, where that can be looked at: terrain, model, names of features."""
        return self.engine.world

    @property
    def plane(self) -> Plane:
        """What maps show."""
        return self.engine.plane

    @property
    def cell(self) -> tuple[float, float]:
        """Sides of a coverage cell on maps: as large as goals are by default."""
        return self.engine.plane.cell

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """That the environment declares, where actions are continuous and features only change among themselves."""
        columns = self.engine.columns
        if columns is None or not isinstance(self.action_space, gymnasium.spaces.Box):
            return ()
        for symmetry in self.engine.symmetries:
            check_symmetry(symmetry, self.observation_size, int(np.prod(self.action_space.shape)))
        return tuple(one for one in self.engine.symmetries if one.observation.of(columns) is not None)

    def views(self) -> tuple[list[Symmetry], list[SignedOrder]]:
        """(all views of the world that its symmetries give, what becomes of the features in each); perhaps none."""
        group, columns = group_of(self.symmetries), self.engine.columns or ()
        of_features = [view.observation.of(columns) for view in group]
        return group, [view for view in of_features if view is not None]

    def begin(self, rollouts: Rollouts, seed: int) -> None:
        """Put the replicas where an iteration begins. Replica i is agent i // (replicas per agent)'s, always.

        Whole horizons begin with a reset; segments go on, from episode steps staggered once in the beginning.
        """
        if not rollouts.are_segments or not self.are_running:
            self.start(seed)
            if rollouts.are_segments and self.engine.obeys_limit:
                self._stagger(rollouts)

    def start(self, seed: int) -> None:
        """Reset every replica."""
        self.observation = self.engine.start(seed)
        self.episode_steps[:], self._broken[:] = 0, False
        self.are_running = True

    def step(self, actions: NDArray[Any]) -> Transition:
        """One control step of every replica; episodes that end start again at once."""
        outcome = self.engine.step(actions, self.episode_steps + 1 >= self.episode_limit)
        if not np.isfinite(outcome.reward).all():
            replica = int(np.flatnonzero(~np.isfinite(outcome.reward))[0])
            raise TrainingStoppedError(
                f"the environment gave replica {replica} a reward of {outcome.reward[replica]} in step"
                f" {self.episode_steps[replica] + 1} of its episode; mend it and resume from the last checkpoint"
            )
        self.episode_steps += 1
        self._broken |= outcome.broken | ~(_finite(outcome.observation) & _finite(outcome.features))
        reached, features, xy = outcome.observation, outcome.features, outcome.xy
        following = outcome.following
        if self._broken.any():
            reached, features, xy = (np.where(self._broken[:, None], 0, one) for one in (reached, features, xy))
            following = np.where(self._broken[:, None], np.nan_to_num(following), following)
        done = outcome.done
        transition = Transition(
            reached,
            outcome.reward.astype(np.float32),
            features,
            xy,
            done,
            outcome.terminated,
            np.zeros(self.count, bool) if outcome.success is None else outcome.success,
            ~self._broken,
        )
        self.observation = following
        self.episode_steps[done], self._broken[done] = 0, False
        return transition

    @property
    def can_be_saved(self) -> bool:
        """Whether the replicas can be put back to a state in the middle of an episode."""
        return self.engine.can_be_saved

    def get_state(self) -> State | None:
        """All that the replicas' future depends on, None where it cannot be saved."""
        state = self.engine.get_state()
        if state is None:
            return None
        return state | {
            "shown": self.observation.copy(),
            "episode_steps": self.episode_steps.copy(),
            "broken": self._broken.copy(),
        }

    def set_state(self, state: State) -> bool:
        """Go back to a saved state, exactly; False, and nothing is running, if that does not lead back to it."""
        if state["episode_steps"].shape != self.episode_steps.shape or state["shown"].shape != self.observation.shape:
            raise ValueError("the replicas have another number or other observations")
        self.are_running = self.engine.set_state(state)
        if self.are_running:
            self.observation = state["shown"].copy()
            self.episode_steps[:], self._broken[:] = state["episode_steps"], state["broken"]
        return self.are_running

    def close(self) -> None:
        self.engine.close()

    def _stagger(self, rollouts: Rollouts) -> None:
        """Spread each agent's episodes evenly over their steps; the first ones are shorter.

        Where few replicas leave gaps longer than a segment, agents fill them in turn: every segment has all steps.
        """
        agent, replica = np.divmod(np.arange(self.count), rollouts.per_agent)
        longest = self.episode_limit
        segments_between = max(longest // rollouts.per_agent // rollouts.steps, 1)
        self.episode_steps[:] = replica * longest // rollouts.per_agent + agent % segments_between * rollouts.steps


def _finite(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    """(n,), whether all of values (n, ...) are numbers."""
    return np.asarray(np.isfinite(values).all(axis=1))


def make_replicas(
    env: str,
    count: int,
    *,
    horizon: int,
    features: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    goal: GoalPoint | None = None,
    threads: int | None = None,
    engine: EngineName = "auto",
) -> Replicas:
    """`count` replicas of whatever `env` names: a world, a Gymnasium id, a function, a vector environment."""
    made = make_engine(
        env,
        count,
        horizon=horizon,
        features=features,
        settings=settings,
        goal=goal,
        threads=threads,
        engine=engine,
    )
    return Replicas(made, horizon)
