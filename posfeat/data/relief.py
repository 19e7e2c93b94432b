"""The surface over which a photo is draped: a height field of a few long waves and soft folds, and its exact intersection with rays.

The surface is the set of points (u, v, z(u, v)). Every ray that a caller shoots must satisfy |grad z| * tan(incidence) < 1, the
incidence measured from the z axis: then it meets the surface exactly once and nothing hides anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from posfeat.types import Array


@dataclass(frozen=True)
class Relief:
    """z(u, v) = sum_k a_k cos(w_k . (u, v) + p_k) + sum_j b_j sqrt((n_j . (u, v) - o_j)^2 + r_j^2)."""

    wave_amplitudes: Array  # (K,)
    wave_frequencies: Array  # (K, 2) radians a unit
    wave_phases: Array  # (K,)
    fold_slopes: Array  # (J,) b: half the change of slope across the fold
    fold_normals: Array  # (J, 2) unit length
    fold_offsets: Array  # (J,)
    fold_radii: Array  # (J,) how round the fold is

    def height_and_slope(self, u: Array, v: Array) -> tuple[Array, Array, Array]:
        """z, dz/du and dz/dv at surface coordinates."""
        flat = np.stack([u.ravel(), v.ravel()])
        angle = self.wave_frequencies @ flat + self.wave_phases[:, None]
        across = self.fold_normals @ flat - self.fold_offsets[:, None]
        length = np.sqrt(across * across + self.fold_radii[:, None] ** 2)
        z = self.wave_amplitudes @ np.cos(angle) + self.fold_slopes @ length
        sine, lean = np.sin(angle), across / length
        z_u, z_v = (
            (self.fold_slopes * self.fold_normals[:, axis]) @ lean
            - (self.wave_amplitudes * self.wave_frequencies[:, axis]) @ sine
            for axis in (0, 1)
        )
        return z.reshape(u.shape), z_u.reshape(u.shape), z_v.reshape(u.shape)

    def scaled(self, factor: float) -> Relief:
        """The same relief, ``factor`` times as high."""
        return replace(self, wave_amplitudes=self.wave_amplitudes * factor, fold_slopes=self.fold_slopes * factor)


def random_relief(rng: np.random.Generator, size: float, num_waves: int, num_folds: int) -> Relief:
    """A relief with detail of about ``size`` and more, and heights of order ``size`` / 10 (scale it to need)."""
    directions = rng.uniform(0, 2 * np.pi, num_waves + num_folds)
    unit = np.stack([np.cos(directions), np.sin(directions)], axis=-1)
    wavelengths = size * np.exp(rng.uniform(np.log(0.6), np.log(2.5), num_waves))
    return Relief(
        wave_amplitudes=0.08 * wavelengths * rng.uniform(0.3, 1, num_waves),
        wave_frequencies=2 * np.pi / wavelengths[:, None] * unit[:num_waves],
        wave_phases=rng.uniform(0, 2 * np.pi, num_waves),
        fold_slopes=rng.uniform(0.1, 0.4, num_folds) * rng.choice([-1.0, 1.0], num_folds),
        fold_normals=unit[num_waves:],
        fold_offsets=size * rng.uniform(-0.4, 0.4, num_folds),
        fold_radii=size * rng.uniform(0.02, 0.1, num_folds),
    )


def intersect(relief: Relief, centre: Array, directions: Array, tolerance: float = 1e-10) -> Array:
    """Height z at which rays from ``centre`` (3,) along ``directions`` (..., 3) meet the surface.

    Newton's method; should it not settle, the contraction z <- z(u, v) always does.
    """
    slope_u, slope_v = directions[..., 0] / directions[..., 2], directions[..., 1] / directions[..., 2]
    z = np.zeros_like(slope_u)
    residual = z
    for iteration in range(200):
        height, z_u, z_v = relief.height_and_slope(
            centre[0] + (z - centre[2]) * slope_u, centre[1] + (z - centre[2]) * slope_v
        )
        residual = height - z
        if np.abs(residual).max(initial=0.0) < tolerance:
            return height
        newton = iteration < 10
        z = z + (residual / (1 - z_u * slope_u - z_v * slope_v) if newton else residual)
    raise ValueError(f"a ray meets the relief more than once or not at all (residual {np.abs(residual).max():.1e})")
