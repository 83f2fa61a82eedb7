"""The paper itself: its figures and tables by name, the numbers that it prints, and where it is not of one mind."""

from typing import NamedTuple


class Item(NamedTuple):
    """A figure or table of the paper."""

    name: str
    target: str
    """What `kmyriad reproduce` must be asked for; empty where there is nothing to reproduce."""
    claims: tuple[int, ...] = ()
    instead: str = ""
    """Where to find what it shows, if no target makes it."""


ITEMS = [
    Item("Figure 1, the k-NN entropy estimator", "", (), "a drawing; `objective/entropy.py`"),
    Item("Figure 2, parallel agents and environments", "", (), "a drawing; the concepts page"),
    Item("Figure 3, the policy's architecture", "", (), "a drawing; `population/network.py`"),
    Item("Figure 4, PointMaze: pretraining and two goals", "point-maze", (12,)),
    Item("Figure 5, parallel state entropy, four environments", "entropy-curves", (1, 2, 3, 4)),
    Item("Figure 6, increasing the trajectory budget", "budget", (5,)),
    Item("Figure 7, PPO success rates from three initialisations", "success-rates", (7, 8, 9)),
    Item("Table 1, KL divergence between parallel agents", "kl-table", (6,)),
    Item("Figure 8, diversity of ten agents", "diversity", (14,)),
    Item("Figure 9, overview of the environments", "", (), "pictures; `python examples/worlds.py`"),
    Item("Table 2, reward-free parameters", "", (), "settings; `--preset paper`, `presets.table_2`"),
    Item("Table 3, PPO parameters", "", (), "settings; `presets.jumpstart_paper`"),
    Item("Computational resources (wall-clock times)", "entropy-curves", (13,)),
    Item("Figure 10, parallel state entropy over longer runs", "long-run", (10,)),
    Item("Figure 11, PPO across goal regions", "goal-regions", (11,)),
    Item("Figure 12, goals in Maze, Cave and Pyramid", "goal-maps"),
    Item("Figure 13, heatmaps, four environments by 1, 10 and 50 agents", "heatmaps"),
    Item("Appendix, loss calculation: weights of 1", "any", (15,)),
]
"""In the order in which the paper's source has them, which its numbers follow."""

KL_TABLE = {
    "ant-empty": {10: (0.9869, 0.0160), 50: (1.3337, 0.0099)},
    "ant-maze": {10: (0.5980, 0.0267), 50: (1.0230, 0.0164)},
    "ant-pyramid": {10: (0.5340, 0.0333), 50: (0.8807, 0.0288)},
    "ant-cave": {10: (0.8804, 0.0399), 50: (1.0432, 0.0153)},
}
"""Table 1, by world and number of agents."""

CHOICES = [
    (
        "Fifty agents have 2.5 times the learning rate of one and ten",
        "as printed, and fifty with the rate of one beside it",
    ),
    (
        "The text says that a pretrained policy has a lower rate; Table 3 has 1e-5 three times",
        "the table",
    ),
    ("Two captions of the environments' figure are swapped", "the names in the text"),
    ("Which features enter the neighbours and the KL is not said", "x, y, z for the Ant, x and y in PointMaze"),
    (
        '"No pretrain" is a random policy in one place, the best of several trained ones in another',
        "ten random agents practise for a fifth of the steps and the best is kept; both are counted",
    ),
    (
        'Goals lie in "a fixed annular region" whose radii are not given; PPO alone does those within 4.5 m',
        "4.5 to 7 m, and 2 to 4.5 m inside",
    ),
    (
        "Eq. 4 with weights of 1 is not Eq. 1 as printed",
        "MEPOL's form, with weights normalised over the batch, which is",
    ),
    ("Minibatches of 64 x replicas do not divide 600 steps", "ten minibatches of 60 x replicas; ten at every size"),
    ("Settings of the PointMaze are not given", "those of Tables 2 and 3, on a ring with its start at the bottom"),
    ("The initial deviation of the actions is not given", "0.37"),
    (
        "The figures of success are over updates at equal total steps, where selecting an agent costs none",
        "both: equal updates, and equal steps with selection and practice counted, which is what is judged",
    ),
    ("Five budgets have four steps between them", "three of the four must rise"),
]
"""Where the paper leaves something open or says two things, and what was chosen."""
