"""Files: given by users, compressed, and new ones that appear whole or not at all."""

from __future__ import annotations

import fcntl
import gzip
import json
import lzma
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal
from urllib.parse import quote

import zstandard

from pagealloc_model.base.errors import RecordingError, UsageError

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFIFO: "FIFO",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFSOCK: "socket",
    stat.S_IFDIR: "directory",
}
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_CHECK = "check the path and its permissions"
MOST_TEXT = 1 << 26
"""Bytes of the longest state file or description that is read whole."""


def is_given(path: Path) -> bool:
    """True if the name is there, be it a file or not."""
    return os.path.lexists(path)


def refuse_unless_file(path: str | Path) -> None:
    """A RecordingError unless a plain file is there: no link, FIFO, device, socket, directory."""

    def kind(mode: int) -> str:
        return _KINDS.get(stat.S_IFMT(mode), "thing of no known kind")

    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if stat.S_ISLNK(mode):
        target = ""
        with suppress(OSError, ValueError):
            target = f" to a {kind(os.stat(path).st_mode)}"
        what = f"is a link{target}; symbolic links are not followed"
        raise RecordingError(path, what, todo="put the file itself there")
    if not stat.S_ISREG(mode):
        what = f"is a {kind(mode)}, not a file"
        raise RecordingError(path, what, todo="copy it to a file first")


def given(path: Path) -> Path:
    """The path a user names, links resolved: only files inside a recording may be none."""
    try:
        return path.resolve(strict=True) if path.is_symlink() else path
    except (OSError, RuntimeError):
        raise RecordingError(path, "leads nowhere by symbolic links", todo=_CHECK) from None


def opened(path: str | Path, *, below: Path | None = None) -> BinaryIO:
    """A plain file opened to be read; nothing is waited for, and no link is followed.

    Args:
        path: the file.
        below: a directory that it lies in; directories between the two may be no links either.
    """
    refuse_unless_file(path)
    wanted = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    path = Path(path)
    try:
        with ExitStack() as stack:
            folder = None
            between = path.relative_to(below).parts[:-1] if below is not None else ()
            for place, name in enumerate((below or "", *between) if between else ()):
                how = _FOLDER if place else _FOLDER & ~os.O_NOFOLLOW
                folder = os.open(name, how, dir_fd=folder)
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
    """The text of a file of at most `MOST_TEXT` bytes; a byte that is no text is named.

    Args:
        path: the file.
        encoding: of its bytes.
        todo: for errors about bytes that are no text.
        below: see `opened`.
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
    """The content of a JSON text; `path` and `todo` are for errors, as of a key named twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(values := dict(pairs)) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise RecordingError(path, f"names {twice!r} twice", todo=todo)
        return values

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
_UNPACK = {_GZIP: gzip.open, _XZ: lzma.open}
_COPY_AGAIN = "copy it again"


def is_compressed(path: str | Path) -> bool:
    """True if a file begins as gzip, xz or zstd does."""
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
    """The content of a file that is plain, gzip, xz or zstd, CHUNK bytes at a time.

    Args:
        path: the file.
        todo: for errors about a damaged archive.
        most: bytes that its content may have, None for any number.
    """
    return _pieces(path, CHUNK, todo, most)


def lines_of(path: str | Path, *, most: int | None = None) -> Iterator[str]:
    """The lines of a text file with their ends, as `chunks_of` reads it; none exceeds CHUNK.

    Bytes that are not UTF-8 are replaced.
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


def most_unpacked(path: str | Path) -> int:
    """Bytes that a file's content may unpack to; what is recorded packs to a tenth or so."""
    return max(_UNPACKED, _TIMES_UNPACKED * os.lstat(path).st_size)


_UNPACKED, _TIMES_UNPACKED = 1 << 26, 64


def _pieces(path: str | Path, size: int, todo: str, most: int | None) -> Iterator[bytes]:
    read = 0
    try:
        with opened(path) as file:
            bound = most_unpacked(path) if most is None else most
            magic = file.read(len(_XZ))
            file.seek(0)
            if magic.startswith(_ZSTD):
                pieces = _zstd_pieces(file, size)
            else:
                unpack = next((f for head, f in _UNPACK.items() if magic.startswith(head)), None)
                content = unpack(file) if unpack else file
                pieces = iter(partial(content.read, size), b"")
            for piece in pieces:
                read += len(piece)
                if read > bound:
                    what, if_wanted = f"has more than {bound} bytes of content", "unpack it first"
                    raise RecordingError(path, what, todo=if_wanted if most is None else todo)
                yield piece
    except _DAMAGED as error:
        what = f"is not an intact compressed file ({error})"
        raise RecordingError(path, what, todo=todo) from None
    except OSError as error:
        raise unreadable(path, error) from None


def _zstd_pieces(file: IO[bytes], size: int) -> Iterator[bytes]:
    """The content of frames end to end; unlike for zstandard's readers, a cut one is an error."""
    frame, plain = None, bytearray()
    while packed := file.read(_ZSTD_PIECE):
        while packed:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            plain += frame.decompress(packed)
            packed = frame.unused_data
            frame = None if frame.eof else frame
            while len(plain) >= size:
                yield bytes(plain[:size])
                del plain[:size]
    if frame is not None:
        raise EOFError("it ends inside a zstd frame")
    if plain:
        yield bytes(plain)


def copy_file(source: Path, destination: Path, *, below: Path | None = None) -> None:
    """Copy a plain file of at most `MOST_COPIED` bytes."""
    with (
        opened(source, below=below) as file,
        new_file(destination.parent, destination.name) as copy,
    ):
        size = os.fstat(file.fileno()).st_size
        if size > MOST_COPIED:
            raise RecordingError(source, f"has more than {MOST_COPIED} bytes", todo=_COPY_AGAIN)
        while size > 0 and (piece := file.read(min(size, CHUNK))):
            copy.write(piece)
            size -= len(piece)


MOST_COPIED = 1 << 32
"""Bytes of the longest file beside the events that is copied."""


_PLAIN = re.compile(r"\w[\w+=@,-]*(:[\w.+=@,-]+)?", re.ASCII)
_LONGEST_FILE_NAME = 120
"""Bytes of a name made of a recording's; file systems take 255."""


def file_name_of(name: str) -> str:
    """A name of a recording as a file's: `kmem:mm_page_free` is kmem.mm_page_free.

    Only equal names have equal file names. Any but SYSTEM:EVENT and plain words stands as in URLs
    behind a percent sign, so that it leads to no other directory; long ones end in a digest.
    """
    plain = _PLAIN.fullmatch(name)
    made = name.replace(":", ".") if plain else "%" + quote(name, safe="", errors="replace")
    if len(made) > _LONGEST_FILE_NAME:
        import hashlib  # long names are rare, and OpenSSL is slow to load

        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        made = f"{made[: _LONGEST_FILE_NAME - 17]}%{digest}"
    return made


def new_file(directory: Path, name: str) -> BinaryIO:
    """A new file in a directory, opened to be written, for the user alone.

    Every file that is made beside a recording, or of one, is made here: its name is one name, not
    a path, and nothing has it yet, not even a link.

    Raises:
        UsageError: the name is no plain one, or a file has it, or the directory cannot be written.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise UsageError(f"{directory}: {name!r} is no name of a file in it")
    how = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(directory / name, how, _ONLY_OURS), "w+b")
    except OSError as error:
        raise UsageError(f"{directory / name}: cannot be made ({error.strerror})") from None


_ONLY_OURS = 0o600


_TEMPORARY, _MARK = "pagealloc.", ".temporary"
"""Beginning of a temporary directory's name; a file in it, since users name directories so, too."""
_held_open: dict[Path, int] = {}
"""Locked descriptors of this process's temporary directories."""


def temporary_directory(place: str | None = None) -> Path:
    """A directory for this user alone, which its maker removes with `remove_temporary`.

    Its maker holds a lock on it. Those of this user whose maker was killed, so that nobody holds
    theirs, are removed first.

    Args:
        place: where it is made; None for the usual directory of temporary files.
    """
    parent = Path(place or tempfile.gettempdir())
    for left in parent.glob(f"{_TEMPORARY}????????"):
        with suppress(OSError):
            about = left.lstat()
            is_own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
            if is_own and is_given(left / _MARK):
                lock = _locked(left)
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)
    while True:
        made = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=parent))
        with suppress(OSError):  # another process took it for one that was left
            lock = _locked(made)
            if made.exists():
                (made / _MARK).touch()
                _held_open[made] = lock
                return made
            os.close(lock)


def remove_temporary(directory: Path) -> None:
    """Remove what `temporary_directory` made."""
    shutil.rmtree(directory, ignore_errors=True)
    if directory in _held_open:
        os.close(_held_open.pop(directory))


def _locked(directory: Path) -> int:
    """A descriptor that holds the directory's lock; an OSError if another process has it."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        raise
    return opened


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """A file to write, which takes the other one's place once the block has ended well."""
    with tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as directory:
        partial = Path(directory) / file.name
        yield partial
        os.replace(partial, file)


@contextmanager
def new_directory(directory: Path, *, private: bool = False) -> Iterator[Path]:
    """A directory to write into, which takes its name once the block has ended well.

    Args:
        directory: must not exist, or be empty; else a UsageError.
        private: for the user alone, as perf.data is; else for all whom the umask lets in.
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
