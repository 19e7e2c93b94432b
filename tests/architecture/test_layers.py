"""Who may import whom: the layers of the package, and the few files that each outside library is allowed in."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "posfeat"

FOUNDATION = {"geometry", "types", "options", "processor", "__version__"}
MAY_IMPORT = {
    "geometry": {"geometry"},
    "types": {"geometry", "types"},
    "options": {"types", "options"},
    "data": {"data"} | FOUNDATION,
    "losses": {"losses"} | FOUNDATION,
    "networks": {"networks", "data"} | FOUNDATION,
    "processor": set(),
    "nearest_neighbours": {"nearest_neighbours"} | FOUNDATION,
    "matching": {"matching", "nearest_neighbours"} | FOUNDATION,
    "training": {"training", "networks", "losses", "data", "matching", "benchmarks"} | FOUNDATION,
    "adapt": {"adapt", "training", "pipeline", "benchmarks", "networks", "losses", "data", "matching", "interop"}
    | FOUNDATION,
    "pipeline": {"pipeline", "networks", "data", "matching", "interop"} | FOUNDATION,
    "benchmarks": {"benchmarks", "pipeline", "networks", "data", "matching", "interop"} | FOUNDATION,
    "demo": {"demo", "benchmarks", "pipeline", "networks", "data", "matching", "interop"} | FOUNDATION,
    "interop": {"interop", "networks", "data", "matching"} | FOUNDATION,
    "scale": {"scale", "benchmarks", "pipeline", "networks", "data", "matching"} | FOUNDATION,
    "page": {"page", "pipeline", "interop", "networks", "data", "matching"} | FOUNDATION,
}
ABOVE_ALL = {"cli", "__init__", "__main__"}

# Each library lives in a few named files, so that a change of it touches only these.
LIBRARY_FILES = {
    "cv2": {
        "adapt/generic.py",
        "benchmarks/baselines.py",
        "data/augment.py",
        "data/check.py",
        "data/geometric.py",
        "data/check_pictures.py",
        "data/distortion.py",
        "data/images.py",
        "data/loader.py",
        "data/sift_queries.py",
        "data/synthetic.py",
        "data/texture.py",
        "interop/colmap.py",  # before pycolmap, whose libraries clash with OpenCV's otherwise
        "interop/opencv.py",
        "pipeline/draw.py",
        "pipeline/rootsift.py",
        "pipeline/two_view.py",
    },
    "h5py": {"interop/imc.py", "pipeline/feature_store.py", "pipeline/hdf5_store.py", "pipeline/shards.py"},
    "pycolmap": {"interop/colmap.py"},
    "poselib": {"benchmarks/robust_estimation.py"},
    "pickle": {"data/object_arrays.py"},  # a reader that refuses whatever is not data
    "onnx": {"interop/onnx_export.py"},
    "onnxruntime": {"interop/onnx_engine.py"},
    "openvino": {"interop/onnx_engine.py"},
    "ray": {"scale/cluster.py"},
    "fsspec": {"scale/storage.py"},
    "matplotlib": {"benchmarks/plots.py"},
    "fastapi": {
        "page/api_types.py",
        "page/app.py",
        "page/browse_routes.py",
        "page/match_routes.py",
        "page/reconstruction_routes.py",
        "page/scene_routes.py",
    },
    "starlette": {"page/app.py", "page/guard.py"},
    "uvicorn": {"page/server.py"},
    "kornia": {"benchmarks/baselines.py", "interop/kornia.py"},
}
NEVER = {"torchvision", "timm", "pytorch_lightning", "lightning", "hydra", "dill"}


def imported_modules(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, wherever in it, and the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            # the bare package holds nothing but its version and lazy names
            yield from (("posfeat.__version__" if a.name == "posfeat" else a.name, node.lineno) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno} imports relatively"
            assert all(alias.name != "*" for alias in node.names), f"{path.name}:{node.lineno} imports *"
            if node.module == "posfeat":
                yield from ((f"posfeat.{alias.name}", node.lineno) for alias in node.names)
            elif node.module:
                yield node.module, node.lineno


SOURCES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def layer_of(source: str) -> str:
    return source.partition("/")[0].removesuffix(".py")


@pytest.mark.parametrize("source", SOURCES)
def test_layers(source: str) -> None:
    layer = layer_of(source)
    if layer in ABOVE_ALL:
        return
    assert layer in MAY_IMPORT, f"{source} belongs to no known layer"
    wrong = [
        f"posfeat/{source}:{line} imports {module}"
        for module, line in imported_modules(PACKAGE / source)
        if module.partition(".")[0] == "posfeat" and module.split(".")[1] not in MAY_IMPORT[layer]
    ]
    assert wrong == []


@pytest.mark.parametrize("source", SOURCES)
def test_libraries_stay_where_they_belong(source: str) -> None:
    wrong = []
    for module, line in imported_modules(PACKAGE / source):
        library = module.partition(".")[0]
        if library in NEVER or source not in LIBRARY_FILES.get(library, {source}):
            wrong.append(f"posfeat/{source}:{line} imports {library}")
    assert wrong == []


@pytest.mark.parametrize("source", [source for source in SOURCES if layer_of(source) == "cli"])
def test_cli_imports_nothing_heavy_at_the_top(source: str) -> None:
    """Help must be instant: verbs import what they need inside their functions."""
    tree = ast.parse((PACKAGE / source).read_text(encoding="utf-8"))
    for node in tree.body:  # what stands under `if TYPE_CHECKING:` is not in the body itself
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for name in names:
                light = name.partition(".")[0] in {*sys.stdlib_module_names, "typer"} or name == "posfeat"
                assert light or name.startswith("posfeat.cli"), f"posfeat/{source}:{node.lineno} imports {name}"
