"""Work on a Ray cluster: the options that the verbs share which can run there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from posfeat.scale.cluster import ClusterOptions

RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Work on Ray: 'local' starts it here, 'auto' finds a cluster that runs here, or a cluster's address.",
    ),
]
RayCpusOption = Annotated[int, typer.Option("--ray-cpus", min=1, help="Processor cores of each of Ray's workers.")]
RayGpusOption = Annotated[
    float, typer.Option("--ray-gpus", min=0, help="GPUs of each of Ray's workers; 0.5 lets two share one.")
]


def cluster_options(address: str, cpus: int, gpus: float) -> ClusterOptions:
    """Which Ray, from what was asked for on the command line."""
    from posfeat.scale.cluster import ClusterOptions

    return ClusterOptions(address, cpus, gpus)


def require_path(place: str) -> None:
    """Without Ray, photos and stores are on paths."""
    from posfeat.types import OptionsError

    if "://" in place:
        raise OptionsError(f"{place} is an address, which --ray local or --ray ADDRESS reads and writes")
