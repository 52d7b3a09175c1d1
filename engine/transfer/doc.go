// Package transfer copies the directories of an exec to a container that mounts none of them, and
// brings back what changed. Both ends use it: core-api calls Send before the job and Receive after
// it, sandbox-init calls Unpack and Unpacked.Changes. It must not know containers, frames,
// projects or the engine; the caller gives it directories and a stream.
//
// # The stream
//
// The stream is a sequence of records: one byte of kind, four bytes of payload length (big endian),
// and the payload. Numbers in payloads are big endian, too; everything else is JSON.
//
//	T  the targets of the directories; first, and only from core-api
//	F  a regular file, followed by its blocks B (offset and data, in ascending order; what lies
//	   between them is zero) and by Z (its size)
//	D  a directory
//	L  a symbolic link
//	G  a name that was removed; all of them come before the records of what is there
//	E  the end, with what was left out, or why the rest is missing; a stream without it is broken
//
// It is no tar archive: tar needs a file's size before its content, which a job may change
// meanwhile, archive/tar writes no sparse files, and its reader knows many formats that a hostile
// sender could choose from.
//
// # What both ends rely on
//
// Trees are hostile: a job may change them while Send reads them. Every directory is opened by
// itself through os.Root, no link is followed, and nothing but regular files is opened. Streams are
// hostile, too: names are checked, entries, depth and bytes are bounded, modes lose all but the
// permissions. A file gets its name when it is complete, so a broken stream leaves no half file.
//
// Changes are found by size, modes, times and inode; the time of the last inode change cannot be
// set by a job. A file that was renamed is a removed name and a new file. Hard links become files
// of their own. A removed name removes a file or an empty directory, never what is in it. So of
// several execs of one project that run at the same time, the last one to end wins for each file
// that it has changed, and keeps the others' files.
package transfer
