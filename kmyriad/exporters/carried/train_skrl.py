"""Load the exported policy into skrl's PPO, show that it acts the same, train it on.

Run it with: python train_on.py
"""

import argparse

from skrl.envs.wrappers.torch import wrap_env
from skrl.trainers.torch import SequentialTrainer

from kmyriad.exporters.carried.policy import FOLDER, largest_difference, read_facts, tell_return
from kmyriad.exporters.carried.skrl import ROLLOUTS, make_agent, make_environments, set_actor_learning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="environment steps")
    parser.add_argument("--envs", type=int, default=16, help="copies of the environment")
    parser.add_argument("--critic-first", type=int, default=4, help="iterations in which only the critic learns")
    arguments = parser.parse_args()
    environments = make_environments(count=arguments.envs)
    agent = make_agent(num_envs=arguments.envs)
    agent.load(str(FOLDER / "agent.pt"))
    difference = largest_difference(agent.policy.network.act)
    print(f"largest difference from kmyriad's actions: {difference:.1e}")
    tell_return("before", agent.policy.network.sample)
    first = 0 if read_facts()["critic_hidden"] else arguments.critic_first * ROLLOUTS
    steps = max(1, round(arguments.steps / (ROLLOUTS * arguments.envs))) * ROLLOUTS
    env = wrap_env(environments, wrapper="gymnasium")
    for count, learns in ((min(first, steps), False), (steps - first, True)):
        if count > 0:
            set_actor_learning(agent, learns)
            cfg = {"timesteps": count, "headless": True, "close_environment_at_exit": False}
            SequentialTrainer(env=env, agents=agent, cfg=cfg).train()
    tell_return("after", agent.policy.network.sample)
    agent.save(str(FOLDER / "agent-trained.pt"))
    print("wrote agent-trained.pt; go on with agent.load")


if __name__ == "__main__":
    main()
