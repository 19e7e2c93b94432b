"""Networks on a processor with fewer passes over memory: traced, and what follows a convolution made part of it.

What is rewritten wherever it occurs, changing numbers in their last bits only:

- an addition and a ReLU after a convolution join it (oneDNN calls this post-operations),
- a 1x1 convolution of concatenated maps becomes a sum of convolutions, without the concatenation; a map brought to unit
  length beforehand is divided by its length afterwards, when it has fewer channels,
- a bilinear enlargement of few channels, and an addition after it, become a matrix product and a convolution.

A network that cannot be traced, or that gives other numbers when rewritten, stays as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from posfeat.networks.enlargement import CONVOLUTION, FEW_CHANNELS, enlarge

_TOLERANCE = 0.03  # of the largest number: 16-bit numbers are rounded at other places than before
_SHORTEST = 1e-12  # length that a map is divided by at least, as in torch's normalize


def fuse(network: nn.Module, *probe: Any) -> nn.Module:
    """The network in fewer steps, if it then gives the same numbers on ``probe``; otherwise the network itself."""
    if not torch.backends.mkldnn.is_available() or not hasattr(CONVOLUTION, "binary"):
        return network
    try:
        traced = fx.symbolic_trace(network)
        with torch.no_grad():
            _Shapes(traced).run(*probe)
            for rewrite in (_drop_identities, _split_concatenations, _fuse_enlargements, _fuse_convolutions):
                rewrite(traced)
                traced.graph.eliminate_dead_code()
            traced.recompile()
            expected, found = _tensors(network(*probe)), _tensors(traced(*probe))
    except Exception:  # tracing runs the network's own code on stand-ins, which may fail in any way
        return network
    alike = all(
        bool((a.float() - b.float()).abs().amax() <= _TOLERANCE * a.float().abs().amax())
        for a, b in zip(expected, found, strict=True)
    )
    return traced if alike else network


class _Kind(NamedTuple):
    """What is known of a map before there is one."""

    shape: torch.Size
    dtype: torch.dtype


class _Shapes(fx.Interpreter):
    """Notes at each node what it gave. Torch's own ShapeProp does, but takes a second to import."""

    def run_node(self, node: fx.Node) -> Any:
        result = super().run_node(node)
        if isinstance(result, Tensor):
            node.meta["kind"] = _Kind(result.shape, result.dtype)
        return result


class FusedConv(nn.Module):
    """Convolution, then the addition of another map, then ReLU; the last two if wanted."""

    def __init__(self, conv: nn.Conv2d, relu: bool) -> None:
        super().__init__()
        self.weight, self.bias = conv.weight, conv.bias
        self.geometry = (list(conv.padding), list(conv.stride), list(conv.dilation), conv.groups)
        self.activation = "relu" if relu else None

    def forward(
        self, x: Annotated[Tensor, "batch c h w"], other: Annotated[Tensor, "batch c2 h2 w2"] | None = None
    ) -> Annotated[Tensor, "batch c2 h2 w2"]:
        parts: tuple[Any, ...] = (self.weight, self.bias, *self.geometry)
        if other is None:
            return CONVOLUTION(x, *parts, self.activation or "none", [], "")
        return CONVOLUTION.binary(x, other, *parts, "add", 1.0, self.activation, [], None)


def over_length(x: Annotated[Tensor, "batch c h w"], factor: float) -> Annotated[Tensor, "batch 1 h w"]:
    """A factor over each pixel's length."""
    return factor / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(_SHORTEST)


def _drop_identities(traced: fx.GraphModule) -> None:
    """Without layers that hand their input on: folded norms, detach, conversions to the type that it already has."""
    for node in list(traced.graph.nodes):
        idle = node.op == "call_module" and isinstance(traced.get_submodule(node.target), nn.Identity)
        if node.op == "call_method":
            idle = node.target == "detach" or (
                node.target in ("to", "float", "contiguous")
                and _dtype(node) is not None
                and _dtype(node) == _dtype(node.args[0])
            )
        if idle:
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)


def _split_concatenations(traced: fx.GraphModule) -> None:
    """conv(cat(a, b)) as conv(a) + conv(b), and conv(c a / |a|) as conv(a) c / |a|."""
    for node in list(traced.graph.nodes):
        conv, cat = _convolution(traced, node), node.args[0] if node.args else None
        if conv is None or not _calls(cat, torch.cat) or len(cat.users) > 1 or conv.kernel_size != (1, 1):
            continue
        parts = cat.args[0]
        channels = [part.meta["kind"].shape[1] for part in parts]
        pieces = zip(parts, conv.weight.split(channels, dim=1), strict=True)
        unit = [(_unit_length(part), part, weight) for part, weight in pieces]
        if all(found is not None for found, _, _ in unit) or conv.stride != (1, 1) or conv.groups != 1:
            continue
        total: Any = None
        with traced.graph.inserting_before(node):
            for number, (found, part, weight) in enumerate(sorted(unit, key=lambda piece: piece[0] is None)):
                last = number == len(unit) - 1  # not of unit length: there is such a one
                name = f"{node.name}_part{number}"
                traced.add_submodule(name, _one_by_one(weight, conv.bias if last else None))
                source, factor = found or (part, None)
                mixed = traced.graph.call_module(name, (source,))
                mixed.meta = node.meta
                if found is not None:
                    scale = traced.graph.call_function(over_length, (source, factor))
                    mixed = traced.graph.call_function(operator.mul, (mixed, scale))
                if number:
                    mixed = traced.graph.call_function(operator.add, (total, mixed))
                mixed.meta = node.meta
                total = mixed
        node.replace_all_uses_with(mixed)
        traced.graph.erase_node(node)


def _fuse_enlargements(traced: fx.GraphModule) -> None:
    for node in list(traced.graph.nodes):
        if not _calls(node, F.interpolate) or node.kwargs["mode"] != "bilinear" or node.kwargs["align_corners"]:
            continue
        few = "kind" in node.meta and node.meta["kind"].shape[1] <= FEW_CHANNELS
        if not few or isinstance(node.kwargs["scale_factor"], (tuple, list)):
            continue
        sizes = (node.kwargs["size"], node.kwargs["scale_factor"])
        addition = _only_user(node, operator.add, torch.add)
        other = _other_operand(addition, node)
        target = node if addition is None or other is None else addition
        with traced.graph.inserting_before(target):
            new = traced.graph.call_function(enlarge, (node.args[0], other, *sizes))
        new.meta = target.meta
        target.replace_all_uses_with(new)
        traced.graph.erase_node(target)


def _fuse_convolutions(traced: fx.GraphModule) -> None:
    for node in reversed(list(traced.graph.nodes)):  # of two convolutions that are added the later one takes the other
        conv = _convolution(traced, node)
        if conv is None or _dtype(node.args[0]) != conv.weight.dtype:
            continue
        end, other = node, None
        addition = _only_user(node, operator.add, torch.add)
        if addition is not None:
            other = _other_operand(addition, node)
            end = node if other is None else addition
        relu = _only_user(end, F.relu, torch.relu) or _relu_layer(traced, end)
        end = relu or end
        if end is node:
            continue
        name = f"{node.name}_fused"
        traced.add_submodule(name, FusedConv(conv, relu is not None))
        with traced.graph.inserting_before(end):
            new = traced.graph.call_module(name, (node.args[0],) if other is None else (node.args[0], other))
        new.meta = end.meta
        end.replace_all_uses_with(new)
        for done in dict.fromkeys((end, addition if other is not None else end, node)):
            traced.graph.erase_node(done)


def _one_by_one(weight: Tensor, bias: Tensor | None) -> nn.Conv2d:
    conv = nn.Conv2d(weight.shape[1], weight.shape[0], 1, bias=bias is not None)
    conv.weight = nn.Parameter(weight.contiguous(memory_format=torch.channels_last), requires_grad=False)
    conv.bias = bias if bias is None else nn.Parameter(bias, requires_grad=False)
    return conv


def _unit_length(node: Any) -> tuple[fx.Node, Any] | None:
    """What is brought to a length along the channels, and to which, if that is how a map comes about."""
    factor: Any = 1.0
    if _calls(node, operator.mul) and len(node.users) == 1:
        node, factor = node.args
        if isinstance(factor, fx.Node) and "kind" in factor.meta:
            return None
    if not _calls(node, F.normalize) or len(node.users) > 1:
        return None
    plain = node.kwargs.get("p", 2.0) == 2.0 and node.kwargs.get("dim", 1) == 1
    return (node.args[0], factor) if plain else None


def _convolution(traced: fx.GraphModule, node: fx.Node) -> nn.Conv2d | None:
    """The layer of a node that is a convolution with zero padding, in a type that the processor's library takes."""
    layer = traced.get_submodule(str(node.target)) if node.op == "call_module" else None
    if not isinstance(layer, nn.Conv2d) or isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        return None
    return layer if layer.weight.dtype in (torch.float32, torch.bfloat16) else None


def _calls(node: Any, *functions: Callable[..., Any]) -> TypeGuard[Any]:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in functions


def _only_user(node: fx.Node, *functions: Callable[..., Any]) -> fx.Node | None:
    user = next(iter(node.users), None)
    return user if len(node.users) == 1 and _calls(user, *functions) else None


def _relu_layer(traced: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    user = next(iter(node.users), None)
    if user is None or len(node.users) > 1 or user.op != "call_module":
        return None
    return user if isinstance(traced.get_submodule(str(user.target)), nn.ReLU) else None


def _other_operand(addition: fx.Node | None, node: fx.Node) -> Any:
    """What is added to a node's map, if that is another map of the same shape and type."""
    if addition is None or len(addition.args) != 2 or addition.kwargs:
        return None
    other = addition.args[1] if addition.args[0] is node else addition.args[0]
    ours, theirs = (n.meta.get("kind") if isinstance(n, fx.Node) else None for n in (node, other))
    if other is node or ours is None or theirs is None:
        return None
    return other if (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype) else None


def _dtype(node: Any) -> torch.dtype | None:
    meta = node.meta.get("kind") if isinstance(node, fx.Node) else None
    return None if meta is None else meta.dtype


def _tensors(value: Any) -> list[Tensor]:
    """The tensors of a network's result."""
    parts = [value] if isinstance(value, Tensor) else list(vars(value).values())
    return [part for part in parts if part is not None]
