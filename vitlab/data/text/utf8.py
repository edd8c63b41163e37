"""Text files, which must be UTF-8."""

from pathlib import Path

from vitlab.config import UserError


def read(path: Path, key: str) -> str:
    """The text of a file: without a byte-order mark, lines ended by a newline alone.

    Raises UserError, which names the configuration's `key` and the first byte that is not UTF-8.
    """
    if not path.is_file():  # /dev/zero has no end
        what = "a folder" if path.is_dir() else "not a regular file" if path.exists() else "no such file"
        raise UserError(f"{key}={path}: {what}; give a text file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{key}={path}: cannot read the file: {error.strerror}") from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8"
        raise UserError(f"{key}={path}: {wrong}; save the file as UTF-8") from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
