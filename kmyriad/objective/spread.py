"""Every agent its own way: what tells agents apart, in features of any kind and dimension, with no direction given.

The Wasserstein dependency of state s and agent (Ozair et al. 2019; METRA, Park et al. 2024) is at least the mean of
w(agent) . s over the agents' states, for any vectors w that are no further apart than the agents' codes. Here w is
linear in the code c: w = W c, W an orthogonal map from codes to features. Which one is found anew from the pool: that
for which agents already are furthest along their w (orthogonal Procrustes, Schoenemann 1966). So whatever way agents
drift apart by chance, they are told to go on, and agents with codes that are near have ways that are near.

Where the environment declares symmetries, W is one that they leave as it is.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kmyriad.envs.symmetry import SignedOrder
from kmyriad.population.frames import moved_codes

SMALLEST_SPREAD = 1e-6
"""In units of the features: agents that all stand still have nothing to be scaled by."""


def ways_of(
    particles: NDArray[np.float32],
    owners: NDArray[np.int64],
    codes: NDArray[np.float32],
    views: Sequence[SignedOrder] = (),
) -> NDArray[np.float64]:
    """(m, f), a vector of the features per agent: W times its code, centred.

    W maximises the mean over agents of (W c) . (mean of the agent's `particles` (N, f)); `owners` (N,) says whose they
    are, `codes` are (m, c). `views` are the symmetries of the features, all of them.
    """
    codes = codes - codes.mean(axis=0)  # codes of one number each are corners of a simplex
    agents, offsets = len(codes), particles - particles.mean(axis=0, dtype=np.float64)
    counts = np.maximum(np.bincount(owners, minlength=agents), 1)[:, None]
    means = np.stack([np.bincount(owners, column, minlength=agents) for column in offsets.T], axis=1) / counts
    together = means.T @ codes.astype(np.float64)
    if views:
        of_codes = moved_codes(views, codes.shape[1])
        seen = [view.matrix.T @ together @ moved for view, moved in zip(views, of_codes, strict=True)]
        together = np.sum(seen, axis=0)
    left, _, right = np.linalg.svd(together, full_matrices=False)
    return codes @ (left @ right).T


def along_own_way(
    particles: NDArray[np.float32],
    asked: NDArray[np.float32],
    asked_owners: NDArray[np.int64],
    ways: NDArray[np.float64],
) -> NDArray[np.float32]:
    """(n,), how far along their agents' `ways` (m, f) the states `asked` (n, f) are.

    From the mean of the `particles` (N, f), in deviations of these along the ways.
    """
    middle = particles.mean(axis=0, dtype=np.float64)
    _, sizes, plane = np.linalg.svd(ways, full_matrices=False)
    plane = plane[sizes > 1e-9 * sizes.max(initial=0.0)]  # where ways lie
    spread = np.sqrt(np.square((particles - middle) @ plane.T).sum(axis=1).mean())
    own = np.einsum("nf,nf->n", asked - middle, ways[asked_owners])
    return (own / max(spread, SMALLEST_SPREAD)).astype(np.float32)
