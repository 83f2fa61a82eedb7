"""Whose state is this? A linear discriminant, and with it the mutual information of state and agent.

For any classifier q(agent | state) the mutual information I(s; agent) is at least E ln q(agent | s) + H(agent) (Barber
and Agakov 2003), so ln q of its own agent is what a state adds to it. The classifier here is Fisher's: a normal
distribution per agent, all of one covariance, fitted to the pool in closed form. It has few parameters, so it is hardly
noisy: where two agents differ a little on average, all the states on one agent's side are worth more to that agent.

Any classifier gives a bound, so it may also expect agents further on their way than they are (`compass`), or agents
that differ in nothing but their ways where their ways alone tell: that is not noisy even with many agents.
"""

import numpy as np
from numpy.typing import NDArray

RIDGE = 1e-6
"""Added to the covariance, beside the mean variance, so that features that never vary do no harm."""


def log_probability_of_owner(
    particles: NDArray[np.float32],
    owners: NDArray[np.int64],
    agents: int,
    asked: NDArray[np.float32],
    asked_owners: NDArray[np.int64],
    ahead: NDArray[np.float32] | None = None,
    ways: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """(n,), ln q(asked_owners | asked), after the `particles` (N, f) and which of the `agents` each belongs to.

    An agent without particles counts as one that is where all are on average. `ahead` (agents, f) is how far beyond its
    mean each agent is expected, in deviations of the features. With `ways` (agents, f) means are what is linear in
    these.
    """
    states, dimension = particles.astype(np.float64), particles.shape[1]
    counts = np.bincount(owners, minlength=agents)[:, None]
    sums = np.stack([np.bincount(owners, column, minlength=agents) for column in states.T], axis=1)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), states.mean(axis=0))
    if ways is not None:
        means = _linear_in(ways, means, counts)
    within = states - means[owners]
    covariance = within.T @ within / len(within)
    covariance += RIDGE * (np.trace(covariance) / dimension + np.finfo(np.float32).tiny) * np.eye(dimension)
    if ahead is not None:
        means = means + ahead * np.sqrt(np.diag(covariance))
    slopes = np.linalg.solve(covariance, means.T)
    logits = asked @ slopes - 0.5 * np.sum(means.T * slopes, axis=0)
    logits -= logits.max(axis=1, keepdims=True)
    own = np.take_along_axis(logits, asked_owners[:, None], axis=1)[:, 0]
    return (own - np.log(np.exp(logits).sum(axis=1))).astype(np.float32)


def _linear_in(ways: NDArray[np.float32], means: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """(agents, f), the nearest to `means` of `counts` (agents, 1) that are a constant plus what is linear in `ways`."""
    inputs, weights = np.column_stack([np.ones(len(ways)), ways]), np.sqrt(counts)
    return inputs @ np.linalg.lstsq(weights * inputs, weights * means, rcond=None)[0]
