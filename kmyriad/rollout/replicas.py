"""Replicas of any environment, as training sees them: observations in, features out, episodes restarted by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from kmyriad.config import Rollouts
from kmyriad.engines.engine import Engine, State
from kmyriad.engines.make import EngineName, GoalPoint, make_engine
from kmyriad.envs.plane import Plane
from kmyriad.envs.symmetry import SignedOrder, Symmetry, check_symmetry, group_of
from kmyriad.envs.world import World
from kmyriad.processes import Share


@dataclass(frozen=True)
class Transition:
    """Where a step led, before ended episodes start again."""

    observation: Tensor
    """(n, d)."""
    rewards: Tensor
    """(n,), float32, the environment's own; pretraining never looks at it."""
    features: Tensor
    """(n, f), the entropy features."""
    xy: Tensor
    """(n, 2), where that is on maps: x and y of a world, the first two features elsewhere."""
    dones: Tensor
    """(n,), bool: the episode is over."""
    terminated: Tensor
    """(n,), bool: it is over for good, not just for lack of time: what follows is worth nothing."""
    success: Tensor
    """(n,), bool: the task was solved in this episode, as the environment's `info["success"]` (or `is_success`) tells.
    """
    valid: Tensor
    """(n,), bool: False from the step on in which a replica's physics broke (or its observation was not finite)."""
    episode_steps: Tensor
    """(n,), int64: how many steps the episode had had before."""


TOLD = ("observation", "following", "features", "xy", "reward", "terminated", "done", "broken")
"""Of an engine's outcome."""


class Replicas:
    """n copies of an environment, stepped by an `engine`, in tensors on its device.

    `observation` (n, d) is what the policies see next, `episode_steps` (n,) how many steps the episodes have had. They
    end after `episode_limit`, if they have not before. `share` says which of a run's replicas these are.
    """

    def __init__(self, engine: Engine, horizon: int, share: Share | None = None) -> None:
        self.engine, self.count = engine, engine.count
        self.share, self.device = share or Share(1, engine.count), torch.device(engine.device)
        self.action_space = engine.action_space
        self.observation_size, self.feature_size = engine.observation_size, len(engine.features)
        self.observation = torch.zeros(self.count, self.observation_size, device=self.device)
        self.episode_steps = torch.zeros(self.count, dtype=torch.int64, device=self.device)
        self.episode_limit = horizon
        self.are_running = False
        self._broken = torch.zeros(self.count, dtype=torch.bool, device=self.device)

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

    @property
    def symmetry_names(self) -> list[str]:
        """What the environment calls them."""
        return [symmetry.name or "unnamed" for symmetry in self.symmetries]

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
        self.observation = self._tensor(self.engine.start(seed))
        self.episode_steps, self._broken = torch.zeros_like(self.episode_steps), torch.zeros_like(self._broken)
        self.are_running = True

    def step(self, actions: Tensor) -> Transition:
        """One control step of every replica; episodes that end start again at once.

        Nothing here waits for a device: what is wrong is masked, not asked for.
        """
        last = self.episode_steps + 1 >= self.episode_limit
        if self.engine.speaks_tensors:
            outcome = self.engine.step(actions, last)
        else:
            outcome = self.engine.step(actions.numpy(), last.numpy())
        reached, following, features, xy, rewards, terminated, dones, broken = (
            self._tensor(getattr(outcome, name)) for name in TOLD
        )
        broken = self._broken | broken | ~(reached.isfinite().all(1) & features.isfinite().all(1))
        invalid = broken[:, None]
        transition = Transition(
            reached.masked_fill(invalid, 0),
            rewards.float(),
            features.masked_fill(invalid, 0),
            xy.masked_fill(invalid, 0),
            dones,
            terminated,
            torch.zeros_like(dones) if outcome.success is None else self._tensor(outcome.success),
            ~broken,
            self.episode_steps,
        )
        self.observation = torch.where(invalid, following.nan_to_num(), following)
        self.episode_steps = (self.episode_steps + 1).masked_fill(dones, 0)
        self._broken = broken & ~dones
        return transition

    @property
    def can_be_saved(self) -> bool:
        """Whether the replicas can be put back to a state in the middle of an episode."""
        return self.engine.can_be_saved

    def get_state(self) -> State | None:
        """All that the future of the replicas of all processes depends on, None where it cannot be saved."""
        state = self.engine.get_state()
        if state is None:
            return None
        own = {"shown": self.observation, "episode_steps": self.episode_steps, "broken": self._broken}
        state |= {name: tensor.cpu().numpy() for name, tensor in own.items()}
        return {name: array if array.ndim == 0 else self.share.gather_rows(array) for name, array in state.items()}

    def set_state(self, state: State) -> bool:
        """Go back to a saved state, exactly; False, and nothing is running, if that does not lead back to it."""
        whole = self.share.agents * self.share.per_agent
        if state["episode_steps"].shape != (whole,) or state["shown"].shape != (whole, self.observation_size):
            raise ValueError("the replicas have another number or other observations")
        rows = self.share.numbers
        state = {name: array if array.ndim == 0 else array[rows] for name, array in state.items()}
        self.are_running = self.engine.set_state(state)
        if self.are_running:
            self.observation = torch.as_tensor(state["shown"], device=self.device)
            self.episode_steps = torch.as_tensor(state["episode_steps"], device=self.device)
            self._broken = torch.as_tensor(state["broken"], device=self.device)
        return self.are_running

    def close(self) -> None:
        self.engine.close()

    def _stagger(self, rollouts: Rollouts) -> None:
        """Spread each agent's episodes evenly over their steps; the first ones are shorter.

        Where few replicas leave gaps longer than a segment, agents fill them in turn: every segment has all steps.
        """
        agent, place = np.divmod(self.share.numbers, rollouts.per_agent)
        longest = self.episode_limit
        segments_between = max(longest // rollouts.per_agent // rollouts.steps, 1)
        steps = place * longest // rollouts.per_agent + agent % segments_between * rollouts.steps
        self.episode_steps = torch.as_tensor(steps, device=self.device)

    def _tensor(self, array: Any) -> Tensor:
        """What the engine gave, on its device."""
        return torch.as_tensor(array, device=self.device)


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
    device: str = "cpu",
    share: Share | None = None,
) -> Replicas:
    """`count` replicas of whatever `env` names: a world, a Gymnasium id, a function, a vector environment.

    With a `share` of them, those of this process alone. `device` is for engines that can live on one.
    """
    share = share or Share(1, count)
    made = make_engine(
        env,
        len(share.numbers),
        numbers=share.numbers,
        horizon=horizon,
        features=features,
        settings=settings,
        goal=goal,
        threads=threads,
        engine=engine,
        device=device,
    )
    return Replicas(made, horizon, share)
