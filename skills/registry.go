package skills

import (
	"context"
	"time"
)

// PointerKey names a pointer: what is current of one skill, as an agent's baseline or for one user of the agent. Ids are UTF-8 without
// NUL, 1 to MaxPointerIDBytes long, and compared byte by byte: whoever takes ids from strangers normalises them first.
type PointerKey struct {
	AgentID string
	SkillID string
	UserID  string // empty: the baseline
}

// MaxPointerIDBytes is the longest id that the registry keeps: the longest name that a file system takes.
const MaxPointerIDBytes = 255

// PointerState is what a pointer says. Digests are lower-case hex of a SHA-256.
type PointerState struct {
	// Digest is the version that is current. Empty: the user has deleted the skill for themselves; a baseline is never empty.
	Digest string
	// BaseDigest is the baseline version that the user's version is based on. Empty for baselines and for skills of the user's own.
	BaseDigest string
}

// Pointer is a row of the registry.
type Pointer struct {
	ID string // UUIDv7; stays when the state changes, and is not given again to a pointer that is made after this one was removed
	PointerKey
	PointerState
	CreatedAt time.Time // microseconds, UTC, by the database's clock
	UpdatedAt time.Time // never before CreatedAt, nor before what it was
}

// Version is one version of a skill of an agent.
type Version struct {
	SkillID string
	Digest  string
}

// Pinned is what Pin found and did.
type Pinned struct {
	// First says that this was the user's first access: there was no pointer of this user for this agent. Of concurrent Pins that pin
	// something exactly one says so. As long as an agent has no baseline, there is nothing to remember an access by, and every call
	// says so.
	First bool
	Added int // pointers that were made
}

// Registry is what skills asks of a database: the table agent_skill_registry. A pointer is moved by compare-and-swap, so that a version
// is written completely, without any lock, before anybody can see it. store/sqlite and store/postgres implement Registry, and
// store/storetest holds what every implementation must do.
//
// All methods are safe for concurrent use, by any number of nodes on one database. Each is one transaction: durable when it answers
// without an error, and without any effect when it answers with one, except that an answer may be lost on its way
// (fault.DatabaseUnavailable). To repeat what reads and Pin is always right. A Set or Remove that is repeated after a lost answer may be
// refused with fault.SkillMoved because the first one was done: the caller reads the row, and if it says what was wanted, all is well.
//
// Errors: an id that cannot be one is fault.InvalidRequest and names the field; a state that cannot be, such as a baseline without a
// digest, is a mistake of the program, fault.Internal; a database that does not answer is fault.DatabaseUnavailable; the end of ctx is
// context.Canceled.
type Registry interface {
	// Get returns a pointer; false when there is none. It does not look at the baseline for a user who has no pointer.
	Get(ctx context.Context, key PointerKey) (Pointer, bool, error)

	// List returns the pointers of one user of an agent, or with an empty userID the agent's baselines, in the order of the bytes of
	// their skill ids: those after afterSkillID (empty: from the first), at most limit. Never nil; fewer than limit means that these
	// were the last. Pages are read one by one, so a pointer that is made or removed meanwhile may be in or not, all others are in
	// exactly once.
	List(ctx context.Context, agentID, userID, afterSkillID string, limit int) ([]Pointer, error)

	// Set makes the pointer say want, if it says what the caller saw: nothing at all (saw is nil), or exactly this state. Of any number
	// of callers who saw the same and want something else, exactly one succeeds; the others get fault.SkillMoved and nothing is
	// changed. It returns the row as it stands then. To set what is there already succeeds.
	Set(ctx context.Context, key PointerKey, saw *PointerState, want PointerState) (Pointer, error)

	// Remove takes the row away if it says what the caller saw; fault.SkillMoved otherwise, also when it is gone. A user's deletion of a
	// skill that has a baseline is no Remove but a Set to an empty digest: what is removed is pinned again at the next access.
	Remove(ctx context.Context, key PointerKey, saw PointerState) error

	// Pin gives the user a pointer to every current baseline of the agent of which the user has no pointer yet, not even an empty one:
	// digest and base digest are the baseline's. What is pinned is current at the moment of the commit, so that a version that is in use
	// by nobody (Digests) after its baseline was moved is not pinned again. The number of statements does not depend on the number of
	// skills, and a call that finds nothing to pin writes nothing.
	Pin(ctx context.Context, agentID, userID string) (Pinned, error)

	// Digests returns the versions of an agent's skills that a pointer names, whoever's it is, as its digest or base digest: those that
	// garbage collection must leave alone. Each comes once, in the order of the bytes of skill id and digest, those after `after` (the
	// zero Version: from the first), at most limit. Never nil; fewer than limit means that these were the last. What it costs grows with
	// the versions, not with the users. A version can come into use again at any moment by a Set: before one is thrown away for good it
	// is put out of reach first and looked up again, with {SkillID: its skill} to begin with.
	Digests(ctx context.Context, agentID string, after Version, limit int) ([]Version, error)

	// Agents returns the agents that have a pointer, in the order of the bytes of their ids: those after afterAgentID (empty: from the
	// first), at most limit. Never nil; fewer than limit means that these were the last. What it costs grows with the agents, not with
	// the pointers.
	Agents(ctx context.Context, afterAgentID string, limit int) ([]string, error)

	// Rows returns all pointers of an agent, the baselines first and then those of the users, in the order of the bytes of user id and
	// skill id: those after `after`, of which the agent is not looked at (the zero PointerKey: from the first), at most limit. Pages are
	// as List's.
	Rows(ctx context.Context, agentID string, after PointerKey, limit int) ([]Pointer, error)
}
