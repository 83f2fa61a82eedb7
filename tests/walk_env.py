"""A tiny environment of a user's own: a point that walks in the plane, continuous or discrete, and may break.

Its reward is how far east it is, and it succeeds beyond EAST.
"""

import gymnasium
import numpy as np

CONTINUOUS = "kmyriad-test/Walk-v0"
DISCRETE = "kmyriad-test/WalkDiscrete-v0"
CHOICES = "kmyriad-test/WalkChoices-v0"
BITS = "kmyriad-test/WalkBits-v0"
SHIFTED = "kmyriad-test/WalkShifted-v0"
EAST = 1.0
BROKEN = "kmyriad-test/WalkBroken-v0"
UNBOUNDED = "kmyriad-test/WalkUnbounded-v0"
ENDING = "kmyriad-test/WalkEnding-v0"
LUCKY = "kmyriad-test/WalkLucky-v0"
RAISING = "kmyriad-test/WalkRaising-v0"
WORTHLESS = "kmyriad-test/WalkWorthless-v0"
FICKLE = "kmyriad-test/WalkFickle-v0"
BLIND = "kmyriad-test/WalkBlind-v0"
EDGE = 1.5
"""How far the ends are where episodes end early."""


class Walk(gymnasium.Env):
    def __init__(self, discrete: bool = False, breaks: bool = False, unbounded: bool = False):
        limit = np.inf if unbounded else 2.0
        self.observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.action_space = (
            gymnasium.spaces.Discrete(4) if discrete else gymnasium.spaces.Box(-limit, limit, (2,), np.float32)
        )
        self._discrete, self._breaks = discrete, breaks

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place = np.zeros(2)
        self._breaks_now = self._breaks and self.np_random.random() < 0.3
        self._steps = 0
        return self._place.astype(np.float32), {}

    def step(self, action):
        moves = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]) * 0.5
        self._place = self._place + (moves[action] if self._discrete else np.asarray(action) * 0.3)
        self._place += self.np_random.normal(0, 0.01, 2)
        self._steps += 1
        seen = np.full(2, np.nan) if self._breaks_now and self._steps > 3 else self._place
        return seen.astype(np.float32), float(self._place[0]), False, False, {"success": self._place[0] > EAST}


class WalkChoices(Walk):
    """Chooses among moves along x and, at once, among moves along y."""

    def __init__(self, space):
        super().__init__()
        self.action_space = space

    def step(self, action):
        assert self.action_space.contains(action), action
        return super().step((np.ravel(action)[:2] - 1) * 0.5)


class WalkEnding(Walk):
    """Ends at the edge, and earns 1 for every step before. `lucky`: one episode in five is a success."""

    def __init__(self, lucky: bool = False):
        super().__init__()
        self._lucky = lucky

    def reset(self, *, seed=None, options=None):
        seen = super().reset(seed=seed, options=options)
        self._succeeds = self.np_random.random() < 0.2
        return seen

    def step(self, action):
        seen, *_ = super().step(action)
        over = bool(np.abs(self._place).max() > EDGE)
        return seen, 1.0, over, False, {"success": over and self._succeeds} if self._lucky else {}


class WalkFickle(Walk):
    """Its noise is not its seed's."""

    def step(self, action):
        seen, *rest = super().step(action)
        self._place += np.random.default_rng().normal(0, 0.01, 2)
        return seen, *rest


class WalkBlind(Walk):
    """Sees how it moved and not where it is, which `info` tells."""

    def reset(self, *, seed=None, options=None):
        seen, info = super().reset(seed=seed, options=options)
        return seen, info | {"place": self._place.copy()}

    def step(self, action):
        before = self._place
        _, *rest, info = super().step(action)
        return (self._place - before).astype(np.float32), *rest, info | {"place": self._place.copy()}


FAILS_FROM = 30


class WalkFailing(Walk):
    """From a step on raises, or gives rewards that are no numbers."""

    def __init__(self, raises: bool):
        super().__init__()
        self._raises = raises

    def step(self, action):
        seen, reward, *rest = super().step(action)
        if self._steps < FAILS_FROM:
            return seen, reward, *rest
        if self._raises:
            raise RuntimeError("the robot fell apart\nand more")
        return seen, float("nan"), *rest


def register() -> None:
    for env_id, made in ((FICKLE, WalkFickle), (BLIND, WalkBlind)):
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=made, disable_env_checker=True)
    for env_id, raises in ((RAISING, True), (WORTHLESS, False)):
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=WalkFailing, kwargs={"raises": raises}, disable_env_checker=True)
    spaces = gymnasium.spaces
    for env_id, space in (
        (CHOICES, spaces.MultiDiscrete([3, 2])),
        (BITS, spaces.MultiBinary(3)),
        (SHIFTED, spaces.MultiDiscrete([3, 2], start=[1, 0])),
    ):
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=WalkChoices, kwargs={"space": space}, disable_env_checker=True)
    for env_id, lucky in ((ENDING, False), (LUCKY, True)):
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=WalkEnding, kwargs={"lucky": lucky}, disable_env_checker=True)
    for env_id, settings in (
        (CONTINUOUS, {}),
        (DISCRETE, {"discrete": True}),
        (BROKEN, {"breaks": True}),
        (UNBOUNDED, {"unbounded": True}),
    ):
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=Walk, kwargs=settings, disable_env_checker=True)
