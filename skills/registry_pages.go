package skills

import "context"

// page is the number of rows read at once.
const page = 500

// PointersOf reads all pointers of a user of an agent, or with an empty userID all baselines, by
// skill id.
func PointersOf(ctx context.Context, r Registry, agentID, userID string) (map[string]Pointer, error) {
	all := map[string]Pointer{}
	for after := ""; ; {
		rows, err := r.List(ctx, agentID, userID, after, page)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			all[row.SkillID] = row
			after = row.SkillID
		}
		if len(rows) < page {
			return all, nil
		}
	}
}

// UsedDigests reads the digests of a skill's versions that some pointer names.
func UsedDigests(ctx context.Context, r Registry, agentID, skillID string) (map[string]bool, error) {
	used := map[string]bool{}
	for after := (Version{SkillID: skillID}); ; {
		versions, err := r.Digests(ctx, agentID, after, page)
		if err != nil {
			return nil, err
		}
		for _, v := range versions {
			if v.SkillID != skillID {
				return used, nil
			}
			used[v.Digest] = true
			after = v
		}
		if len(versions) < page {
			return used, nil
		}
	}
}
