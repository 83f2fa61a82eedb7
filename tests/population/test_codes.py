import numpy as np
import pytest

from kmyriad.config import PopulationConfig
from kmyriad.population.codes import agent_codes, codes_of


@pytest.mark.parametrize(
    ("agents", "size"), [(2, 2), (3, 2), (10, 2), (50, 2), (10, 3), (12, 4), (4, 1), (5, 5), (3, 8)]
)
def test_codes_are_unit_vectors_and_the_same_whenever_asked(agents, size):
    codes = agent_codes(agents, size)
    assert codes.shape == (agents, min(agents, size))
    np.testing.assert_allclose(np.linalg.norm(codes, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(codes, agent_codes(agents, size))


def test_two_numbers_are_evenly_around_the_circle():
    codes = agent_codes(10, 2)
    angles = np.sort(np.degrees(np.arctan2(codes[:, 1], codes[:, 0])))
    np.testing.assert_allclose(np.diff(angles), 36, atol=1e-3)


def test_more_are_far_apart_on_the_sphere():
    codes = agent_codes(12, 3)
    distances = np.linalg.norm(codes[:, None] - codes, axis=-1) + 9 * np.eye(12)
    assert distances.min() > 0.9  # of an icosahedron 1.05


def test_as_many_numbers_as_agents_are_one_each():
    np.testing.assert_array_equal(agent_codes(3, 3), np.eye(3))


def test_one_agent_and_independent_layers_have_no_code():
    assert codes_of(PopulationConfig(1)) is None
    assert codes_of(PopulationConfig(5, code_size=None)) is None
    np.testing.assert_array_equal(codes_of(PopulationConfig(5, code_size=2)), agent_codes(5, 2))
