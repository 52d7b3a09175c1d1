package skills

import (
	"context"
	"time"
)

// PointerKey identifies a pointer to the current version of a skill: an agent's baseline, or the
// version of one user of the agent. Ids are UTF-8 without NUL, 1 to MaxPointerIDBytes long, and
// compared byte by byte: callers must normalise untrusted ids.
type PointerKey struct {
	AgentID string
	SkillID string
	UserID  string // empty: the baseline
}

// MaxPointerIDBytes bounds the ids in the registry: file systems allow no longer names.
const MaxPointerIDBytes = 255

// PointerState is the value of a pointer. Digests are the lower-case hex of a SHA-256.
type PointerState struct {
	// Digest is the current version. Empty: the user has deleted the skill for themselves; a
	// baseline is never empty.
	Digest string
	// BaseDigest is the baseline version that the user's version derives from. Empty for baselines
	// and for the user's own skills.
	BaseDigest string
}

// Pointer is a row of the registry.
type Pointer struct {
	ID string // UUIDv7; stays when the state changes, and is not reused after the pointer was removed
	PointerKey
	PointerState
	CreatedAt time.Time // microseconds, UTC, by the database's clock
	UpdatedAt time.Time // never before CreatedAt, and never decreases
}

// Version is one version of a skill of an agent.
type Version struct {
	SkillID string
	Digest  string
}

// Pinned is the result of Pin.
type Pinned struct {
	// First reports that the user had no pointers for this agent: it is the user's first access. Of
	// concurrent Pins that make pointers, exactly one sets it. While the agent has no baseline,
	// nothing is stored and every call sets it.
	First bool
	Added int // pointers that were made
}

// Registry is the interface to the database that skills needs: the table agent_skill_registry.
// Pointers move by compare-and-swap, so that a version is written completely, without any lock,
// before it becomes visible. store/sqlite and store/postgres implement Registry, and
// store/storetest has the tests of every implementation.
//
// All methods are safe for concurrent use, by any number of nodes on one database. Each is one
// transaction: durable when it returns nil, and without effect when it returns an error, except
// that a response may be lost (fault.DatabaseUnavailable). Reads and Pin can always be repeated. A
// repeated Set or Remove may fail with fault.SkillMoved because the first one succeeded: the caller
// then reads the row, and has succeeded if the row has the wanted state.
//
// Errors: an invalid id is fault.InvalidRequest and names the field; an impossible state, such as a
// baseline without a digest, is a programming error, fault.Internal; a database that does not
// respond is fault.DatabaseUnavailable; the end of ctx is context.Canceled.
//
// Methods that return lists order them by the bytes of their ids, start after the given element
// (the zero value: from the beginning), and return at most limit elements, never nil; fewer than
// limit means that these were the last. Each page is read by itself: a row that is added or removed
// meanwhile may be missing or not, all other rows appear exactly once.
type Registry interface {
	// Get returns a pointer; false when there is none. It does not fall back to the baseline for a
	// user without a pointer.
	Get(ctx context.Context, key PointerKey) (Pointer, bool, error)

	// List returns the pointers of one user of an agent, or with an empty userID the agent's
	// baselines.
	List(ctx context.Context, agentID, userID, afterSkillID string, limit int) ([]Pointer, error)

	// Set changes a pointer to want if its state is what the caller saw: no row (saw is nil), or
	// exactly this state. Of callers who saw the same state and want different ones, exactly one
	// succeeds; the others get fault.SkillMoved and change nothing. It returns the new row. Setting
	// the state that the pointer has already succeeds.
	Set(ctx context.Context, key PointerKey, saw *PointerState, want PointerState) (Pointer, error)

	// Remove deletes the row if its state is what the caller saw; fault.SkillMoved otherwise, also
	// when there is no row. To delete a skill with a baseline for a user, Set an empty digest: a
	// removed row would be pinned again at the next access.
	Remove(ctx context.Context, key PointerKey, saw PointerState) error

	// Pin makes pointers for the user to all current baselines of the agent for which the user has
	// no pointer, not even an empty one: digest and base digest are the baseline's, as of the
	// moment of the commit. So a version that is unused (see Digests) after its baseline has moved
	// is not pinned again. The number of statements does not depend on the number of skills, and a
	// call that pins nothing writes nothing.
	Pin(ctx context.Context, agentID, userID string) (Pinned, error)

	// Digests returns, once each, the versions of an agent's skills that some pointer names as its
	// digest or base digest: garbage collection must keep them. Its cost grows with the versions,
	// not with the users. A Set can name a version at any moment: before a version is deleted, it
	// is made unreachable and looked up again, starting with {SkillID: its skill}.
	Digests(ctx context.Context, agentID string, after Version, limit int) ([]Version, error)

	// Agents returns the agents that have a pointer. Its cost grows with the agents, not with the
	// pointers.
	Agents(ctx context.Context, afterAgentID string, limit int) ([]string, error)

	// Rows returns all pointers of an agent, the baselines first and then the pointers of the
	// users, by user id and skill id. The agent of after is ignored.
	Rows(ctx context.Context, agentID string, after PointerKey, limit int) ([]Pointer, error)
}
