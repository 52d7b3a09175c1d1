// Package archive reads the ZIP files that untrusted users upload as skills, and writes those that
// they download. It knows ZIP, names and limits; it must not know HTTP, the registry, agents or
// users.
//
// Everything in an archive is checked, and every decision that the table of contents allows is made
// before a byte is written: Open reads the table with bounded memory, checks every entry and plans
// the whole tree; only then Unpack writes one entry after the other through one small buffer. It
// compares the sizes, checksum and name in the table with the entry itself, and stops at the first
// difference. The package does not use the reader of archive/zip, which holds a table of any length
// in memory, accepts any of several end records, and allows entries to overlap, as the worst ZIP
// bombs do.
//
// # Names
//
// A name is UTF-8 when its flag says so, when it has Info-ZIP's Unicode path field, or when it is
// valid UTF-8; else GBK (decoded as GB18030, its superset), as Windows writes it in China; other
// names are refused. Each entry is decided by itself, with one exception. Short GBK words may be
// valid UTF-8 by chance, but only as characters of two bytes: 模 is "ģ". So when an archive has
// names that can only be GBK, such doubtful names are taken as GBK too; names with UTF-8 characters
// of three or four bytes, as in Chinese, stay UTF-8. Backslashes become slashes after decoding (in
// GBK, 0x5C may be half a character) and before any check. Names keep their Unicode form.
//
// Names are refused that contain "..", are absolute, have a drive, a NUL or a control character,
// that some system does not accept (pathadapter.NameFault), or that some system does not
// distinguish (pathadapter.FoldName). Files that macOS and Windows add by themselves (__MACOSX/,
// .DS_Store, ._x, "Icon\r", Thumbs.db) are left out. Links, devices and everything else that is
// neither a regular file nor a directory is refused. Times and owners are ignored; of the
// permissions, only whether a file is executable is kept. A file without Unix permissions, or from
// a system without executable bits, is executable if it is a program: it begins with #! or is an
// ELF binary.
//
// # The skill
//
// If everything is in one top folder, its name is the skill's id; else the id is the name of the
// uploaded file without .zip. An id is a name that every system accepts, in NFC, of at most 200
// bytes, begins with no dot and has only visible characters; skill-creator, in any case or Unicode
// form, is reserved. A folder A that holds nothing but another A is flattened, repeatedly.
//
// A SKILL.md, skill.md or README.md in the skill's root must not be empty: descriptions are read
// from them. Without them the skill has its folder's name and no description. Beside a SKILL.md in
// the root, one in a folder below is a file like any other. Without it, the folders with a SKILL.md
// are the skills of a repository or a plugin: they are named by an error, and taken one by one or
// all by a Pick.
package archive
