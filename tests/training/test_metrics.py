import pytest

from kmyriad.config import Rollouts
from kmyriad.training.metrics import is_look


@pytest.mark.parametrize(
    ("replicas", "steps", "looks"),
    [
        (100, 50, [4, 20]),  # 20,000 states a horizon: after the first and every fourth
        (140, 50, [4, 16]),  # 28,000: every third
        (200, 50, [4, 12, 20]),  # 40,000: every second
        (400, 50, [4, 8, 12, 16, 20]),  # 80,000: every one
        (100, 200, [1, 5, 9, 13, 17]),  # whole horizons
        (1000, 200, list(range(1, 21))),
    ],
)
def test_the_pool_is_looked_at_more_often_where_a_horizon_has_more_states(replicas, steps, looks):
    rollouts = Rollouts(10, replicas, 200, steps)
    assert [iteration for iteration in range(1, 21) if is_look(rollouts, iteration)] == looks
