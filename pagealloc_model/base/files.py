"""Files: given by users, compressed, and new ones that appear whole or not at all."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import shutil
import stat
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal

import zstandard

from pagealloc_model.base.errors import RecordingError, UsageError

_KINDS = (
    (stat.S_ISREG, "file"),
    (stat.S_ISFIFO, "FIFO"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISDIR, "directory"),
)
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_CHECK = "check the path and its permissions"
MOST_TEXT = 1 << 26
"""Bytes of the longest state file or description that is read whole."""


def is_given(path: Path) -> bool:
    """Whether the name is there, be it a file or not; reading it says what is wrong with it."""
    return os.path.lexists(path)


def refuse_unless_file(path: str | Path) -> None:
    """Refuse what is no plain file.

    Raises:
        RecordingError: it is a link, a FIFO, a device, a socket or a directory, or is not there.
    """

    def kind(mode: int) -> str:
        return next((name for is_kind, name in _KINDS if is_kind(mode)), "thing of no known kind")

    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if stat.S_ISLNK(mode):
        what = "is a link"
        with suppress(OSError, ValueError):
            what += f" to a {kind(os.stat(path).st_mode)}"
        what += "; symbolic links are not followed"
        raise RecordingError(path, what, todo="put the file itself there")
    if not stat.S_ISREG(mode):
        what = f"is a {kind(mode)}, not a file"
        raise RecordingError(path, what, todo="copy it to a file first")


def given(path: Path) -> Path:
    """What a user names, who may name a link: files that are found inside a recording may not be.

    Raises:
        RecordingError: its links lead nowhere or round and round.
    """
    if not path.is_symlink():
        return path
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise RecordingError(path, "leads nowhere by symbolic links", todo=_CHECK) from None


def opened(path: str | Path, *, below: Path | None = None) -> BinaryIO:
    """A plain file opened to be read; nothing is waited for, and no link is followed.

    Args:
        path: the file.
        below: a directory that it lies in; directories between the two may be no links either.

    Raises:
        RecordingError: it is no plain file, or cannot be opened.
    """
    refuse_unless_file(path)
    wanted = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    path = Path(path)
    try:
        with ExitStack() as stack:
            folder = None
            for each in path.relative_to(below).parts[:-1] if below is not None else ():
                if folder is None:
                    folder = os.open(below or "", _FOLDER & ~os.O_NOFOLLOW)
                    stack.callback(os.close, folder)
                folder = os.open(each, _FOLDER, dir_fd=folder)
                stack.callback(os.close, folder)
            name = path if folder is None else path.name
            file = os.fdopen(os.open(name, wanted, dir_fd=folder), "rb")
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise RecordingError(path, "was no plain file when it was opened", todo=_CHECK)
    return file


def unreadable(path: str | Path, error: OSError | ValueError) -> RecordingError:
    """The error for a file that cannot be opened or read."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return RecordingError(path, f"cannot be read ({reason})", todo=_CHECK)


def text_of(
    path: str | Path,
    encoding: Literal["ascii", "utf-8"],
    *,
    todo: str,
    below: Path | None = None,
) -> str:
    """The text of a small file, read whole.

    Args:
        path: the file.
        encoding: of its bytes.
        todo: what to do about bytes that are no text, for errors.
        below: see `opened`.

    Raises:
        RecordingError: it is no file, cannot be read, has more than `MOST_TEXT` bytes, or a byte
            that is no text, which is named with its line.
    """
    try:
        with opened(path, below=below) as file:
            content = file.read(MOST_TEXT + 1)
    except OSError as error:
        raise unreadable(path, error) from None
    if len(content) > MOST_TEXT:
        raise RecordingError(path, f"has more than {MOST_TEXT} bytes", todo=todo)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        what = f"line {line}: byte {content[error.start]:#04x} at column {column} is no text"
        raise RecordingError(path, what, todo=todo) from None


def json_of(text: str, path: str | Path, *, todo: str) -> Any:
    """What a JSON text says.

    Args:
        text: the JSON.
        path: where it is from, for errors.
        todo: what to do about it, for errors.

    Raises:
        RecordingError: it is no JSON, nested too deep, has a number that is too long, or names a
            key of one object twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise RecordingError(path, f"names {twice!r} twice", todo=todo)
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        what = f"line {error.lineno}: is not valid JSON ({error.msg})"
    except RecursionError:
        what = "is not valid JSON (nested too deep)"
    except ValueError:
        what = "is not valid JSON (a number is too long)"
    raise RecordingError(path, what, todo=todo)


CHUNK = 1 << 24
"""Bytes of plain content read at a time."""

_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError)
_ZSTD_PIECE = 1 << 14
_COPY_AGAIN = "copy it again"


def is_compressed(path: str | Path) -> bool:
    """Whether a file begins as gzip, xz or zstd does.

    Raises:
        RecordingError: the file cannot be read.
    """
    try:
        with opened(path) as file:
            return file.read(len(_XZ)).startswith((_GZIP, _XZ, _ZSTD))
    except OSError as error:
        raise unreadable(path, error) from None


def first_bytes(path: str | Path, count: int) -> bytes:
    """The first bytes of a file's plain content, fewer if it is shorter; errors as `chunks_of`."""
    return next(_pieces(path, count, _COPY_AGAIN, None), b"")


def chunks_of(
    path: str | Path, *, todo: str = _COPY_AGAIN, most: int | None = None
) -> Iterator[bytes]:
    """The plain content of a file that is plain, gzip, xz or zstd, CHUNK bytes at a time.

    Args:
        path: the file.
        todo: what to do about a damaged archive, for errors.
        most: bytes that its plain content may have, None for any number.

    Raises:
        RecordingError: the file cannot be read, is a damaged or cut archive, or goes on behind
            `most`.
    """
    return _pieces(path, CHUNK, todo, most)


def lines_of(path: str | Path, *, most: int | None = None) -> Iterator[str]:
    """The lines of a text file with their ends, which only the last may lack.

    Bytes that are not UTF-8 are replaced. `most` and errors are as of `chunks_of`; a line longer
    than CHUNK is one too.
    """
    rest = b""
    for chunk in chunks_of(path, most=most):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace") + "\n"
        if len(rest) > CHUNK:
            raise RecordingError(path, f"has a line of more than {CHUNK} bytes", todo=_COPY_AGAIN)
    if rest:
        yield rest.decode("utf-8", "replace")


def _pieces(path: str | Path, size: int, todo: str, most: int | None) -> Iterator[bytes]:
    read = 0
    try:
        with opened(path) as file, _plain(file) as content:
            while piece := content.read(size):
                read += len(piece)
                if most is not None and read > most:
                    raise RecordingError(path, f"has more than {most} bytes of content", todo=todo)
                yield piece
    except _DAMAGED as error:
        what = f"is not an intact compressed file ({error})"
        raise RecordingError(path, what, todo=todo) from None
    except OSError as error:
        raise unreadable(path, error) from None


def _plain(file: IO[bytes]) -> IO[bytes]:
    magic = file.read(len(_XZ))
    file.seek(0)
    if magic.startswith(_GZIP):
        return gzip.open(file, "rb")
    if magic.startswith(_XZ):
        return lzma.open(file, "rb")
    if magic.startswith(_ZSTD):
        return io.BufferedReader(_ZstdFrames(file))
    return file


class _ZstdFrames(io.RawIOBase):
    """Frames end to end; unlike zstandard's own reader, it takes a cut frame for an error."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._within_frame = False
        self._packed = b""
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as the next piece goes; 0 at the end."""
        while not self._plain:
            packed = self._packed or self._file.read(_ZSTD_PIECE)
            if not packed and self._within_frame:
                raise EOFError("it ends inside a zstd frame")
            if not packed:
                return 0
            self._plain = memoryview(self._frame.decompress(packed))
            self._within_frame = not self._frame.eof
            self._packed = self._frame.unused_data
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
        count = min(len(buffer), len(self._plain))
        buffer[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count


def copy_file(source: Path, destination: Path, *, below: Path | None = None) -> None:
    """Copy a plain file of at most `MOST_COPIED` bytes; a RecordingError of any other."""
    with opened(source, below=below) as file, destination.open("xb") as copy:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_COPIED:
            raise RecordingError(source, f"has more than {MOST_COPIED} bytes", todo=_COPY_AGAIN)
        while size > 0 and (piece := file.read(min(size, CHUNK))):
            copy.write(piece)
            size -= len(piece)


MOST_COPIED = 1 << 32
"""Bytes of the longest file beside the events that is copied."""


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """A file to write, which takes the other one's place once the block has ended well."""
    with tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as directory:
        partial = Path(directory) / file.name
        yield partial
        os.replace(partial, file)


@contextmanager
def new_directory(directory: Path, *, private: bool = False) -> Iterator[Path]:
    """A directory to write into, which appears under its name once the block has ended well.

    Args:
        directory: must not exist, or be empty.
        private: for the user alone, as perf.data is; else for all whom the umask lets in.

    Yields:
        The same under another name.

    Raises:
        UsageError: the directory has files already, or cannot be made or written.
    """
    directory = directory.absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory}: exists and is not empty; name another directory with -o")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    except OSError as error:
        raise UsageError(f"{directory}: cannot be made ({error.strerror})") from None
    try:
        yield partial
        mask = os.umask(0)  # which can only be read by setting it
        os.umask(mask)
        partial.chmod(0o700 if private else 0o777 & ~mask)
        partial.rename(directory)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
