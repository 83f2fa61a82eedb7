"""Load the exported policy into Stable-Baselines3's SAC, show that it acts the same, train it on.

Run it with: python train_on.py
"""

import argparse
from typing import Any

from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env

from kmyriad.exporters.carried.policy import FOLDER, largest_difference, make_env, read_facts, tell_return
from kmyriad.exporters.carried.sb3 import CriticFirst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="environment steps")
    parser.add_argument("--envs", type=int, default=4, help="copies of the environment")
    parser.add_argument("--critic-first", type=int, default=5_000, help="steps in which only the critics learn")
    arguments = parser.parse_args()
    facts = read_facts()

    def make() -> Any:
        return make_env(facts)

    model = SAC.load(FOLDER / "sac.zip", env=make_vec_env(make, arguments.envs))
    difference = largest_difference(lambda seen: model.predict(seen.numpy(), deterministic=True)[0])
    print(f"largest difference from kmyriad's actions: {difference:.1e}")

    def act(seen: Any) -> Any:
        return model.predict(seen.numpy())[0]

    tell_return("before", act)
    model.learn(arguments.steps, callback=CriticFirst(arguments.critic_first))
    tell_return("after", act)
    model.save(FOLDER / "sac-trained.zip")
    print("wrote sac-trained.zip; go on with SAC.load")


if __name__ == "__main__":
    main()
