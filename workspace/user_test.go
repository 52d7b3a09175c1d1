//go:build unix

package workspace_test

import (
	"testing"

	"secbox/workspace/tree/treetest"
)

func TestAsAnOrdinaryUser(t *testing.T) {
	treetest.AsUser(t,
		"^Test(HundredThousandFiles|ThousandsOfNestedDirectories|PathRoomIsBounded|GrowthWhileTheTreeIsChanged|ManyDirectoriesCountToo|RetentionSparesMounts|MountsAreNotRemovedWithWorkspaces|MountedWorkspacesStay|NoRoomToUnpack|MountsAreNotCollected)$", "TestModeZeroEntriesAreCollected")
}
