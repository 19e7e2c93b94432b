"""Lens distortion: where a point of the plane z = 1 goes on the distorted plane, and back.

Models, parameter names and parameter order are COLMAP's; ``params`` are those that follow focal lengths and principal
point. Pixels of a distorted camera are K times the distorted plane point. The way back is closed where the model
allows it and Newton's method elsewhere, with the exact derivative; points that no plane point is sent to become NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor

NUM_DISTORTION_PARAMS = {
    "SIMPLE_PINHOLE": 0,
    "PINHOLE": 0,
    "SIMPLE_RADIAL": 1,
    "RADIAL": 2,
    "OPENCV": 4,
    "OPENCV_FISHEYE": 4,
    "FULL_OPENCV": 8,
    "FOV": 1,
    "SIMPLE_RADIAL_FISHEYE": 1,
    "RADIAL_FISHEYE": 2,
    "THIN_PRISM_FISHEYE": 8,
    "RAD_TAN_THIN_PRISM_FISHEYE": 12,
    "SIMPLE_DIVISION": 1,
    "DIVISION": 1,
    "SIMPLE_FISHEYE": 0,
    "FISHEYE": 0,
    "EUCM": 2,
}
"""Every model that can be seen as a distorted plane, and how many distortion parameters it has."""

FISHEYE_MODELS = frozenset(name for name in NUM_DISTORTION_PARAMS if name.endswith("FISHEYE"))

_NEWTON_STEPS = 30
_TOLERANCE = 1e-10

Points = Annotated[Tensor, "*batch 2"]


def distort_points(
    model: str, params: tuple[float, ...], xy: Annotated[Tensor, "*batch 2"]
) -> Annotated[Tensor, "*batch 2"]:
    """Distorted plane points of undistorted ones (plane z = 1, both free of units)."""
    if model in FISHEYE_MODELS:
        return _polynomial(model, params, _angle_from_plane(xy))
    if model == "FOV":
        omega = torch.as_tensor(params[0], dtype=xy.dtype, device=xy.device)
        if abs(params[0]) < 1e-9:
            return xy
        return _scale_radius(xy, lambda r: torch.atan(2 * r * torch.tan(omega / 2)) / omega)
    if model in ("SIMPLE_DIVISION", "DIVISION"):
        square = (xy * xy).sum(-1, keepdim=True)
        return 2 * xy / (1 + torch.sqrt(1 - 4 * params[0] * square))
    if model == "EUCM":
        alpha, beta = params
        square = (xy * xy).sum(-1, keepdim=True)
        return xy / (alpha * torch.sqrt(beta * square + 1) + 1 - alpha)
    return _polynomial(model, params, xy)


def undistort_points(
    model: str, params: tuple[float, ...], xy: Annotated[Tensor, "*batch 2"]
) -> Annotated[Tensor, "*batch 2"]:
    """Undistorted plane points of distorted ones; NaN where there is none."""
    if model in FISHEYE_MODELS:
        return _plane_from_angle(_invert_polynomial(model, params, xy))
    if model == "FOV":
        omega = torch.as_tensor(params[0], dtype=xy.dtype, device=xy.device)
        if abs(params[0]) < 1e-9:
            return xy
        behind = xy.norm(dim=-1, keepdim=True) * omega.abs() >= torch.pi / 2
        plane = _scale_radius(xy, lambda r: torch.tan(r * omega) / (2 * torch.tan(omega / 2)))
        return torch.where(behind, torch.nan, plane)
    if model in ("SIMPLE_DIVISION", "DIVISION"):
        denominator = 1 + params[0] * (xy * xy).sum(-1, keepdim=True)
        return torch.where(denominator > 0, xy / denominator, torch.nan)
    if model == "EUCM":
        alpha, beta = params
        square = beta * (xy * xy).sum(-1, keepdim=True)
        depth = (1 - alpha * alpha * square) / (alpha * torch.sqrt(1 - (2 * alpha - 1) * square) + 1 - alpha)
        return torch.where(depth > 0, xy / depth, torch.nan)
    return _invert_polynomial(model, params, xy)


def _polynomial(model: str, params: tuple[float, ...], xy: Points) -> Points:
    """The part of a model that is a polynomial (or a ratio of two) in the coordinates."""
    if not params:
        return xy
    x, y = xy[..., 0], xy[..., 1]
    r2 = x * x + y * y
    if model in ("SIMPLE_RADIAL", "RADIAL", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "OPENCV_FISHEYE"):
        return xy * _series(params, r2).unsqueeze(-1)
    if model == "OPENCV":
        k1, k2, p1, p2 = params
        return xy * _series((k1, k2), r2).unsqueeze(-1) + _tangential(p1, p2, x, y)
    if model == "FULL_OPENCV":
        k1, k2, p1, p2, k3, k4, k5, k6 = params
        ratio = _series((k1, k2, k3), r2) / _series((k4, k5, k6), r2)
        return xy * ratio.unsqueeze(-1) + _tangential(p1, p2, x, y)
    if model == "THIN_PRISM_FISHEYE":
        k1, k2, p1, p2, k3, k4, sx1, sy1 = params
        prism = torch.stack([sx1 * r2, sy1 * r2], dim=-1)
        return xy * _series((k1, k2, k3, k4), r2).unsqueeze(-1) + _tangential(p1, p2, x, y) + prism
    if model == "RAD_TAN_THIN_PRISM_FISHEYE":
        radial = xy * _series(params[:6], r2).unsqueeze(-1)
        p0, p1, s0, s1, s2, s3 = params[6:]
        u, v = radial[..., 0], radial[..., 1]
        q2 = u * u + v * v
        prism = torch.stack([s0 * q2 + s1 * q2 * q2, s2 * q2 + s3 * q2 * q2], dim=-1)
        return radial + _tangential(p1, p0, u, v) + prism
    raise ValueError(f"unknown lens model {model}")


def _series(coefficients: tuple[float, ...], square: Annotated[Tensor, "*batch"]) -> Annotated[Tensor, "*batch"]:
    """1 + c1 s + c2 s^2 + ... by Horner's rule."""
    total = torch.zeros_like(square)
    for coefficient in reversed(coefficients):
        total = (total + coefficient) * square
    return 1 + total


def _tangential(p1: float, p2: float, x: Tensor, y: Tensor) -> Points:
    r2, xy2 = x * x + y * y, 2 * x * y
    return torch.stack([p1 * xy2 + p2 * (r2 + 2 * x * x), p2 * xy2 + p1 * (r2 + 2 * y * y)], dim=-1)


def _scale_radius(xy: Points, radius: Callable[[Tensor], Tensor]) -> Points:
    """Move points along their direction from the centre to a new radius; the centre stays."""
    r = xy.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return xy * (radius(r) / r)


def _angle_from_plane(xy: Points) -> Points:
    """Equidistant fisheye: the radius becomes the angle from the optical axis."""
    return _scale_radius(xy, torch.atan)


def _plane_from_angle(xy: Points) -> Points:
    """The inverse; NaN at right angles to the axis and beyond, which no plane in front of the camera shows."""
    behind = xy.norm(dim=-1, keepdim=True) >= torch.pi / 2
    return torch.where(behind, torch.nan, _scale_radius(xy, torch.tan))


def _invert_polynomial(model: str, params: tuple[float, ...], target: Points) -> Points:
    """Newton's method from the distorted point, NaN where it does not arrive or arrives beyond the fold of the lens."""
    if not any(params):
        return target
    xy = target.detach().clone()
    for _ in range(_NEWTON_STEPS):
        value, slope_x, slope_y = _polynomial_and_slopes(model, params, xy)
        residual = value - target
        xy = xy - _solve(slope_x, slope_y, residual).nan_to_num(0, 0, 0)
        if not bool((residual.abs() > _TOLERANCE * 1e-2).any()):
            break
    value, slope_x, slope_y = _polynomial_and_slopes(model, params, xy)
    determinant = slope_x[..., 0] * slope_y[..., 1] - slope_x[..., 1] * slope_y[..., 0]
    arrived = ((value - target).abs() <= _TOLERANCE * (1 + target.abs())).all(dim=-1) & (determinant > 0)
    return torch.where(arrived.unsqueeze(-1), xy, torch.nan)


def _polynomial_and_slopes(model: str, params: tuple[float, ...], xy: Points) -> tuple[Points, Points, Points]:
    """Value at every point, and the exact derivatives of its x and of its y by both coordinates."""
    with torch.enable_grad():
        xy = xy.detach().requires_grad_()
        value = _polynomial(model, params, xy)
        (slope_x,) = torch.autograd.grad(value[..., 0].sum(), xy, retain_graph=True)
        (slope_y,) = torch.autograd.grad(value[..., 1].sum(), xy)
    return value.detach(), slope_x, slope_y


def _solve(row_x: Points, row_y: Points, right: Points) -> Points:
    """Solutions of 2x2 systems with the given rows; not finite where there is none."""
    determinant = row_x[..., 0] * row_y[..., 1] - row_x[..., 1] * row_y[..., 0]
    x = row_y[..., 1] * right[..., 0] - row_x[..., 1] * right[..., 1]
    y = row_x[..., 0] * right[..., 1] - row_y[..., 0] * right[..., 0]
    return torch.stack([x, y], dim=-1) / determinant.unsqueeze(-1)
