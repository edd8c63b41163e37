"""Arrays as bytes in base64 for the scripts of a page; packed.js decodes them."""

import base64

import numpy as np

LEVELS = 255  # a row's largest value, in the page's whole numbers


def quantize_rows(values: np.ndarray) -> dict[str, str]:
    """Quantize values >= 0 (..., N) to 255 levels of each row's largest value; `largest` (...,) is float32.

    The error is at most 1/510 of the row's largest value.
    """
    largest = values.max(axis=-1)
    levels = np.rint(LEVELS * (values / np.where(largest > 0, largest, 1)[..., None]))
    return {"largest": encode_bytes(largest.astype("<f4")), "levels": encode_bytes(levels.astype(np.uint8))}


def encode_bytes(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()
