"""Arrays as bytes in base64, for the scripts of a page: packed.js takes them apart again."""

import base64

import numpy as np

LEVELS = 255  # a row's largest value, in the page's whole numbers


def packed(values: np.ndarray) -> dict[str, str]:
    """Values (..., N) from 0 on: bytes, in 255ths of their row's largest, and these (...,) in float32.

    A value is off by at most 1/510 of its row's largest.
    """
    largest = values.max(axis=-1)
    levels = np.rint(LEVELS * (values / np.where(largest > 0, largest, 1)[..., None]))
    return {"largest": encoded(largest.astype("<f4")), "levels": encoded(levels.astype(np.uint8))}


def encoded(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()
