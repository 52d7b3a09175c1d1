"""Packs a skill's folder into a ZIP archive for the upload. The same folder gives the same bytes."""

import os
import stat
import tempfile
import unicodedata
import zipfile
import zlib

MAX_ARCHIVE_BYTES = 256 << 20
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in a ZIP archive
CHUNK = 1 << 16
# Files that compress better than this are stored uncompressed: the upload refuses an entry that unpacks to 200 times its size as a bomb.
MAX_RATIO = 100


def write(folder, target):
    """Packs a folder without findings; the archive appears whole or not at all. Returns its size in bytes."""
    target = os.path.abspath(target)
    directory = os.path.dirname(target)
    try:
        handle, temp = tempfile.mkstemp(prefix=".skill-", suffix=".zip", dir=directory)
    except OSError as e:
        raise OSError(e.errno, e.strerror, target) from None
    try:
        with os.fdopen(handle, "wb") as out:
            with zipfile.ZipFile(out, "w") as archive:
                for entry in folder.entries:
                    add(archive, folder, entry)
            out.flush()
            size = out.tell()
        if size > MAX_ARCHIVE_BYTES:
            raise OSError(0, f"would have {size} bytes, more than the {MAX_ARCHIVE_BYTES >> 20} MiB that an upload may have", target)
        os.chmod(temp, 0o644)
        os.replace(temp, target)
    except BaseException:
        os.unlink(temp)
        raise
    return size


def add(archive, folder, entry):
    top = unicodedata.normalize("NFC", folder.name)
    info = zipfile.ZipInfo(f"{top}/{entry.path}" + ("/" if entry.is_folder else ""), EPOCH)
    info.create_system = 3  # Unix: the attributes are a mode
    if entry.is_folder:
        info.external_attr = (stat.S_IFDIR | 0o755) << 16 | 0x10
        archive.writestr(info, b"")
        return
    info.external_attr = (stat.S_IFREG | (0o755 if entry.seen.st_mode & 0o100 else 0o644)) << 16
    info.compress_type = method(folder, entry)
    info.file_size = entry.seen.st_size
    left = entry.seen.st_size
    with folder.open(entry.path) as source, archive.open(info, "w") as out:
        for chunk in chunks(source):
            left -= len(chunk)
            out.write(chunk)
    if left != 0:
        raise OSError(0, "was changed meanwhile; try again", entry.path)


def method(folder, entry):
    packer, packed = zlib.compressobj(6, zlib.DEFLATED, -15), 0
    with folder.open(entry.path) as source:
        for chunk in chunks(source):
            packed += len(packer.compress(chunk))
    packed += len(packer.flush())
    if packed >= entry.seen.st_size or packed * MAX_RATIO < entry.seen.st_size:
        return zipfile.ZIP_STORED
    return zipfile.ZIP_DEFLATED


def chunks(source):
    while chunk := source.read(CHUNK):
        yield chunk
