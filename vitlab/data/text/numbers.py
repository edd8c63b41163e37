"""English words of whole numbers and their digits: "seven thousand four" -> "7004". No download.

A task that can be solved and checked: each source has one right target, and held-out numbers were never seen.
"""

import numpy as np

from vitlab.config import UserError
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.split import choose_by_hash
from vitlab.data.text.types import Corpus, Examples

MOST_DIGITS = 6
TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", *TEENS]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def read(config: TextDataConfig) -> Corpus:
    """`count` numbers, as many of each length from one digit to six as there are; a share by a hash is held out."""
    numbers = [str(number) for number in draw_numbers(config.count)]
    chosen = choose_by_hash(numbers, config.test_share)
    train, test = ([n for n in numbers if (n in chosen) == held] for held in (False, True))
    return Corpus(*(Examples(([spell(int(n)) for n in digits], digits)) for digits in (train, test)))


def draw_numbers(count: int) -> list[int]:
    """Different numbers, always the same ones. Raises UserError."""
    if not 100 <= count <= 10**MOST_DIGITS:
        raise UserError(f"data.count={count}: give from 100 to {10**MOST_DIGITS}, the numbers that there are")
    generator, numbers, left = np.random.default_rng(0), [], count
    for digits in range(1, MOST_DIGITS + 1):
        first, last = (0 if digits == 1 else 10 ** (digits - 1)), 10**digits
        wanted = min(last - first, left // (MOST_DIGITS + 1 - digits))
        numbers += (first + generator.permutation(last - first)[:wanted]).tolist()
        left -= wanted
    return numbers


def spell(number: int) -> str:
    """The words of a number from 0 to 999,999."""
    if number < len(ONES):
        return ONES[number]
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            count, rest = divmod(number, size)
            return f"{spell(count)} {name}" + (f" {spell(rest)}" if rest else "")
    tens, rest = divmod(number, 10)
    return TENS[tens - 2] + (f" {ONES[rest]}" if rest else "")
