"""What a figure shows, read from the description that pages and files are drawn from."""


def read_points(figure, mark, label="", panel=None):
    """The points of a kind of mark, of a label if one is given; of the first panel unless one is named."""
    title = next(iter(figure.specs)) if panel is None else panel
    points = figure.specs[title]["data"]["values"]
    return [one for one in points if one["mark"] == mark and (not label or one.get("label") == label)]


def read_column(figure, key, *which, **more):
    return [point[key] for point in read_points(figure, *which, **more)]


def read_scale(figure, channel, panel=None):
    """The scale of "x" or "y" of a panel's first layer."""
    spec = figure.specs[next(iter(figure.specs)) if panel is None else panel]
    return spec["layer"][0]["encoding"][channel]["scale"]
