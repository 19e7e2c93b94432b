"""Networks on a processor with fewer passes over memory: traced, and what follows a convolution made part of it.

What is rewritten wherever it occurs, changing numbers in their last bits only:

- an addition and a ReLU after a convolution join it (oneDNN calls this post-operations),
- a 1x1 convolution of concatenated maps becomes a sum of convolutions, without the concatenation; a map brought to unit
  length beforehand is divided by its length afterwards, when it has fewer channels,
- a bilinear enlargement of few channels, and an addition after it, become a matrix product and a convolution; one of many
  16-bit channels by 2 becomes weighted means,
- a 1x1 convolution and means over blocks after it become one convolution with a stride,
- a 3x3 convolution to few channels takes pixels in pairs (see pixel_pairs),
- the compact detector's weighted sum is made without large maps of float32 (see weighted_scores),
- weights lie as oneDNN wants them, which otherwise brings them into that order at each use.

A network that cannot be traced, or that gives other numbers when rewritten, stays as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from posfeat.networks.compact import weighted_scores
from posfeat.networks.enlargement import CONVOLUTION, FEW_CHANNELS, double, enlarge
from posfeat.networks.pixel_pairs import apart, is_narrow, pair_kernel
from posfeat.networks.weighted_scores import fast_weighted_scores

_TOLERANCE = 0.03  # of the largest number: 16-bit numbers are rounded at other places than before
_REORDER: Any = getattr(torch.ops.mkldnn, "_reorder_convolution_weight", None)
_SHORTEST = 1e-12  # length that a map is divided by at least, as in torch's normalize


def fuse(network: nn.Module, *probe: Any) -> nn.Module:
    """The network in fewer steps, if it then gives the same numbers on ``probe``; otherwise the network itself."""
    if not torch.backends.mkldnn.is_available() or not hasattr(CONVOLUTION, "binary"):
        return network
    try:
        traced = fx.symbolic_trace(network)
        with torch.no_grad():
            _Shapes(traced).run(*probe)
            for rewrite in _REWRITES:
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
        self.activation = "relu" if relu else None
        self.whole = _Convolution(conv.weight, conv.bias, (conv.padding, conv.stride, conv.dilation, conv.groups))
        self.pairs: _Convolution | None = None
        if is_narrow(conv):
            bias = None if conv.bias is None else conv.bias.repeat(2)
            self.pairs = _Convolution(pair_kernel(conv.weight), bias, ((1, 1), (1, 2), (1, 1), 1))

    def forward(
        self, x: Annotated[Tensor, "batch c h w"], other: Annotated[Tensor, "batch c2 h2 w2"] | None = None
    ) -> Annotated[Tensor, "batch c2 h2 w2"]:
        if other is not None:
            return CONVOLUTION.binary(x, other, *self.whole.parts(x), "add", 1.0, self.activation, [], None)
        if self.pairs is not None and x.shape[3] % 2 == 0:
            return apart(CONVOLUTION(x, *self.pairs.parts(x), self.activation or "none", [], ""))
        return CONVOLUTION(x, *self.whole.parts(x), self.activation or "none", [], "")


class _Convolution:
    """What a convolution is called with, its weight in the order that suits maps of the last size."""

    def __init__(self, weight: Tensor, bias: Tensor | None, geometry: tuple[Any, ...]) -> None:
        self.weight, self.bias, self.geometry = weight, bias, geometry
        self.ordered: tuple[torch.Size | None, Tensor] = (None, weight)  # together, as threads may change them

    def parts(self, x: Annotated[Tensor, "batch c h w"]) -> tuple[Any, ...]:
        size, weight = self.ordered
        if size != x.shape and _REORDER is not None:
            weight = _REORDER(self.weight, *self.geometry, x.shape)
            self.ordered = (x.shape, weight)
        return (weight, self.bias, *self.geometry)


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
        if "kind" not in node.meta or isinstance(node.kwargs["scale_factor"], (tuple, list)):
            continue
        if node.meta["kind"].shape[1] > FEW_CHANNELS:
            if node.kwargs["scale_factor"] == 2 and _dtype(node) == torch.bfloat16:  # of float32 torch is as fast
                node.target, node.args, node.kwargs = double, node.args[:1], {}
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


def _fuse_means(traced: fx.GraphModule) -> None:
    """Means over blocks of a 1x1 convolution as one convolution, which reads as much and writes less."""
    for node in list(traced.graph.nodes):
        conv = _convolution(traced, node.args[0]) if _calls(node, F.avg_pool2d) else None
        size = node.args[1] if len(node.args) == 2 else None
        if conv is None or len(node.args[0].users) > 1 or not isinstance(size, int) or node.kwargs:
            continue
        if (conv.kernel_size, conv.stride, conv.padding) == ((1, 1), (1, 1), (0, 0)):
            blocks = nn.Conv2d(conv.in_channels, conv.out_channels, size, size, groups=conv.groups, bias=False)
            blocks.weight = _constant(conv.weight.repeat(1, 1, size, size) / size**2)
            blocks.bias = conv.bias
            _call_instead(traced, node, f"{node.args[0].name}_means", blocks, node.args[0].args)


def _fuse_weighted_scores(traced: fx.GraphModule) -> None:
    for node in traced.graph.nodes:
        if _calls(node, weighted_scores):
            node.target = fast_weighted_scores


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
        inputs = (node.args[0],) if other is None else (node.args[0], other)
        _call_instead(traced, end, f"{node.name}_fused", FusedConv(conv, relu is not None), inputs)


_REWRITES = (
    _drop_identities, _split_concatenations, _fuse_enlargements, _fuse_means, _fuse_weighted_scores, _fuse_convolutions,
)  # fmt: skip


def _one_by_one(weight: Tensor, bias: Tensor | None) -> nn.Conv2d:
    conv = nn.Conv2d(weight.shape[1], weight.shape[0], 1, bias=bias is not None)
    conv.weight = _constant(weight)
    conv.bias = bias if bias is None else nn.Parameter(bias, requires_grad=False)
    return conv


def _constant(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.contiguous(memory_format=torch.channels_last), requires_grad=False)


def _call_instead(
    traced: fx.GraphModule, node: fx.Node, name: str, layer: nn.Module, arguments: tuple[Any, ...]
) -> fx.Node:
    """Let a new layer give what a node gave."""
    traced.add_submodule(name, layer)
    with traced.graph.inserting_before(node):
        new = traced.graph.call_module(name, arguments)
    new.meta = node.meta
    node.replace_all_uses_with(new)
    traced.graph.erase_node(node)
    return new


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
