// Package workspace owns the directories that execs see: projects/<project_id>/ with inputs/, work/ and artifacts/<exec_id>/.
//
// It makes them, writes inputs, decides which of them a container gets, and collects what a container left. Everything that lies
// there after a job is hostile: trees are walked and removed iteratively with budgets for depth, entries and time, through os.Root,
// nothing is followed, and nothing but a regular file is opened. The work/ of a user's workspace that nobody uses can be packed, and comes
// back with its next use, see idle.go. The package starts no processes and knows no policy, no audit row
// and no HTTP.
package workspace
