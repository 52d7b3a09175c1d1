// Package archive reads the ZIP files that strangers upload as skills and writes those that users download. It knows ZIP, names and
// limits; it knows no HTTP, no registry, no agent and no user.
//
// Nothing in an archive is believed before it is checked against something else, and everything that can be decided from the table of
// contents is decided before a byte is written: Unpack reads the table with bounded memory, judges every entry, plans the whole
// tree, and only then unpacks, one entry after the other through one small buffer. What the table says of an entry (sizes, checksum,
// name) is then held against the entry itself, and the first lie ends it. The reader is our own because archive/zip holds the whole
// table in memory however long it is, takes any of several ends, and does not mind entries that share their bytes, of which the worst
// bombs are made.
//
// # Names
//
// A name is UTF-8 when its flag says so, when it brings Info-ZIP's Unicode path field, or when it simply is valid UTF-8; else GBK
// (decoded as GB18030, its superset), as Windows writes it in China; a name that is neither is refused. Each entry is decided for
// itself, with one exception. Short GBK words may happen to be valid UTF-8, but then only as characters of two bytes: 模 is "ģ". So
// when an archive holds names that can only be GBK, such a doubtful name is taken for GBK too; names with UTF-8's characters of three
// or four bytes, Chinese among them, stay UTF-8. Backslashes become slashes after decoding (in GBK, 0x5C may be half a character) and
// before anything is checked. Names keep their Unicode form.
//
// Refused are names that climb, are absolute, hold a drive, a NUL or a control character, names that some system does not take as
// themselves (pathadapter.NameFault), and names that some system takes for one (pathadapter.FoldName). What macOS and Windows add by
// themselves (__MACOSX/, .DS_Store, ._x, "Icon\r", Thumbs.db) is left out. Links, devices and everything else that is neither a
// regular file nor a directory is refused. Times and owners are not taken over; of the permissions, whether a file is executable.
//
// # The skill
//
// When everything lies in one top folder, that folder gives the skill's id; else the uploaded file's name without .zip does. An id is a
// name that every system takes, in NFC, of at most 200 bytes, begins with no dot and shows every character it has; skill-creator, in
// any case or Unicode form, is reserved. A folder A that holds nothing but another A is flattened, as often as it happens.
//
// A SKILL.md, skill.md or README.md in the skill's root must not be empty: descriptions are read from them. Without them the skill has
// its folder's name and no description. A SKILL.md in a folder below is a file like any other beside one of them; without them it is
// refused, because the archive holds several skills, or a folder too much around one.
package archive
