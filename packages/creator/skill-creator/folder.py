"""Checks whether a skill's folder can be uploaded. It follows no link and blocks on no file."""

import os
import stat
import unicodedata

import frontmatter
import manifest
from names import encoded, folded, id_fault, name_fault, shown

MIB = 1 << 20
MAX_FILES = 10_000  # regular files, and as many folders
MAX_BYTES = 512 * MIB
MAX_FILE_BYTES = 256 * MIB
MAX_DEPTH = 16  # names in a path below the skill's folder
MAX_PATH_BYTES = 1024  # the skill's folder included
MAX_TEXT_BYTES = MIB  # of SKILL.md and manifest.json

# Of a skill that can be invoked; hidden files do not belong to it.
MAX_TOOL_FILES = 2_000
MAX_TOOL_BYTES = 64 * MIB

DESCRIPTIONS = ("SKILL.md", "skill.md", "README.md")
BLANK = b" \t\r\n\v\f\0\xef\xbb\xbf"

# Files that programs leave behind. They are neither checked nor packed.
LITTER_FOLDERS = {"__MACOSX", "__pycache__", ".git", ".hg", ".svn"}
LITTER_FILES = {".DS_Store", "Icon\r"}


def is_litter(name, is_folder):
    if is_folder:
        return name in LITTER_FOLDERS
    return name in LITTER_FILES or name.startswith("._") or name.lower() == "thumbs.db" or name.endswith(".pyc")


class Entry:
    """A file or folder: path below the skill's folder, with slashes, and the result of lstat."""

    def __init__(self, path, seen):
        self.path, self.seen = path, seen

    @property
    def is_folder(self):
        return stat.S_ISDIR(self.seen.st_mode)


class Folder:
    """A skill's folder. findings are (file, sentence); entries are in the order in which they are packed."""

    def __init__(self, directory):
        self.root = os.path.abspath(directory)
        self.name = os.path.basename(self.root)
        self.findings, self.entries = [], []
        self.files = self.folders = self.bytes = 0
        self.whole = True  # all entries were read
        self.folds = {}
        seen = os.lstat(self.root)
        if not stat.S_ISDIR(seen.st_mode):
            self.find(".", "is a link, not the skill's folder itself" if stat.S_ISLNK(seen.st_mode) else "is no folder")
            return
        why = id_fault(self.name)
        if why:
            self.find(".", f"the folder's name {shown(self.name)} {why}; it is the skill's id: rename the folder")
        self.walk("", 1)
        self.entries.sort(key=lambda e: e.path)
        self.check_descriptions()
        if self.is_regular("manifest.json"):
            self.check_manifest()

    def find(self, path, sentence):
        self.findings.append((path, sentence))

    def walk(self, above, depth):
        try:
            names = sorted(os.listdir(os.path.join(self.root, above)))
        except OSError as e:
            self.find(above or ".", f"cannot be read: {e.strerror}")
            return
        for name in names:
            if not self.whole:
                return
            path = above + name
            seen = os.lstat(os.path.join(self.root, path))
            if is_litter(name, stat.S_ISDIR(seen.st_mode)):
                continue
            why = name_fault(name)
            if why:
                self.find(path, f"the name {why}; rename it")
                continue
            if len(encoded(f"{self.name}/{path}")) > MAX_PATH_BYTES:
                self.find(path, f"the path has more than {MAX_PATH_BYTES} bytes with the skill's name; use shorter names or fewer folders")
                continue
            if depth > MAX_DEPTH:
                self.find(path, f"is more than {MAX_DEPTH - 1} folders deep; use fewer folders")
                return
            self.check_collision(path)
            self.take(path, seen, depth)

    def check_collision(self, path):
        other = self.folds.setdefault(folded(path), path)
        if other == path:
            return
        same = unicodedata.normalize("NFC", other) == unicodedata.normalize("NFC", path)
        self.find(path, f"differs from {shown(other)} only by {'Unicode form' if same else 'case'}; some systems cannot hold both: rename one")

    def take(self, path, seen, depth):
        if stat.S_ISDIR(seen.st_mode):
            self.entries.append(Entry(path, seen))
            self.folders += 1
            if self.folders > MAX_FILES:
                self.stop(f"holds more than {MAX_FILES} folders; use fewer")
            else:
                self.walk(path + "/", depth + 1)
        elif not stat.S_ISREG(seen.st_mode):
            what = "a link" if stat.S_ISLNK(seen.st_mode) else "something special"
            self.find(path, f"is {what}; a skill holds files and folders only: put the file itself there, or remove it")
        else:
            self.entries.append(Entry(path, seen))
            self.files += 1
            self.bytes += seen.st_size
            if seen.st_size > MAX_FILE_BYTES:
                self.find(path, f"has more than {MAX_FILE_BYTES // MIB} MiB; leave it out or split it")
            if self.files > MAX_FILES:
                self.stop(f"holds more than {MAX_FILES} files; leave out what the skill does not need")
            elif self.bytes > MAX_BYTES:
                self.stop(f"holds more than {MAX_BYTES // MIB} MiB; leave out what the skill does not need")

    def stop(self, sentence):
        self.find(".", sentence)
        self.whole = False

    def is_regular(self, path):
        return any(e.path == path and not e.is_folder for e in self.entries)

    def check_descriptions(self):
        for entry in self.entries:  # below the skill's own folder, such a name is one like any other
            if folded(entry.path) == "skill.md" and entry.path not in ("SKILL.md", "skill.md") and not entry.is_folder:
                self.find(entry.path, "SKILL.md is found by exactly this name: rename it")
        if not self.is_regular("SKILL.md"):
            if self.whole:
                self.find("SKILL.md", "does not exist; it says what the skill does and how to use it")
            return
        for path in DESCRIPTIONS:
            if self.is_regular(path) and not self.read(path, MAX_TEXT_BYTES).strip(BLANK):
                self.find(path, "is empty; write into it what the skill does and how to use it")
        for sentence in frontmatter.faults(self.read("SKILL.md", MAX_TEXT_BYTES)):
            self.find("SKILL.md", sentence)

    def check_manifest(self):
        visible = [e for e in self.entries if not any(part.startswith(".") for part in e.path.split("/"))]
        files = [e for e in visible if not e.is_folder]
        if len(files) > MAX_TOOL_FILES or len(visible) - len(files) > MAX_TOOL_FILES:
            self.find(".", f"holds more than {MAX_TOOL_FILES} files or folders, too many for a skill with a manifest.json")
        if sum(e.seen.st_size for e in files) > MAX_TOOL_BYTES:
            self.find(".", f"holds more than {MAX_TOOL_BYTES // MIB} MiB, too much for a skill with a manifest.json")
        for path in ("SKILL.md", "manifest.json"):
            if self.is_regular(path) and self.size(path) > MAX_TEXT_BYTES:
                self.find(path, f"has more than {MAX_TEXT_BYTES} bytes")
        starts = {e.path: self.starts_itself(e.path) for e in files} if len(files) <= MAX_TOOL_FILES else {}
        for pointer, sentence in manifest.faults(self.read("manifest.json", MAX_TEXT_BYTES), self.name, starts):
            self.find("manifest.json", f"{pointer or '/'} {sentence}")

    def size(self, path):
        return next(e.seen.st_size for e in self.entries if e.path == path)

    def starts_itself(self, path):
        head = self.read(path, 4)
        return head[:2] == b"#!" or head == b"\x7fELF"

    def open(self, path):
        """Opens a regular file that is still the one that was seen."""
        seen = next(e.seen for e in self.entries if e.path == path)
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(os.path.join(self.root, path), flags), "rb")
        now = os.fstat(file.fileno())
        if not stat.S_ISREG(now.st_mode) or (now.st_dev, now.st_ino, now.st_size) != (seen.st_dev, seen.st_ino, seen.st_size):
            file.close()
            raise OSError(0, "was changed meanwhile; try again", path)
        return file

    def read(self, path, most):
        try:
            with self.open(path) as file:
                return file.read(most)
        except OSError as e:
            self.find(path, f"cannot be read: {e.strerror}")
            return b""
