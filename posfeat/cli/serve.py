"""``posfeat serve``: pages to try matches, look into models and watch training; and the interface behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posfeat.cli.model_choice import Device, DeviceOption

EXAMPLES = """\b
Examples:
  posfeat serve
  posfeat serve photos/ runs/ --port 8080
  posfeat serve --weights runs/detection/best.safetensors
  posfeat serve photos/ --host 0.0.0.0
  curl -F image0=@a.jpg -F image1=@b.jpg http://127.0.0.1:8000/api/match
"""


def serve(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Folders that the pages may look into: photos, models, runs."),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            "--weights",
            help="'default', a checkpoint, or a published folder; again for more. Default and SIFT are always offered.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for reconstructions that are started on the page.")
    ] = Path("runs/reconstructions"),
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; one that others can reach asks for a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="POSFEAT_TOKEN", help="Token that clients must show; random with --host."),
    ] = None,
    device: DeviceOption = Device.auto,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A limit, such as megapixels=100 or burst=500."),
    ] = None,
) -> None:
    """Show pages in the browser, on this machine only unless --host says otherwise."""
    from importlib.util import find_spec

    from posfeat.options import apply_overrides, options_from_mapping
    from posfeat.types import MissingExtraError

    missing = [name for name in ("fastapi", "uvicorn", "multipart") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"posfeat serve needs {', '.join(missing)}: pip install 'posfeat[web]'")
    from posfeat.cli.model_choice import load_model
    from posfeat.page.limits import Limits
    from posfeat.page.methods import Methods
    from posfeat.page.roots import Roots
    from posfeat.page.server import serve as run
    from posfeat.page.services import build_services

    limits = options_from_mapping(Limits, apply_overrides({}, overrides or []))
    methods = Methods(weights or [], lambda source: load_model(source, device))
    run(build_services(limits, Roots(folders or []), methods, output), host, port, token)
