"""Load the exported policy into rsl_rl's runner, show that it acts the same, train it on.

Run it with: python train_on.py
"""

import argparse

from tensordict import TensorDict
from torch import Tensor

from kmyriad.exporters.carried.policy import FOLDER, largest_difference, read_facts, tell_return
from kmyriad.exporters.carried.rsl_rl import GROUP, make_environments, make_runner, set_actor_learning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="environment steps")
    parser.add_argument("--envs", type=int, default=16, help="copies of the environment")
    parser.add_argument("--critic-first", type=int, default=4, help="iterations in which only the critic learns")
    arguments = parser.parse_args()
    environments = make_environments(count=arguments.envs)
    runner = make_runner(env=environments)
    runner.load(str(FOLDER / "model.pt"), load_cfg={"actor": True, "critic": True})

    def act(seen: Tensor, draws: bool = True) -> Tensor:
        raw = runner.alg.actor(TensorDict({GROUP: seen}, batch_size=[len(seen)]), stochastic_output=draws)
        return environments.policy.to_environment(raw)

    difference = largest_difference(lambda seen: act(seen, draws=False))
    print(f"largest difference from kmyriad's actions: {difference:.1e}")
    tell_return("before", act)
    first = 0 if read_facts()["critic_hidden"] else arguments.critic_first
    iterations = max(1, round(arguments.steps / (runner.cfg["num_steps_per_env"] * arguments.envs)))
    if first:
        set_actor_learning(runner, False)
        runner.learn(min(first, iterations))
        set_actor_learning(runner, True)
    if iterations > first:
        runner.learn(iterations - first)
    tell_return("after", act)
    runner.save(str(FOLDER / "model-trained.pt"))
    print("wrote model-trained.pt; go on with runner.load")


if __name__ == "__main__":
    main()
