"""kmyriad: populations of policies that explore together, and reinforcement learning started from the best of them."""

import kmyriad.envs  # noqa: F401  (registers the Gymnasium ids)
from kmyriad.errors import UsageError
from kmyriad.version import VERSION as __version__

__all__ = ["UsageError", "__version__"]
