"""One colour per agent, the same in every figure, told apart by colour-blind eyes too."""

import math
from functools import cache

import numpy as np
from matplotlib.colors import to_hex, to_rgb
from numpy.typing import NDArray

from kmyriad.errors import UsageError

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""The palette of Okabe & Ito (2008), the colours that are faint on white last."""

PALETTE_SIZE = 64
"""Colours that are different; later agents begin again."""

LIGHTNESS = (0.35, 0.85)
"""OKLab lightness of the colours after the first eight: seen on light ground, and not taken for black."""

RGB_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
CONES_TO_OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
"""Ottosson's OKLab, in which distances are about as large as they look."""

EYES = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
"""What each kind of eye makes of linear RGB (Machado, Oliveira & Fernandes 2009)."""


def agent_colour(agent: int, count: int) -> str:
    """The colour '#rrggbb' of one of `count` agents. It does not depend on `count`, so populations compare."""
    if not 0 <= agent < count:
        raise UsageError(f"agent must lie between 0 and {count - 1}, as there are {count} agents; got {agent}")
    return palette()[agent % PALETTE_SIZE]


@cache
def palette() -> tuple[str, ...]:
    """Okabe-Ito, then each time the colour that is farthest from all before for the eye that sees it nearest."""
    steps = np.linspace(0, 1, 13)
    candidates = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(-1, 3)
    lightness = seen_by(candidates, "normal")[:, 0]
    candidates = candidates[(lightness >= LIGHTNESS[0]) & (lightness <= LIGHTNESS[1])]
    seen = [seen_by(candidates, eye) for eye in EYES]
    chosen = list(OKABE_ITO)
    nearest = np.full(len(candidates), np.inf)
    for index in range(PALETTE_SIZE):
        if index >= len(chosen):
            chosen.append(to_hex(candidates[nearest.argmax()].tolist()))
        colour = np.array([to_rgb(chosen[index])])
        for eye, points in zip(EYES, seen, strict=True):
            np.minimum(nearest, np.linalg.norm(points - seen_by(colour, eye), axis=1), out=nearest)
    return tuple(chosen)


def heading_colour(angle: float) -> str:
    """The colour '#rrggbb' of a direction in the plane (radians): equally light all round, so that none stands out."""
    lightness, chroma = 0.68, 0.13
    oklab = np.array([lightness, chroma * math.cos(angle), chroma * math.sin(angle)])
    cones = np.linalg.solve(CONES_TO_OKLAB, oklab) ** 3
    linear = np.linalg.solve(RGB_TO_CONES, cones).clip(0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return to_hex(encoded.clip(0, 1).tolist())


def seen_by(colours: NDArray[np.float64], eye: str) -> NDArray[np.float64]:
    """(n, 3), where sRGB `colours` (n, 3) in 0..1 lie in OKLab for one of `EYES`."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt((linear @ EYES[eye].T).clip(0, 1) @ RGB_TO_CONES.T)
    return cones @ CONES_TO_OKLAB.T
