"""The relief's slopes are its derivatives, and rays are intersected exactly."""

from __future__ import annotations

import numpy as np
import pytest

from posfeat.data.relief import Relief, intersect, random_relief


@pytest.fixture
def relief() -> Relief:
    return random_relief(np.random.default_rng(3), size=1.0, num_waves=4, num_folds=2)


def test_slopes_are_derivatives(relief: Relief) -> None:
    u, v = np.random.default_rng(0).uniform(-1, 1, (2, 50))
    _, z_u, z_v = relief.height_and_slope(u, v)
    step = 1e-6
    for slope, du, dv in ((z_u, step, 0.0), (z_v, 0.0, step)):
        ahead, behind = (relief.height_and_slope(u + sign * du, v + sign * dv)[0] for sign in (1, -1))
        np.testing.assert_allclose(slope, (ahead - behind) / (2 * step), atol=1e-7)


def test_rays_end_on_the_surface(relief: Relief) -> None:
    centre = np.array([0.1, -0.2, -2.0])
    tangents = np.random.default_rng(0).uniform(-0.6, 0.6, (200, 2))
    directions = np.column_stack([tangents, np.ones(200)]) * np.random.default_rng(1).uniform(0.5, 2, (200, 1))
    low = relief.scaled(0.3)
    z = intersect(low, centre, directions)
    points = centre + directions * ((z - centre[2]) / directions[:, 2])[:, None]
    np.testing.assert_allclose(low.height_and_slope(points[:, 0], points[:, 1])[0], points[:, 2], atol=1e-9)


def test_a_plane_is_met_at_once() -> None:
    plane = random_relief(np.random.default_rng(0), 1.0, num_waves=0, num_folds=0)
    z = intersect(plane, np.array([0.0, 0.0, -1.0]), np.array([[0.3, 0.1, 1.0], [0.0, 0.0, 2.0]]))
    np.testing.assert_array_equal(z, [0.0, 0.0])
