"""Load the exported policy with onnxruntime, show that it acts the same, play an episode.

Run it with: python play.py
"""

import argparse

import numpy as np
import onnxruntime

from kmyriad.exporters.carried.policy import FOLDER, largest_difference, make_env, read_facts


def main() -> None:
    facts = read_facts()
    session = onnxruntime.InferenceSession(FOLDER / "policy.onnx")
    agents = int(session.get_modelmeta().custom_metadata_map["agents"])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", type=int, default=0, choices=range(agents), help="where the file holds all of them")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    def act(observations: np.ndarray) -> np.ndarray:
        feed = {"observation": np.asarray(observations, np.float32)}
        if any(value.name == "agent" for value in session.get_inputs()):
            feed["agent"] = np.full(len(observations), arguments.agent, np.int64)
        return session.run(["action"], feed)[0]

    if arguments.agent == facts["agent"] or len(session.get_inputs()) == 1:
        difference = largest_difference(lambda seen: act(seen.numpy()))
        print(f"largest difference from kmyriad's actions: {difference:.1e}")
    env = make_env(facts)
    seen, _ = env.reset(seed=arguments.seed)
    total, steps, over = 0.0, 0, False
    while not over:
        seen, reward, terminated, truncated, _ = env.step(act(seen[None])[0])
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
    print(f"one episode: {steps} steps, return {total:g}")


if __name__ == "__main__":
    main()
