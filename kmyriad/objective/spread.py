"""Every agent its own way: what tells agents apart, in features of any kind and dimension, with no direction given.

The Wasserstein dependency of state s and agent (Ozair et al. 2019; METRA, Park et al. 2024) is at least the mean of
w(agent) . s over the agents' states, for any vectors w that are no further apart than the agents' codes. Here w is
linear in the code c: w = W c, W an orthogonal map from codes to features. Which one is found anew from the pool: that
for which agents already are furthest along their w (orthogonal Procrustes, Schoenemann 1966). So whatever way agents
drift apart by chance, they are told to go on, and agents with codes that are near have ways that are near. Beyond a
deviation or two being further counts for little: agents part, and what keeps them in a corner is not this.

Where the environment declares symmetries, W is one that they leave as it is.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmyriad.envs.symmetry import SignedOrder
from kmyriad.population.frames import moved_codes
from kmyriad.population.moments import column_means

SMALLEST_SPREAD = 1e-6
"""In units of the features: agents that all stand still have nothing to be scaled by."""


def ways_of(particles: Tensor, owners: Tensor, codes: NDArray[np.float32], views: Sequence[SignedOrder] = ()) -> Tensor:
    """(m, f), float64: a vector of the features per agent, W times its code, centred.

    W maximises the mean over agents of (W c) . (mean of the agent's `particles` (N, f)); `owners` (N,) says whose they
    are, `codes` are (m, c). `views` are the symmetries of the features, all of them.
    """
    codes = codes - codes.mean(axis=0)  # codes of one number each are corners of a simplex
    of_codes = torch.from_numpy(codes.astype(np.float64)).to(particles.device)
    offsets, counts = particles - column_means(particles), torch.bincount(owners, minlength=len(codes))
    sums = [torch.bincount(owners, column, minlength=len(codes)) for column in offsets.T]
    means = torch.stack(sums, dim=1) / counts.clamp(min=1)[:, None]
    together = means.T @ of_codes
    if views:
        moved = moved_codes(views, codes.shape[1])
        pairs = [(view.matrix.T, of_view) for view, of_view in zip(views, moved, strict=True)]
        seen = [[torch.from_numpy(matrix).to(together) for matrix in pair] for pair in pairs]
        together = torch.stack([left @ together @ right for left, right in seen]).sum(0)
    left, _, right = torch.linalg.svd(together, full_matrices=False)
    return of_codes @ (left @ right).T


def along_own_way(particles: Tensor, asked: Tensor, asked_owners: Tensor, ways: Tensor) -> Tensor:
    """(n,), how far along their agents' `ways` (m, f) the states `asked` (n, f) are, from -1 to 1.

    From the mean of the `particles` (N, f), in deviations of these along the ways, tanh of it.
    """
    middle = column_means(particles)
    _, sizes, plane = torch.linalg.svd(ways, full_matrices=False)
    plane = plane * (sizes > 1e-9 * sizes.max())[:, None]  # where ways lie
    spread = column_means(((particles - middle) @ plane.T).square().sum(1, keepdim=True)).sqrt()
    own = ((asked - middle) * ways[asked_owners]).sum(1)
    return (own / spread.clamp(min=SMALLEST_SPREAD)).tanh().float()
