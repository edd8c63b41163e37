"""Read and write files. A crash during a write leaves the old file or the new file, never a part."""

import contextlib
import errno
import gzip
import json
import os
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from vitlab.config.errors import UserError, first_line

UNPACKED = 100  # largest ratio of text to gzip file: refuses zip bombs, which reach a ratio of 1000
FORMATS = {  # first bytes of a file that is not UTF-8 text -> its format
    b"PK\3\4": "a zip archive, an Excel workbook (.xlsx) or a document",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook (.xls) or document",
    b"PAR1\x15": "a Parquet file, which data=huggingface data.dataset=parquet data.files=FILE reads",
    **dict.fromkeys((b"BZh9", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf"), "compressed, and not by gzip"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "text in UTF-16, such as Excel's Unicode text"),
}


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces `path` when the block ends without an error.

    The block writes a temporary file beside the target, because a rename is atomic only within a file system. The file
    is flushed to disk before the rename. On a full disk, the OSError names `path`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            os.umask(umask := os.umask(0))
            os.fchmod(file.fileno(), 0o666 & ~umask)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        cause = error if isinstance(error, OSError) else error.__context__  # torch raises another error on close
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(cause.errno, cause.strerror, str(path)) from None
        raise


def read_stamp(path: str | Path) -> tuple[int, int, int] | None:
    """Return (time, inode, size), which changes when a file is written again; None if there is no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def check_regular(path: str | Path, source: str) -> None:
    """Raise UserError unless the path, called `source` in the message, is a regular file or a link to one.

    Opening a pipe or a device that nobody writes to would wait for ever, and reading /dev/zero never ends.
    """
    if os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path):
        raise UserError(f"{source}: a pipe, socket or device; give a regular file")


@contextlib.contextmanager
def reading(source: str, advice: str) -> Iterator[None]:
    """Turn any error of a library that reads the user's file `source` into a UserError of one line.

    Catches BaseException, too: libraries in Rust, such as tokenizers, raise one when they panic.
    """
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise UserError(f"{source}: cannot read it: {type(error).__name__} {first_line(error)}; {advice}") from None


def read_utf8(path: Path, key: str) -> str:
    """Read a user's text file, gzipped or not, without its byte-order mark; line ends become newlines.

    Raises UserError with the configuration's `key` and the file's format, or the first byte that is not UTF-8.
    """
    check_regular(path, f"{key}={path}")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{key}={path}: no such file; give a text file") from None
    except OSError as error:
        raise UserError(f"{key}={path}: cannot read it: {error.strerror}; give a text file") from None
    if data.startswith(b"\x1f\x8b"):
        most = UNPACKED * (len(data) + 2**20)
        with reading(f"{key}={path}", "give the unpacked file"), gzip.open(path) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise UserError(f"{key}={path}: over {UNPACKED} times as long when unpacked; give the unpacked file")
    start = b"\xff\xfe" if b"\0" in data[:4] else data[:8]  # UTF-16 may come without a mark
    if form := next((form for magic, form in FORMATS.items() if start.startswith(magic)), None):
        raise UserError(f"{key}={path}: {form}; save it as text or CSV in UTF-8")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8"
        raise UserError(f"{key}={path}: {wrong}; save the file as UTF-8") from None
    if (place := text.find("\0")) >= 0:
        line = text.count("\n", 0, place) + 1
        raise UserError(f"{key}={path}, line {line}: holds a NUL, so it is damaged or no text; take the NUL out")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return text if "\n" in text else text.replace("\r", "\n")


def check_unpacked(path: Path, most: int) -> None:
    """Raise ValueError if the members of a zip archive are longer than `most` bytes when unpacked."""
    with zipfile.ZipFile(path) as file:
        if sum(member.file_size for member in file.infolist()) > most:
            raise ValueError(f"over {most // 2**20} MB when unpacked")


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))  # file names may hold bytes that are not text


def read_json(
    path: str | Path,
    parse: Callable[[Any], Any] = lambda value: value,
    advice: str = "delete it and run the command again",
) -> Any:
    """Read a JSON file of this program and pass its value through `parse`; return None if there is no file.

    Raises UserError, with the advice, if the file does not parse.
    """
    path = Path(path)
    try:
        return parse(json.loads(path.read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{path}: cannot read it ({first_line(error)}); {advice}") from None


def write_json(path: str | Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def create_json(path: str | Path, value: Any) -> bool:
    """Write a JSON file unless it exists; return whether this call made the file. One of several processes succeeds.

    A hard link is atomic on local and network file systems. Without hard links, writes the short file in place.
    """
    temporary = f"{path}.{uuid.uuid4().hex}"
    write_json(temporary, value)
    try:
        os.link(temporary, path)
    except FileExistsError:  # this call may have made the link: a network file system can lose the first answer
        return os.stat(temporary).st_nlink == 2
    except OSError:
        try:
            with open(path, "x") as file:
                file.write(Path(temporary).read_text())
        except FileExistsError:
            return False
    finally:
        os.unlink(temporary)
    return True
