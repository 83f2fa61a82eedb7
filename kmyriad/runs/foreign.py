"""Policies that were trained elsewhere, as a population of one: where a jump-start can begin.

Read are checkpoints of Stable-Baselines3 (PPO and SAC, .zip), rsl_rl (.pt), skrl (.pt, of models exported from here),
ONNX files of plain networks, and exported weights (.safetensors). Nothing in them can run: torch reads tensors and
plain containers alone (`weights_only`, whose known hole was closed in torch 2.6, the lowest version allowed), and what
Stable-Baselines3 pickles beside them is never opened.
"""

import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor

from kmyriad.errors import UsageError, first_line
from kmyriad.population.clipping import ClippedActions
from kmyriad.population.distributions import ActionSpec
from kmyriad.population.frames import Frames
from kmyriad.population.network import ACTIVATIONS
from kmyriad.population.normaliser import LIMIT, SMALLEST_VARIANCE, Normaliser
from kmyriad.population.population import Population
from kmyriad.runs.files import os_errors, read_file, read_json

LARGEST = 1_000_000_000
"""Bytes of a file that is read."""
RSL_RL_EPSILON = 0.01
"""What rsl_rl's normaliser adds to deviations."""
SEEN = 1e6
"""Observations that an imported normaliser counts as having seen: it moves slowly from then on."""
STD_OF_NONE = 0.2
"""Deviation of raw actions where a file has none: ONNX files of other libraries hold the mean alone."""
WIDEST = (math.exp(-20), math.exp(2))
"""Deviations that Stable-Baselines3's SAC allows; PPO's and rsl_rl's fit in."""


@dataclass(frozen=True)
class Foreign:
    """A plain network: linear layers with one activation between them."""

    layers: list[tuple[Tensor, Tensor]]
    """Weights (outputs, inputs) and biases (outputs,). The last gives means, or means and log-deviations, or logits."""
    activation: str
    log_std: Tensor | None = None
    """(a,), where all states have the same; else the last layer gives it (or actions are discrete)."""
    std_range: tuple[float, float] = WIDEST
    clips: bool = True
    """Whether raw actions are cut off at the range, not squashed into it."""
    inputs: dict[str, Tensor] = field(default_factory=dict)
    """`mean` and `scale`, and perhaps `frame_weight` and `frame_bias`, of what comes before the layers."""
    limit: float | None = None
    """Where normalised inputs are cut off."""


def read_policy(path: Path, observation_size: int, actions: ActionSpec, activation: str = "auto") -> Population:
    """The policy in a file as a population of one agent; UsageError if it is none for such observations and actions.

    `activation` "auto" takes what the file tells, or what its library does by default.
    """
    with os_errors(f"read the policy {path}"):
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path} has more than {LARGEST:,} bytes, which no policy has; give another file")
        data = read_file(path)
    try:
        foreign = _parsed(path, data)
        if activation != "auto":
            foreign = replace(foreign, activation=activation)
        return _population(path, foreign, observation_size, actions)
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # what a file made on purpose can raise is anyone's guess
        what = f"{type(error).__name__}: {first_line(error)[:100]}"
        raise UsageError(
            f"{path} holds no policy that can be read ({what}); give a checkpoint of SB3 or rsl_rl, an ONNX"
            " file or exported weights"
        ) from error


def _parsed(path: Path, data: bytes) -> Foreign:
    if path.suffix == ".onnx":
        return _from_onnx(path, data)
    if path.suffix == ".safetensors":
        return _ours(path, load_safetensors(data), read_json(path.with_name("policy.json")))
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if "policy.pth" in archive.namelist():
                return _from_sb3(path, archive)
    return _from_torch(path, _tensors(data))


def _tensors(data: bytes) -> Any:
    """What torch stored, of tensors and plain containers alone."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


# Stable-Baselines3


def _from_sb3(path: Path, archive: zipfile.ZipFile) -> Foreign:
    """`policy.pth` has the tensors; `data` is JSON, whose pickled parts have readable ones beside them."""
    tensors = _tensors(_member(path, archive, "policy.pth"))
    settings = json.loads(_member(path, archive, "data")).get("policy_kwargs", {})
    is_sac = "actor.mu.weight" in tensors
    if is_sac:
        hidden = _stack(tensors, "actor.latent_pi")
        last = tuple(torch.cat([tensors[f"actor.{name}.{part}"] for name in ("mu", "log_std")]) for part in PARTS)
        seen = "actor.features_extractor.inputs."
    elif "action_net.weight" in tensors:
        hidden = _stack(tensors, "mlp_extractor.policy_net")
        last = tuple(tensors[f"action_net.{part}"] for part in PARTS)
        seen = "features_extractor.inputs."
    else:
        raise UsageError(f"{path} is no policy of PPO or SAC of Stable-Baselines3; give one of these")
    inputs = _under(seen, tensors)
    if not inputs and any("features_extractor" in name for name in tensors):
        raise UsageError(f"{path} has a features extractor of its own, which cannot be read; give a plain MlpPolicy")
    log_std = tensors.get("log_std")
    if log_std is not None and log_std.dim() != 1:
        raise UsageError(f"{path} explores with gSDE, which has no match here; train it without use_sde")
    low, high = settings.get("log_std_range", [math.log(std) for std in WIDEST])
    return Foreign(
        [*hidden, (last[0], last[1])],
        _activation(str(settings.get("activation_fn", "ReLU" if is_sac else "Tanh")), path),
        log_std,
        (math.exp(low), math.exp(high)),
        clips=not is_sac and settings.get("clips", True),
        inputs=inputs,
        limit=settings.get("features_extractor_kwargs", {}).get("limit"),
    )


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise UsageError(f"{name} in {path} has more than {LARGEST:,} bytes, which no policy has; give another file")
    return data


# rsl_rl and skrl


def _from_torch(path: Path, stored: Any) -> Foreign:
    if not isinstance(stored, Mapping):
        raise UsageError(f"{path} holds a {type(stored).__name__} and no checkpoint; give one of SB3, rsl_rl or skrl")
    if "actor_state_dict" in stored:  # rsl_rl 4 and later
        return _from_rsl_rl(path, stored["actor_state_dict"], "mlp", "distribution.", "_param")
    if "model_state_dict" in stored:  # rsl_rl before
        actor = {
            name.replace("actor_obs_normalizer", "obs_normalizer"): x for name, x in stored["model_state_dict"].items()
        }
        before = {f"obs_normalizer.{name}": tensor for name, tensor in stored.get("obs_norm_state_dict", {}).items()}
        return _from_rsl_rl(path, before | actor, "actor", "", "")
    if isinstance(stored.get("policy"), Mapping):  # skrl
        return _ours(path, stored["policy"], read_json(path.with_name("policy.json")))
    raise UsageError(f"{path} is no checkpoint of rsl_rl or skrl: it has {', '.join(map(str, [*stored][:5]))}")


def _from_rsl_rl(path: Path, tensors: Mapping[str, Tensor], network: str, before: str, after: str) -> Foreign:
    layers = _stack(tensors, network)
    inputs = _under("obs_normalizer.", tensors)
    if "scale" in inputs:  # exported from here: frozen inputs, squashed actions
        facts = read_json(path.with_name("policy.json"))
        std_range = tuple(facts["std_range"])
        return Foreign(layers, facts["activation"], None, std_range, facts["clips"], inputs, facts["limit"])
    if inputs:
        inputs = {"mean": inputs["_mean"].flatten(), "scale": 1 / (inputs["_std"].flatten() + RSL_RL_EPSILON)}
    if f"{before}log_std{after}" in tensors:
        log_std = tensors[f"{before}log_std{after}"]
    elif f"{before}std{after}" in tensors:
        log_std = tensors[f"{before}std{after}"].log()
    else:
        raise UsageError(
            f"{path} has a deviation for every state, and does not tell of what kind; use a scalar or log std"
        )
    return Foreign(layers, "elu", log_std, inputs=inputs)


# Exported from here


def _ours(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Foreign:
    """Weights under whatever prefix, with policy.json beside them."""
    first = next((name for name in tensors if name.endswith("layers.0.weight") and "value" not in name), None)
    if first is None:
        raise UsageError(f"{path} holds no policy that kmyriad exported; give policy.safetensors of an exported folder")
    prefix = first.removesuffix("layers.0.weight")
    named = _under(prefix, tensors)
    std_range, clips = tuple(facts["std_range"]), bool(facts.get("clips", False))
    layers, inputs = _stack(named, "layers"), _under("inputs.", named)
    return Foreign(layers, facts["activation"], None, std_range, clips, inputs, facts["limit"])


# ONNX


def _from_onnx(path: Path, data: bytes) -> Foreign:
    """A chain of plain layers from the first input to the first output."""
    try:
        import onnx
        from onnx import numpy_helper
    except ModuleNotFoundError:
        raise UsageError(
            f"to read {path} the package onnx is needed, which is not installed; install it with: pip install"
            " 'kmyriad[onnx]'"
        ) from None
    model = onnx.load_model_from_string(data)
    graph = model.graph
    known = {one.name: torch.from_numpy(numpy_helper.to_array(one).copy()) for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            known[node.output[0]] = torch.from_numpy(numpy_helper.to_array(node.attribute[0].t).copy())
    if model.producer_name == "kmyriad":
        return _from_our_onnx(path, graph, known)
    return _Chain(path, known).read(graph)


def _from_our_onnx(path: Path, graph: Any, known: dict[str, Tensor]) -> Foreign:
    if len(graph.input) != 1:
        raise UsageError(f"{path} holds a whole population; export one agent, or jump-start from the run itself")
    count = sum(name.startswith("layer_") and name.endswith(".weight") for name in known)
    layers = [(known[f"layer_{index}.weight"], known[f"layer_{index}.bias"]) for index in range(count)]
    inputs = {part: known[f"normaliser.{part}"] for part in ("mean", "scale") if f"normaliser.{part}" in known}
    size = layers[0][0].shape[1]
    if "frame.weight" in known:
        still = {"mean": torch.zeros(size), "scale": torch.ones(size)}
        inputs = still | inputs | {"frame_weight": known["frame.weight"], "frame_bias": known["frame.bias"]}
    limit = float(known["normaliser.high"]) if "normaliser.high" in known else None
    activation = next((node.op_type for node in graph.node if node.name == "hidden_0"), "Elu")
    std_range = (math.exp(known["std.low"]), math.exp(known["std.high"])) if "std.low" in known else WIDEST
    return Foreign(
        layers, activation.lower(), None, std_range, "squashed" not in {n.name for n in graph.node}, inputs, limit
    )


class _Chain:
    """Reads one operator after the other."""

    def __init__(self, path: Path, known: dict[str, Tensor]) -> None:
        self.path, self.known = path, known
        self.layers: list[tuple[Tensor, Tensor]] = []
        self.kinds: list[str] = []
        self.scale: Tensor | float = 1.0
        self.shift: Tensor | float = 0.0
        """What comes before the first layer: observations times scale plus shift."""
        self.pending = ""
        """An activation that the next layer follows, or the last one that squashes."""
        self.clips = True

    def read(self, graph: Any) -> Foreign:
        value, wanted = graph.input[0].name, graph.output[0].name
        for node in graph.node:
            if value in node.input and node.op_type != "Constant":
                self._take(node, value)
                value = node.output[0]
            if value == wanted:
                break
        if value != wanted or not self.layers:
            raise self._refused("its nodes are no single chain of layers")
        if len({*self.kinds}) > 1:
            raise self._refused(f"it has several activations ({', '.join(sorted({*self.kinds}))})")
        squashes = self.pending == "Tanh"
        if self.pending and not squashes:
            raise self._refused(f"it ends with {self.pending}")
        size = self.layers[0][0].shape[1]
        inputs = {"mean": torch.zeros(size), "scale": torch.ones(size)}
        (weight, bias), *others = self.layers  # what comes before goes into the first layer
        scale, shift = (torch.as_tensor(one).flatten().expand(size) for one in (self.scale, self.shift))
        first = (weight * scale, bias + weight @ shift.float())
        log_std = torch.full((self.layers[-1][0].shape[0],), math.log(STD_OF_NONE))
        kind = _activation(self.kinds[0] if self.kinds else "Elu", self.path)
        return Foreign([first, *others], kind, log_std, clips=not squashes, inputs=inputs)

    def _take(self, node: Any, value: str) -> None:
        constants = [self.known[name] for name in node.input if name in self.known]
        attributes = {one.name: one.f if one.type == 1 else one.i for one in node.attribute}
        match node.op_type:
            case "Gemm":
                weight = constants[0] if attributes.get("transB") else constants[0].T
                bias = constants[1] if len(constants) > 1 else torch.zeros(weight.shape[0])
                self._layer(weight * attributes.get("alpha", 1.0), bias * attributes.get("beta", 1.0))
            case "MatMul":
                self._layer(constants[0].T, torch.zeros(constants[0].shape[1]))
            case "Elu" | "Relu" | "Tanh" if self.layers and not self.pending:
                self.pending = node.op_type
            case "Add" if self.layers and not self.pending:
                weight, bias = self.layers[-1]
                self.layers[-1] = (weight, bias + constants[0].flatten())
            case "Add" | "Sub" | "Mul" | "Div" if not self.layers and node.input[0] == value:
                self._before(node.op_type, constants[0].flatten())
            case "Identity" | "Flatten" | "Cast" | "Reshape":
                pass
            case "Clip" if self.layers:
                pass  # at the end: the environment's range
            case other:
                raise self._refused(f"it holds {other} where a plain network has none")

    def _layer(self, weight: Tensor, bias: Tensor) -> None:
        if self.layers and not self.pending:
            raise self._refused("two of its layers have no activation between them")
        if self.pending:
            self.kinds.append(self.pending)
        self.pending = ""
        self.layers.append((weight.float(), bias.float()))

    def _before(self, operator: str, constant: Tensor) -> None:
        if operator in ("Add", "Sub"):
            self.shift = self.shift + (constant if operator == "Add" else -constant)
        else:
            factor = constant if operator == "Mul" else 1 / constant
            self.scale, self.shift = self.scale * factor, self.shift * factor

    def _refused(self, why: str) -> UsageError:
        return UsageError(f"{self.path} is no plain network: {why}; give one of linear layers with elu, relu or tanh")


# From plain layers to a population


PARTS = ("weight", "bias")


def _stack(tensors: Mapping[str, Tensor], prefix: str) -> list[tuple[Tensor, Tensor]]:
    """Layers `prefix.0.weight` and so on, in order."""
    places = sorted(
        int(name.split(".")[-2])
        for name in tensors
        if name.startswith(f"{prefix}.") and name.endswith(".weight") and name.split(".")[-2].isdecimal()
    )
    return [
        (tensors[f"{prefix}.{place}.weight"].float(), tensors[f"{prefix}.{place}.bias"].float()) for place in places
    ]


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _activation(told: str, path: Path) -> str:
    """`<class 'torch.nn.modules.activation.ELU'>` or `Elu` to `elu`."""
    name = told.rstrip("'>").split(".")[-1].lower()
    if name not in ACTIVATIONS:
        raise UsageError(f"{path} has the activation {name!r}; only {', '.join(ACTIVATIONS)} can be read")
    return name


def _population(path: Path, foreign: Foreign, observation_size: int, actions: ActionSpec) -> Population:
    layers = _with_log_std(foreign, actions)
    seen, given = layers[0][0].shape[1], layers[-1][0].shape[0]
    if seen != observation_size or given != actions.outputs:
        numbers = given if actions.is_discrete else given // 2
        raise UsageError(
            f"{path} maps {seen} observations to {numbers} actions, and the environment has {observation_size} and"
            f" {actions.size}; give a policy that was trained in it"
        )
    if len(layers) < 2:
        raise UsageError(f"{path} has no hidden layer; only networks with at least one can be read")
    if foreign.clips and not actions.is_discrete:
        actions = ClippedActions(actions.size, False, actions.low, actions.high)
    *hidden, output = layers
    *trunk, adapter = hidden
    keeps_normaliser = foreign.limit is not None
    if not keeps_normaliser and not _has_frame(foreign):  # exactly the same, folded into the first layer
        hidden[0] = _folded(hidden[0], foreign.inputs)
        *trunk, adapter = hidden
    if foreign.limit not in (None, LIMIT):
        raise UsageError(f"{path} cuts observations off at {foreign.limit:g}, and only {LIMIT:g} can be read")
    population = Population(
        1,
        observation_size,
        actions,
        trunk_hidden=[weight.shape[0] for weight, _ in trunk],
        agent_hidden=adapter[0].shape[0],
        activation=foreign.activation,
        initial_std=math.sqrt(foreign.std_range[0] * foreign.std_range[1]),
        std_range=foreign.std_range,
        normalises=keeps_normaliser,
        frames=_frames(path, foreign.inputs, actions.size) if _has_frame(foreign) else None,
    )
    state = {f"trunk_weights.{index}": weight.T for index, (weight, _) in enumerate(trunk)}
    state |= {f"trunk_biases.{index}": bias for index, (_, bias) in enumerate(trunk)}
    for name, (weight, bias) in {"adapter": adapter, "output": output}.items():
        state |= {f"{name}_weight": weight.T[None], f"{name}_bias": bias[None, None]}
    with torch.no_grad():
        for name, tensor in state.items():
            population.get_parameter(name).copy_(tensor)
    if isinstance(population.normaliser, Normaliser):
        population.normaliser.count.fill_(SEEN)
        population.normaliser.mean.copy_(foreign.inputs["mean"])
        population.normaliser.variance.copy_(foreign.inputs["scale"].double() ** -2 - SMALLEST_VARIANCE)
    if not all(torch.isfinite(tensor).all() for tensor in population.state_dict().values()):
        raise UsageError(f"{path} holds numbers that are not finite; give a policy that did not diverge")
    return population


def _with_log_std(foreign: Foreign, actions: ActionSpec) -> list[tuple[Tensor, Tensor]]:
    """The layers, the last of which gives log-deviations too: constant ones where all states have the same."""
    *others, (weight, bias) = foreign.layers
    if {*actions.choices} == {2} and len(bias) == len(actions.choices):  # bits of Stable-Baselines3: how likely is a 1
        return [*others, (_with_zeros(weight), _with_zeros(bias))]
    if actions.is_discrete or foreign.log_std is None:
        return foreign.layers
    log_std = foreign.log_std.flatten().float().expand(len(bias))
    return [*others, (torch.cat([weight, torch.zeros_like(weight)]), torch.cat([bias, log_std]))]


def _with_zeros(ones: Tensor) -> Tensor:
    """(b, ...) to (2b, ...): nought before each."""
    return torch.stack([torch.zeros_like(ones), ones], dim=1).flatten(0, 1)


def _folded(layer: tuple[Tensor, Tensor], inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """A layer that normalises by itself."""
    if not inputs:
        return layer
    weight = layer[0] * inputs["scale"]
    return weight, layer[1] - weight @ inputs["mean"]


def _has_frame(foreign: Foreign) -> bool:
    return "frame_weight" in foreign.inputs


def _frames(path: Path, inputs: Mapping[str, Tensor], action_size: int) -> Frames:
    """The frame that a layer in front of the network stands for: another order, and signs."""
    weight, bias = inputs["frame_weight"], inputs["frame_bias"]
    size = len(weight)
    frames = Frames.straight(1, size, action_size)
    frames.input_order[0] = weight.abs().argmax(dim=1)
    frames.input_signs[0] = weight.gather(1, frames.input_order[0, :, None])[:, 0].sign()
    if bias.any() or not torch.allclose(frames.inputs(torch.eye(size)[None])[0].T, weight, atol=1e-6):
        raise UsageError(f"the frame in {path} is none of kmyriad's; give the policy without it")
    return frames
