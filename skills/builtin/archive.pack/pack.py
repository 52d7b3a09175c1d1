"""Packs a folder below work/ into a ZIP among the artifacts."""

import os
import stat
import sys
import zipfile

sys.path.insert(0, os.path.dirname(__file__))
import tree

ARTIFACTS = "/workspace/artifacts"
BYTES_AT_MOST = 250 << 20  # of the archive: below the manifest's max_artifacts_bytes_total
ENTRIES_AT_MOST = 100000
SKIPPED_AT_MOST = 1000
WHEN = (1980, 1, 1, 0, 0, 0)  # the earliest time in a ZIP; a fixed one, so that the same files give the same archive
CHUNK = 1 << 20


class TooLarge(Exception):
    pass


class Pack:
    def __init__(self, out):
        self.out = out
        self.zip = zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED)
        self.files = self.entries = self.skipped_total = 0
        self.skipped = []

    def skip(self, name, reason):
        self.skipped_total += 1
        if len(self.skipped) < SKIPPED_AT_MOST:
            self.skipped.append({"path": tree.shown(name), "reason": reason})

    def add(self, path, name, kind):
        self.entries += 1
        if self.entries > ENTRIES_AT_MOST:
            raise TooLarge("there are more than %d files and folders" % ENTRIES_AT_MOST)
        if tree.shown(name) != name:
            self.skip(name, "its name is not UTF-8")
        elif "\\" in name:
            self.skip(name, "its name has a backslash, which some programs take for a folder's slash")
        elif kind == "folder":
            self.zip.writestr(entry(name + "/", stat.S_IFDIR | 0o755), b"", zipfile.ZIP_STORED)
        elif kind == "file":
            self.add_file(path, name)
        else:
            self.skip(name, kind)

    def add_file(self, path, name):
        try:
            source = tree.open_file(path)
        except OSError as e:
            self.skip(name, "not readable: " + e.strerror)
            return
        with source:
            st = os.fstat(source.fileno())
            info = entry(name, stat.S_IFREG | (0o755 if st.st_mode & 0o111 else 0o644))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.file_size = left = st.st_size
            with self.zip.open(info, "w") as member:
                while chunk := source.read(min(CHUNK, left)):  # no more than the first size: a process may be writing to it
                    left -= len(chunk)
                    member.write(chunk)
                    if self.out.tell() > BYTES_AT_MOST:
                        raise TooLarge("the archive would be larger than %d bytes" % BYTES_AT_MOST)
        self.files += 1


def entry(name, mode):
    info = zipfile.ZipInfo(name, WHEN)
    info.create_system = 3  # Unix: readers use the mode below
    info.external_attr = mode << 16 | (0x10 if stat.S_ISDIR(mode) else 0)
    return info


def main():
    given = tree.read_input()
    name = given.get("name", "archive.zip")
    if "/" in name or not name.endswith(".zip"):
        tree.refuse("name: %r must be a file's name that ends in .zip" % name)
    start = tree.inside(given.get("path", "."))
    top = tree.WORK + "/" + start
    target = ARTIFACTS + "/" + name
    try:
        with open(target, "xb") as out:
            pack = Pack(out)
            with pack.zip:
                if os.path.isdir(top):
                    for path, kind in tree.walk(top, tree.globs(given.get("exclude", []))):
                        pack.add(top + "/" + path, path, kind)
                else:
                    pack.add(top, os.path.basename(start), "file")
    except TooLarge as e:
        os.unlink(target)
        tree.refuse("%s; pack a smaller folder, or use exclude" % e, 1)
    tree.write_output(
        {
            "archive": name,
            "size": os.path.getsize(target),
            "files": pack.files,
            "skipped": pack.skipped,
            "skipped_total": pack.skipped_total,
        }
    )


main()
