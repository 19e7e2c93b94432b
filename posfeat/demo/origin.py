"""Which weights, code and machine a page's numbers come from, in words."""

from __future__ import annotations

from pathlib import Path

from posfeat.benchmarks.provenance import gather_provenance
from posfeat.networks.checkpoint import DEFAULT_WEIGHTS, read_card
from posfeat.networks.inference import Precision, choose_dtype
from posfeat.networks.posfeat import PoSFeat
from posfeat.pipeline.extract import weights_digest

UNTRAINED = "These weights were never trained: what you see here says nothing about what PoSFeat can do."


def describe_origin(model: PoSFeat, weights: str, precision: Precision) -> tuple[dict[str, str], str]:
    """Rows for the page, and a warning if the weights mean nothing."""
    path, warning = DEFAULT_WEIGHTS if weights == "default" else Path(weights), ""
    words = [path.name, f"{model.options.architecture} networks", f"content {weights_digest(model)}"]
    if path.is_file():
        card = read_card(path)
        words += [f"{label} {text}" for label, text in (("trained on", card.data), ("licence", card.licence)) if text]
        warning = "" if card.trained else UNTRAINED
    origin = gather_provenance("posfeat demo", {}, "", 0)
    rows = {
        "weights": ", ".join(words),
        "network": f"{model.device.type}, {str(choose_dtype(precision, model.device)).removeprefix('torch.')}",
        "machine": origin.machine,
        "PoSFeat": " ".join(word for word in (origin.posfeat_version, origin.commit) if word),
        "libraries": ", ".join(f"{name} {version}" for name, version in origin.libraries.items()),
        "begun": origin.started,
        "photos": "scikit-image's: astronaut (NASA), coffee (R. Michetti), chelsea (S. van der Walt), rocket (SpaceX), "
        "brick, grass, gravel (cc0textures.com); motorcycle (Middlebury 2014, D. Scharstein et al.)",
    }
    return rows, warning
