"""ONNX: one file with the normaliser and the squashing inside, a free batch size, and names of everything.

The graph is written node by node: plain operators with readable names, which any runtime of the last years takes.
"""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from kmyriad.exporters.folder import need, write_policy, write_readme
from kmyriad.exporters.portable import Portable, Source
from kmyriad.population.population import Population
from kmyriad.runs.run import version

if TYPE_CHECKING:
    import onnx

OPSET, IR = 17, 9
"""Of 2022: runtimes on robots are old."""
OPERATORS = {"elu": "Elu", "relu": "Relu", "tanh": "Tanh"}
METADATA = ("env_id", "env_settings", "horizon", "goal", "observations", "low", "high", "choices", "features", "run")


def write_onnx(portable: Portable, folder: Path) -> None:
    """`policy.onnx` of one agent: observation (n, d) to mean, log_std (or logits) and action."""
    need("onnx", "onnx", "onnx")
    write_policy(portable, folder, ("play_onnx", "play.py"))
    graph = _Graph()
    policy, facts = portable.policy, portable.facts
    inputs = policy.inputs
    seen = "observation"
    if inputs.frame_weight is not None and inputs.frame_bias is not None:
        seen = graph.gemm("frame", seen, inputs.frame_weight, inputs.frame_bias)
    seen = graph.normalised(seen, inputs.mean, inputs.scale, facts["limit"])
    linear = [layer for layer in policy.layers if isinstance(layer, nn.Linear)]
    for index, layer in enumerate(linear):
        seen = graph.gemm(f"layer_{index}", seen, layer.weight, layer.bias)
        if index < len(linear) - 1:
            seen = graph.add(OPERATORS[facts["activation"]], f"hidden_{index}", seen)
    graph.actions(seen, facts)
    graph.write(folder / "policy.onnx", facts, ["observation"])
    use = (
        "Inputs of `policy.onnx`: `observation` (n, d). Outputs: `mean` and `log_std` of raw actions (or `logits`),\n"
        "and `action`, the environment's, at the middle of the distribution. `python play.py` plays an episode."
    )
    write_readme(folder, facts, "A policy as ONNX", use, "onnxruntime")


def write_population_onnx(source: Source, first: Portable, folder: Path) -> None:
    """`policy.onnx` of all agents: observation (n, d) and agent (n,), an index for every row."""
    need("onnx", "onnx", "onnx")
    write_policy(first, folder, ("play_onnx", "play.py"))
    graph, population = _Graph(), source.population
    facts = first.facts | {"agents": population.agents, "agent": None}
    seen = "observation"
    if first.facts["framed"]:
        weights, biases = _frames(population)
        seen = graph.per_agent("frame", seen, weights, biases)
    inputs = first.policy.inputs
    seen = graph.normalised(seen, inputs.mean, inputs.scale, facts["limit"])
    for index, (weight, bias) in enumerate(zip(population.trunk_weights, population.trunk_biases, strict=True)):
        seen = graph.gemm(f"trunk_{index}", seen, weight.T, bias)
        seen = graph.add(OPERATORS[facts["activation"]], f"trunk_hidden_{index}", seen)
    layers = {name: layer.detach() for name, layer in population.agents_layers().items()}
    seen = graph.per_agent("adapter", seen, layers["adapter_weight"], layers["adapter_bias"][:, 0])
    seen = graph.add(OPERATORS[facts["activation"]], "adapter_hidden", seen)
    output_weight, output_bias = layers["output_weight"], layers["output_bias"]
    if population.frames is not None:
        output_weight, output_bias = (population.frames.outputs(one) for one in (output_weight, output_bias))
    seen = graph.per_agent("output", seen, output_weight, output_bias[:, 0])
    graph.actions(seen, facts)
    graph.write(folder / "policy.onnx", facts, ["observation", "agent"])
    use = (
        "Inputs of `policy.onnx`: `observation` (n, d) and `agent` (n,), an index for every row. Outputs: `mean` and\n"
        "`log_std` of raw actions (or `logits`), and `action`, the environment's. `python play.py --agent 1` plays."
    )
    write_readme(folder, facts, "A population as ONNX", use, "onnxruntime")


class _Graph:
    """Nodes and constants, in order."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: dict[str, list[int | str]] = {}

    def add(self, operator: str, name: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name: str, values: torch.Tensor | NDArray[Any] | np.float32) -> str:
        from onnx import numpy_helper

        array = values.detach().numpy() if isinstance(values, torch.Tensor) else values
        self.constants.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def gemm(self, name: str, seen: str, weight: torch.Tensor, bias: torch.Tensor) -> str:
        """A layer with `weight` (outputs, inputs)."""
        named = self.constant(f"{name}.weight", weight), self.constant(f"{name}.bias", bias)
        return self.add("Gemm", name, seen, *named, transB=1)

    def per_agent(self, name: str, seen: str, weights: torch.Tensor, biases: torch.Tensor) -> str:
        """Every row through the layer of its agent: `weights` (m, inputs, outputs), `biases` (m, outputs)."""
        weight = self.add("Gather", f"{name}_weight", self.constant(f"{name}.weight", weights), "agent")
        bias = self.add("Gather", f"{name}_bias", self.constant(f"{name}.bias", biases), "agent")
        axis = self.constant(f"{name}.axis", np.array([1]))
        row = self.add("Unsqueeze", f"{name}_row", seen, axis)
        product = self.add("Squeeze", f"{name}_product", self.add("MatMul", f"{name}_matmul", row, weight), axis)
        return self.add("Add", name, product, bias)

    def normalised(self, seen: str, mean: torch.Tensor, scale: torch.Tensor, limit: float | None) -> str:
        if limit is None:
            return seen
        centred = self.add("Sub", "centred", seen, self.constant("normaliser.mean", mean))
        scaled = self.add("Mul", "scaled", centred, self.constant("normaliser.scale", scale))
        ends = (
            self.constant(f"normaliser.{end}", np.float32(sign * limit)) for end, sign in (("low", -1), ("high", 1))
        )
        return self.add("Clip", "normalised", scaled, *ends)

    def actions(self, seen: str, facts: dict[str, Any]) -> None:
        """The outputs: of a Gaussian mean, log_std and the squashed mean, else logits and the likeliest action."""
        if facts["discrete"]:
            self.add("Identity", "logits", seen)
            self.outputs = {"logits": ["n", facts["actions"]], "action": ["n"]}
            if facts["choices"]:
                self._choices(facts["choices"])
            else:
                self.add("ArgMax", "action", "logits", axis=-1, keepdims=0)
            return
        from onnx import helper

        self.nodes.append(helper.make_node("Split", [seen], ["mean", "free_log_std"], name="parts", axis=-1))
        low_std, high_std = (np.float32(math.log(std)) for std in facts["std_range"])
        self.add(
            "Clip", "log_std", "free_log_std", self.constant("std.low", low_std), self.constant("std.high", high_std)
        )
        low, high = (np.array(facts[end], np.float32) for end in ("low", "high"))
        shape: list[int | str] = ["n", facts["actions"]]
        self.outputs = {"mean": shape, "log_std": shape, "action": shape}
        if facts["clips"]:
            least = self.add("Max", "not_below", "mean", self.constant("action.low", low))
            self.add("Min", "action", least, self.constant("action.high", high))
            return
        half = self.constant("half", np.float32(0.5))
        within = self.add("Add", "within", self.add("Mul", "halved", self.add("Tanh", "squashed", "mean"), half), half)
        stretched = self.add("Mul", "stretched", within, self.constant("action.range", high - low))
        self.add("Add", "action", stretched, self.constant("action.low", low))

    def _choices(self, choices: list[int]) -> None:
        """The likeliest action of every choice, (n, choices)."""
        from onnx import helper

        parts = [f"logits_{index}" for index in range(len(choices))]
        sizes = self.constant("choices", np.array(choices, np.int64))
        self.nodes.append(helper.make_node("Split", ["logits", sizes], parts, name="by_choice", axis=-1))
        chosen = [self.add("ArgMax", f"{part}_action", part, axis=-1, keepdims=1) for part in parts]
        self.add("Concat", "action", *chosen, axis=-1)
        self.outputs["action"] = ["n", len(choices)]

    def write(self, path: Path, facts: dict[str, Any], inputs: list[str]) -> None:
        import onnx
        from onnx import TensorProto, helper

        shapes: dict[str, tuple[int, list[int | str]]] = {
            "observation": (TensorProto.FLOAT, ["n", facts["observation_size"]]),
            "agent": (TensorProto.INT64, ["n"]),
        }
        given = [helper.make_tensor_value_info(name, *shapes[name]) for name in inputs]
        kinds = {"action": TensorProto.INT64 if facts["discrete"] else TensorProto.FLOAT}
        told = [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
            for name, shape in self.outputs.items()
        ]
        graph = helper.make_graph(self.nodes, "policy", given, told, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
        model.producer_name, model.producer_version = "kmyriad", version()
        kept = {name: facts[name] for name in (*METADATA, "agent")} | {"agents": facts.get("agents", 1)}
        helper.set_model_props(model, {name: json.dumps(value) for name, value in kept.items()})
        onnx.checker.check_model(model, full_check=True)
        onnx.save_model(model, str(path))


def _frames(population: Population) -> tuple[torch.Tensor, torch.Tensor]:
    """(m, d, d) and (m, d), what each agent sees of an observation, as a layer."""
    frames = [population.agent(index).layers[0] for index in range(population.agents)]
    linear = [frame for frame in frames if isinstance(frame, nn.Linear)]
    return torch.stack([one.weight.detach().T for one in linear]), torch.stack([one.bias.detach() for one in linear])
