"""A direction for every agent, so that they need not find out from chance who goes where.

The reward for being told apart (`entropy/discriminant.py`) expects each agent somewhat further on its way than it is,
and the network knows which way that is (`network.py`): what one agent learns about turning there serves its neighbours.
"""

import numpy as np
from numpy.typing import NDArray


def directions(agents: int, features: int) -> NDArray[np.float32]:
    """(m, f), unit vectors evenly around the plane of the first two features."""
    angles = 2 * np.pi * np.arange(agents) / agents
    vectors = np.zeros((agents, max(features, 2)), np.float32)
    vectors[:, 0], vectors[:, 1] = np.cos(angles), np.sin(angles)
    return vectors[:, :features]
