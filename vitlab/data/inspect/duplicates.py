"""Pictures that are copies of each other: the same bytes, or the same to the eye.

A copy may be encoded again, resized or a little brighter. Candidates have perceptual hashes a few bits apart (after
Zauner, 2010, "Implementation and Benchmarking of Perceptual Image Hash Functions"); simple drawings share such hashes,
so the edges and the colours of the thumbnails decide. Copies that are cropped, turned or mirrored are not found.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

FREQUENCIES = 8  # of the hash, in each direction: 64 bits
NOISE = 0.1  # of the spectrum's root mean square: below this the sign of a coefficient is chance,
GRAIN = 8.0  # as it is below this, which JPEG makes of plain ground
NEAR = 12  # the most bits that the hashes of a copy and its original differ by
ALIKE = 0.92  # the least correlation of their edges,
CONTRAST = 1.5  # and the largest ratio of the strengths of these;
SMOOTH = 1.0, 0.3  # or what their levels differ by: at most so many, and so much of their standard deviation
COARSE = 4  # side of the grid of mean colours in which they may differ
BRIGHTER = 1.12  # by a factor of at most this
APART = 3.2  # and besides by so many levels of 255, root mean square
CLIPPED = 243.0  # levels: what is brighter in both pictures is not compared, a brighter copy ends at 255
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

    thumbnails: (N, S, S, 3), levels from 0 to 255. digests: uint64 (N,), equal for equal bytes. splits: (N,), numbers
    that never fall. So N pictures make N - 1 pairs at most, and a held-out picture is paired with one in training
    where it can be. Takes N^2 / 2 comparisons of 64 bits, and a few matrix products over the candidates.
    """
    count, pairs = len(thumbnails), []
    thumbnails = thumbnails.astype(np.float32)
    hashes, edges, colours = hash_thumbnails(thumbnails), find_edges(thumbnails), shrink(thumbnails)
    side = thumbnails.shape[1]
    levels, spread = thumbnails.reshape(count, 3 * side**2), thumbnails.std(axis=(1, 2)).max(axis=1)
    is_flat = spread < FLAT
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
        alike = near[inside] & (compare(colours[left], colours[right]) <= APART)
        smooth = np.minimum(SMOOTH[0], SMOOTH[1] * spread[left])[:, None]
        alike &= (likeness >= ALIKE) | (compare(levels[left], levels[right]) <= smooth)
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
    """uint64 (N,) of thumbnails float32 (N, S, S, 3): which low frequencies of the brightness are clearly positive.

    The hash of Zauner sets half of the bits, by the median; of a symmetric drawing half of the coefficients are near
    zero, and their bits would be chance.
    """
    side = thumbnails.shape[1]
    places, frequencies = np.arange(side) + 0.5, np.arange(1, FREQUENCIES + 1)
    waves = np.cos(np.pi / side * np.outer(frequencies, places)).astype(np.float32)
    spectrum = waves @ (thumbnails @ GREY) @ waves.T
    # pictures have less of high frequencies, which would never count
    weights = np.sqrt(np.hypot(frequencies[:, None], frequencies)).astype(np.float32)
    weighted = spectrum * weights
    least = np.maximum(NOISE * np.sqrt((weighted**2).mean(axis=(1, 2), keepdims=True)), GRAIN * weights)
    bits = (weighted > least).reshape(len(thumbnails), FREQUENCIES**2)
    return np.packbits(bits, axis=1).view(np.uint64)[:, 0]


def find_edges(thumbnails: np.ndarray) -> np.ndarray:
    """float32 (N, 6 S (S - 1)) of thumbnails float32 (N, S, S, 3): the differences of neighbours."""
    count, side = thumbnails.shape[:2]
    down, across = (np.diff(thumbnails, axis=axis).reshape(count, 3 * side * (side - 1)) for axis in (1, 2))
    return np.concatenate([down, across], axis=1)


def shrink(thumbnails: np.ndarray) -> np.ndarray:
    """float32 (N, 3 COARSE^2) of thumbnails float32 (N, S, S, 3): mean colours."""
    count, side = thumbnails.shape[:2]
    cells = thumbnails.reshape(count, COARSE, side // COARSE, COARSE, side // COARSE, 3)
    return cells.mean(axis=(2, 4)).reshape(count, 3 * COARSE**2)


def correlate(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(A, B) of edges (A, D) and (B, D): their cosines, 0 where their lengths differ by more than CONTRAST."""
    lengths, others = (np.maximum(np.linalg.norm(edges, axis=1), 1e-6) for edges in (left, right))
    ratios = lengths[:, None] / others
    cosines = left @ right.T / lengths[:, None] / others
    return np.where((ratios <= CONTRAST) & (ratios >= 1 / CONTRAST), cosines, 0)


def compare(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(A, B) of levels (A, D) and (B, D): what they differ by when one is as bright as the other, root mean square.

    Infinite where that takes a factor above BRIGHTER. What is CLIPPED in both is left out, without a loop over pairs.
    """
    bright, others = ((levels >= CLIPPED).astype(np.float32) for levels in (left, right))
    squares = (left**2).sum(axis=1)[:, None] - (bright * left**2) @ others.T
    other_squares = (right**2).sum(axis=1) - bright @ (others * right**2).T
    products = left @ right.T - (bright * left) @ (others * right).T
    factors = np.where(other_squares >= 1, products / np.maximum(other_squares, 1), 1)
    rest = np.sqrt(np.maximum(squares - factors * products, 0) / left.shape[1])
    return np.where((factors <= BRIGHTER) & (factors >= 1 / BRIGHTER), rest, np.inf)
