package migrations

// LockID and LockFile are the locks that a migrating node takes.
const LockID = lockID

var LockFile = lockFile
