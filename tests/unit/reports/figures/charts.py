"""What a figure shows, read from the description that pages and files are drawn from."""

import re


def read_layers(figure):
    """Name of a layer -> its part of the description; of a figure of panels that of a panel."""
    spec = figure.spec
    panel = spec.get("spec", spec)
    return {layer.get("name"): layer for layer in panel.get("layer", [panel])}


def read_points(figure, layer, /, **which):
    """The points that a layer draws, of all panels, in the given columns the given value."""
    spec, layers = figure.spec, read_layers(figure)
    if layer not in layers:
        return []
    chosen = layers[layer]
    data = chosen.get("data") or spec["data"]
    points = spec["datasets"][data["name"]]
    for transform in chosen.get("transform", []):
        if found := re.fullmatch(r"\(?datum\.(\w+) (===|!==) '(.*?)'\)?", str(transform.get("filter"))):
            key, sign, value = found.groups()
            points = [point for point in points if (point[key] == value) == (sign == "===")]
    return [point for point in points if all(point[key] == value for key, value in which.items())]


def read_column(figure, key, layer, /, **which):
    return [point[key] for point in read_points(figure, layer, **which)]


def read_encoding(figure, layer, channel):
    return read_layers(figure)[layer]["encoding"][channel]
