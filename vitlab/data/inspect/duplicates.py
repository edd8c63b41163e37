"""Pictures that are copies of each other: the same bytes, or the same to the eye.

A copy may be encoded again, resized or a little brighter. Candidates have perceptual hashes a few bits apart (after
Zauner, 2010, "Implementation and Benchmarking of Perceptual Image Hash Functions"); simple drawings share such hashes,
so the edges and the colours of the thumbnails decide. Copies that are cropped, turned or mirrored are not found.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

FREQUENCIES = 8  # of the hash, in each direction: 64 bits
NOISE = 0.1  # of the spectrum's root mean square: below this the sign of a coefficient is chance
NEAR = 12  # the most bits that the hashes of a copy and its original differ by
ALIKE = 0.88  # the least correlation of their edges,
CONTRAST = 1.5  # and the largest ratio of the strengths of these
COARSE = 4  # side of the grid of mean colours in which they differ by
BRIGHTER = 1.12  # a factor of at most this
APART = 3.5  # and besides by so many levels of 255 at most, root mean square
FLAT = 2.0  # levels, standard deviation: below this a thumbnail is a single colour, and only equal bytes count
BLOCK = 256  # pictures that are compared with all others at a time
GREY = np.array([0.299, 0.587, 0.114], np.float32)  # brightness of red, green and blue, ITU-R BT.601


@dataclass(frozen=True)
class Pair:
    """Places of two pictures, the first before the second; the correlation of their edges; whether bytes are equal."""

    first: int
    second: int
    likeness: float
    identical: bool


def find_pairs(
    thumbnails: np.ndarray,
    digests: np.ndarray,
    splits: np.ndarray,
    progress: Callable[[str, int, int | None], None] = lambda *_: None,
) -> list[Pair]:
    """A pair for each picture with a copy before it: of the copies in the first split that has any, the likest.

    thumbnails: uint8 (N, S, S, 3), digests: uint64 (N,), equal for equal bytes, splits: (N,), numbers that never
    fall. So N pictures make N - 1 pairs at most, and a held-out picture is paired with one in training where it can
    be. Takes N^2 / 2 comparisons of 64 bits, and a product of S x S x 6 numbers for each candidate.
    """
    count, pairs = len(thumbnails), []
    hashes, edges, colours = hash_thumbnails(thumbnails), find_edges(thumbnails), shrink(thumbnails)
    is_flat = np.array([thumbnail.std(axis=(0, 1)).max() < FLAT for thumbnail in thumbnails], bool)
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        rows, before = np.arange(start, stop), np.arange(stop)
        same = digests[rows, None] == digests[:stop]
        near = np.bitwise_count(hashes[rows, None] ^ hashes[:stop]) <= NEAR
        near &= ~(is_flat[rows, None] | is_flat[:stop])
        candidates = (near | same) & (before < rows[:, None])
        left, right = rows[candidates.any(axis=1)], before[candidates.any(axis=0)]
        inside = np.ix_(left - start, right)
        likeness = correlate(edges[left], edges[right])
        alike = near[inside] & (likeness >= ALIKE) & have_same_colours(colours[left], colours[right])
        likeness[same[inside]] = 1
        is_copy = (alike | same[inside]) & candidates[inside]
        order = np.where(is_copy, likeness - 3 * splits[right], -np.inf)  # a likeness is between -1 and 1
        for row in np.flatnonzero(is_copy.any(axis=1)):
            best = order[row].argmax()
            first, second = int(right[best]), int(left[row])
            pairs.append(Pair(first, second, float(likeness[row, best]), bool(digests[first] == digests[second])))
        progress("comparing pictures", stop, count)
    return pairs


def hash_thumbnails(thumbnails: np.ndarray) -> np.ndarray:
    """uint64 (N,) of thumbnails uint8 (N, S, S, 3): which low frequencies of the brightness are clearly positive.

    The hash of Zauner sets half of the bits, by the median; of a symmetric drawing half of the coefficients are near
    zero, and their bits would be chance.
    """
    side = thumbnails.shape[1]
    places, frequencies = np.arange(side) + 0.5, np.arange(1, FREQUENCIES + 1)
    waves = np.cos(np.pi / side * np.outer(frequencies, places)).astype(np.float32)
    spectrum = waves @ (thumbnails @ GREY) @ waves.T
    # pictures have less of high frequencies, which would never count
    spectrum *= np.sqrt(np.hypot(frequencies[:, None], frequencies)).astype(np.float32)
    spectrum = spectrum.reshape(len(thumbnails), FREQUENCIES**2)
    least = NOISE * np.sqrt((spectrum**2).mean(axis=1, keepdims=True))
    return np.packbits(spectrum > least, axis=1).view(np.uint64)[:, 0]


def find_edges(thumbnails: np.ndarray) -> np.ndarray:
    """float32 (N, 6 S (S - 1)) of thumbnails uint8 (N, S, S, 3): the differences of neighbours."""
    levels = thumbnails.astype(np.int16)
    side = levels.shape[1]
    down, across = (np.diff(levels, axis=axis).reshape(len(levels), 3 * side * (side - 1)) for axis in (1, 2))
    return np.concatenate([down, across], axis=1, dtype=np.float32)


def shrink(thumbnails: np.ndarray) -> np.ndarray:
    """float32 (N, 3 COARSE^2) of thumbnails uint8 (N, S, S, 3): mean colours."""
    count, side = thumbnails.shape[:2]
    cells = thumbnails.reshape(count, COARSE, side // COARSE, COARSE, side // COARSE, 3)
    return cells.mean(axis=(2, 4), dtype=np.float32).reshape(count, 3 * COARSE**2)


def correlate(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(A, B) of edges (A, D) and (B, D): their cosines, 0 where their lengths differ by more than CONTRAST."""
    lengths, others = (np.maximum(np.linalg.norm(edges, axis=1), 1e-6) for edges in (left, right))
    ratios = lengths[:, None] / others
    cosines = left @ right.T / lengths[:, None] / others
    return np.where((ratios <= CONTRAST) & (ratios >= 1 / CONTRAST), cosines, 0)


def have_same_colours(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """bool (A, B) of colours (A, D) and (B, D): whether they are the same but for a factor, the brightness."""
    squares, others = ((colours**2).sum(axis=1) for colours in (left, right))
    products = left @ right.T
    factors = products / np.maximum(others, 1e-6)
    rest = squares[:, None] - factors * products  # of the best factor, the sum of squares
    is_near = rest <= left.shape[1] * APART**2
    return is_near & (factors <= BRIGHTER) & (factors >= 1 / BRIGHTER)
