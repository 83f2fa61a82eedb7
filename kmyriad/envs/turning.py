"""The world turned about the vertical, robot and all: which of the numbers that the robot sees change, and how."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Turning:
    """Places in the observation; all others are told in the robot's own frame, or taken as if they were."""

    x: int
    y: int
    headings: tuple[int, ...]
    """Angles that grow as the world turns."""
    bearings: tuple[int, ...]
    """Angles, seen from the robot, of what stays where it is: they shrink."""
