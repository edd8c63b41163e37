"""Draw a folder of pictures, a folder for each of five classes, as people have them: the sets that advice is tried on.

    python scripts/draw_pictures.py color|shape|noise FOLDER [--count 900] [--clean]

color: each class has a color of its own and any shape, so that colors alone decide. shape: the reverse. noise: as
shape, with a quarter of the labels drawn at random. JPEG and PNG files of 40 to 90 pixels, classes of unequal size;
without --clean also greyscale, alpha, EXIF rotation, eight copies, a file that cannot be read and an .heic.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageOps

SHAPES = ("circle", "cross", "ring", "square", "triangle")
SHARES = (0.3, 0.25, 0.2, 0.15, 0.1)
COLORS = ((200, 60, 60), (60, 170, 80), (70, 90, 200), (210, 180, 60), (160, 80, 180))
COPIES = 8
ROTATED = 6  # in EXIF: by 90 degrees


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("color", "shape", "noise"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=900)
    parser.add_argument("--clean", action="store_true")
    args = parser.parse_args()
    draw_folder(args.kind, args.folder, args.count, args.clean)


def draw_folder(kind: str, folder: Path, count: int, clean: bool = False, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for name in SHAPES:
        (folder / name).mkdir(parents=True)
    labels = np.repeat(np.arange(len(SHAPES)), np.round(np.array(SHARES) * count).astype(int))
    for number, label in enumerate(labels):
        other = int(rng.integers(len(SHAPES)))
        image = draw(other if kind == "color" else label, COLORS[label if kind == "color" else other], rng)
        home = rng.integers(len(SHAPES)) if kind == "noise" and rng.random() < 0.25 else label
        path = folder / SHAPES[home] / f"{number:05}"
        save(image, path, number, clean or number % 10 > 0)
    if not clean:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in rng.choice(files, COPIES, replace=False):
            copy = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
            copy.save(path.with_name(f"copy-{path.stem}.jpg"), quality=70)
        (folder / SHAPES[0] / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0")
        (folder / SHAPES[1] / "phone.heic").write_bytes(b"not read")


def draw(shape: int, color: tuple[int, int, int], rng: np.random.Generator) -> Image.Image:
    """A shape of any place on a lighter, noisy ground."""
    width, height = (int(side) for side in rng.integers(40, 90, 2))
    ground = rng.integers(120, 256, 3)
    image = Image.fromarray(np.clip(ground + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8))
    radius = rng.uniform(0.2, 0.42) * min(width, height)
    x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
    box, pen = (x - radius, y - radius, x + radius, y + radius), ImageDraw.Draw(image)
    line = max(2, round(radius / 3))
    ink = tuple(int(value) for value in np.clip(color + rng.normal(0, 15, 3), 0, 255))
    match SHAPES[shape]:
        case "circle":
            pen.ellipse(box, fill=ink)
        case "cross":
            pen.line((x - radius, y, x + radius, y), fill=ink, width=line)
            pen.line((x, y - radius, x, y + radius), fill=ink, width=line)
        case "ring":
            pen.ellipse(box, outline=ink, width=line)
        case "square":
            pen.rectangle(box, fill=ink)
        case "triangle":
            pen.polygon([(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], fill=ink)
    return image


def save(image: Image.Image, path: Path, number: int, usual: bool) -> None:
    if usual:
        image.save(path.with_suffix(".png" if number % 3 else ".jpg"))
    elif number // 10 % 3 < 2:
        image.convert(("L", "RGBA")[number // 10 % 3]).save(path.with_suffix(".png"))
    else:
        exif = Image.Exif()
        exif[0x0112] = ROTATED
        image.save(path.with_suffix(".jpg"), exif=exif)


if __name__ == "__main__":
    main()
