"""Pictures that look real, or simple drawings, and copies of them; and folders of such files."""

import io
import struct
import zlib

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from sklearn.datasets import load_sample_images

KINDS = ("crop", "noise", "shape")


def draw(kind, rng, photos):
    """A crop of a photograph, a texture, or a shape somewhere on plain ground."""
    if kind == "crop":
        photo = photos[rng.integers(len(photos))]
        width, height = (int(n) for n in rng.integers(48, 260, 2))
        left, top = int(rng.integers(photo.width - width)), int(rng.integers(photo.height - height))
        return photo.crop((left, top, left + width, top + height))
    side = int(rng.integers(64, 160))
    if kind == "noise":
        cells = int(rng.choice([4, 8, 16, 32]))
        texture = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        return texture.resize((side, side), int(rng.choice([Image.Resampling.NEAREST, Image.Resampling.BICUBIC])))
    ground, ink = (tuple(int(n) for n in rng.integers(0, 256, 3)) for _ in range(2))
    image = Image.new("RGB", (side, side), ground if rng.random() < 0.5 else "white")
    radius = rng.uniform(0.1, 0.35) * side
    x, y = rng.uniform(radius, side - radius, 2)
    pen = ImageDraw.Draw(image)
    (pen.ellipse, pen.rectangle)[rng.integers(2)]((x - radius, y - radius, x + radius, y + radius), fill=ink)
    return image


def draw_many(kind, count, seed=0):
    rng = np.random.default_rng(seed)
    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    return [draw(kind, rng, photos) for _ in range(count)]


def encode(image, quality=92):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def copy(image, way):
    """JPEG bytes of a copy: encoded again, smaller, mirrored, or brighter."""
    if way == "encoded":
        return encode(image, quality=70)
    if way == "resized":
        return encode(image.resize((round(image.width * 0.8), round(image.height * 0.8)), Image.Resampling.BICUBIC))
    if way == "mirrored":
        return encode(ImageOps.mirror(image))
    return encode(ImageEnhance.Brightness(image).enhance(1.05))


def put(path, content):
    """Write a file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def png(levels, bits):
    """A PNG of levels (H, W, 3), of 8 bits, or of 16 (big-endian), which Pillow does not write."""
    head = struct.pack(">IIBBBBB", levels.shape[1], levels.shape[0], bits, 2, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in levels), 1)
    parts = (b"IHDR" + head, b"IDAT" + rows, b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts
    )
