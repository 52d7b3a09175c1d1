package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"secbox/audit/admin"
	"secbox/fault"
	"secbox/internal/buildinfo"
	"secbox/internal/statedir"
	"secbox/settings"
)

// acting returns a context in which this node acts.
func (s *Server) acting(ctx context.Context) context.Context {
	return admin.OnNode(ctx, s.state.NodeID())
}

// asked returns a context for requests whose caller is not known yet. It has limits, unlike the
// node.
func (s *Server) asked(ctx context.Context) context.Context {
	return admin.By(s.acting(ctx), admin.Actor{Type: admin.ByUnknown})
}

// downloads returns the recorder of downloads.
func (s *Server) downloads() admin.Downloads {
	return admin.Downloads{Store: s.db.AdminEvents(), Limits: s.db.Limits()}
}

// recordStart writes the event of the node's start before any request is served. shutdown writes
// its end.
func (s *Server) recordStart(ctx context.Context) error {
	ctx = s.acting(ctx)
	node, events := s.state.NodeID(), s.db.AdminEvents()
	data := map[string]any{"version": buildinfo.Version, "settings_digest": s.settings.Digest()}
	var last [2]admin.Event
	for i, kind := range []admin.Kind{admin.NodeStarted, admin.NodeEnded} {
		newest, err := events.List(ctx, admin.Filter{Subject: node, Kind: kind}, nil, 1)
		if err != nil {
			return err
		}
		if len(newest) > 0 {
			last[i] = newest[0]
		}
	}
	if started, ended := last[0], last[1]; started.Seq > 0 {
		data["previous_end_recorded"] = ended.Seq > started.Seq
	}
	path := filepath.Join(s.state.Path(), settingsFile)
	remember, changed, err := compareSettings(path, s.settings)
	if err != nil {
		return err
	}
	if changed != nil {
		data["settings_changed"] = changed
	}
	if err := admin.Record(ctx, events, admin.NodeStarted, node, data); err != nil {
		return err
	}
	s.recorded = true
	if err := remember(); err != nil {
		s.log.Warn("the next start of this node cannot tell which settings have changed", "error", err)
	}
	return nil
}

// recordEnd writes the event of the node's end. Without a database it cannot; the event of the next
// start says so.
func (s *Server) recordEnd(ctx context.Context) {
	if !s.recorded {
		return
	}
	ctx = s.acting(context.WithoutCancel(ctx))
	data := map[string]any{"version": buildinfo.Version}
	if err := admin.Record(ctx, s.db.AdminEvents(), admin.NodeEnded, s.state.NodeID(), data); err != nil {
		s.log.Warn("the end of this node could not be recorded; its next start will tell", "error", err)
	}
}

// settingsFile has the fingerprints of the settings of the last start.
const settingsFile = "settings.last"

const maxSettingsFile = 1 << 20 // bytes

// settingsSeen is the content of settingsFile.
type settingsSeen struct {
	Key          []byte            `json:"key"` // of the fingerprints; random
	Fingerprints map[string]string `json:"fingerprints"`
}

// compareSettings returns the names of the settings that have changed since remember was last
// called, nil if it never was.
func compareSettings(path string, cfg settings.Settings) (remember func() error, changed []string, err error) {
	var seen settingsSeen
	text, err := statedir.Read(path, maxSettingsFile)
	if err == nil && json.Unmarshal(text, &seen) == nil && len(seen.Key) > 0 {
		changed = []string{}
		now := cfg.Fingerprints(seen.Key)
		for _, name := range slices.Sorted(maps.Keys(now)) {
			if now[name] != seen.Fingerprints[name] {
				changed = append(changed, name)
			}
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fault.Wrap(fault.InvalidSettings, err, "cannot read %s: %s", path, fault.Reason(err))
	}
	if err == nil && changed != nil && len(changed) == 0 {
		return func() error { return nil }, changed, nil
	}
	return func() error {
		key := make([]byte, 32)
		rand.Read(key) // never fails
		text, err := json.Marshal(settingsSeen{key, cfg.Fingerprints(key)})
		if err == nil {
			err = os.WriteFile(path+".new", text, 0o600)
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			return fault.Wrap(fault.InvalidSettings, err, "cannot write %s: %s", path, fault.Reason(err))
		}
		return nil
	}, changed, nil
}
