"""Load the exported policy, show that it acts the same, train it on with PPO.

Run it with: python train_on.py
"""

import argparse

from safetensors.torch import save_file

from kmyriad.exporters.carried.policy import FOLDER, largest_difference, make_envs, read_facts, tell_return
from kmyriad.exporters.carried.ppo import Agent, Settings, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="environment steps")
    parser.add_argument("--envs", type=int, default=16, help="copies of the environment")
    parser.add_argument("--critic-first", type=int, default=4, help="iterations in which only the critic learns")
    arguments = parser.parse_args()
    facts, agent = read_facts(), Agent()
    print(f"largest difference from kmyriad's actions: {largest_difference(agent.policy.act):.1e}")
    tell_return("before", agent.policy.sample)
    first = 0 if facts["critic_hidden"] else arguments.critic_first
    train(agent, make_envs(facts, arguments.envs), arguments.steps, Settings(critic_first=first))
    tell_return("after", agent.policy.sample)
    save_file(agent.state_dict(), FOLDER / "agent-trained.safetensors")
    print("wrote agent-trained.safetensors; go on with agent.load_state_dict")


if __name__ == "__main__":
    main()
