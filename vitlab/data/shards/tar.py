"""What lies where in a tar file, by its headers alone: what the files hold is not read.

tarfile gives the same, in 80 us a file of WebDataset's own writer rather than 10.
"""

import os
from collections.abc import Callable, Iterator

BLOCK = 512
WINDOW = 8 * BLOCK  # read at a time: the headers and the label of a sample
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
PLAIN_FILES = (b"0", b"\0", b"7")  # kinds of entries
UNREADABLE = (b"S", b"M")  # sparse, in several volumes
EMPTY = bytes(BLOCK)


def list_members(file: int) -> Iterator[tuple[str, int, int]]:
    """(name, offset of what it holds, bytes) of each plain file, of a descriptor.

    The formats are ustar, GNU and pax (POSIX.1-2017, `pax`, Extended Description). Raises ValueError for what is not
    a whole tar without compression.
    """
    read, end = windowed(file), os.fstat(file).st_size
    start = read(0, 6)
    for magic, name in COMPRESSED.items():
        if start.startswith(magic):
            raise ValueError(f"is compressed ({name}), so no image can be read by its place; decompress it")
    position, extended = 0, {}
    while (header := read(position, BLOCK)) != EMPTY:
        if len(header) < BLOCK:
            if not position:
                raise ValueError("is not a tar" if end else "is not a tar, it is empty")
            raise ValueError("is cut off, or still being written")
        if not is_header(header):
            raise ValueError(f"is damaged at byte {position}" if position else "is not a tar")
        kind, offset, size = header[156:157], position + BLOCK, to_number(header[124:136])
        if kind not in b"xgLK":
            size = int(extended.get("size", size))
        position = offset + -(-size // BLOCK) * BLOCK
        if position > end:
            raise ValueError("is cut off, or still being written")
        if kind == b"x":
            extended |= to_records(read(offset, size))
        elif kind == b"L":
            extended["path"] = to_text(read(offset, size))
        elif kind in UNREADABLE:
            raise ValueError(f"holds a file of kind {kind.decode()} at byte {offset - BLOCK}; write it again without")
        elif kind not in b"gK":
            if kind in PLAIN_FILES:
                yield extended.get("path") or to_name(header), offset, size
            extended = {}


def windowed(file: int) -> Callable[[int, int], bytes]:
    """read(position, count), which reads a little ahead."""
    held, begin = b"", 0

    def read(position: int, count: int) -> bytes:
        nonlocal held, begin
        at = position - begin
        if at < 0 or at + count > len(held):
            held, begin, at = os.pread(file, max(count, WINDOW), position), position, 0
        return held[at : at + count]

    return read


def is_header(block: bytes) -> bool:
    if block[257:262] == b"ustar":
        return True
    try:  # older ones have only a checksum
        return to_number(block[148:156]) == sum(block) - sum(block[148:156]) + 8 * ord(" ")
    except ValueError:
        return False


def to_number(field: bytes) -> int:
    """Octal digits, or where they do not suffice, binary after a first byte of 128."""
    return int.from_bytes(field[1:], "big") if field[0] == 128 else int(field.rstrip(b"\0 ") or b"0", 8)


def to_text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="surrogateescape")


def to_name(header: bytes) -> str:
    name, prefix = to_text(header[:100]), to_text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def to_records(data: bytes) -> dict[str, str]:
    """The records `LENGTH KEY=VALUE` and a newline of a pax header."""
    records = {}
    while data.strip(b"\0"):
        length, _, rest = data.partition(b" ")
        key, _, value = rest[: int(length) - len(length) - 2].partition(b"=")
        records[key.decode(errors="surrogateescape")] = value.decode(errors="surrogateescape")
        data = data[int(length) :]
    return records
