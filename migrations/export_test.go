package migrations

// LockID is the advisory lock of a migrating node.
const LockID = lockID
