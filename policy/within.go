package policy

import (
	"fmt"
	"maps"
	"slices"

	"secbox/fault"
)

// CeilingSession is the source of a ceiling that is the value of an exec's session.
const CeilingSession = "session"

// Within is the policy of an exec that runs in a container with the policy s. The manifest of a
// skill, nil for none, and the request may lower what bounds a single command: time, output,
// artifacts. They cannot change what the container has: the manifest's image and directories must
// be the container's, and its memory, processors and processes are. Its errors are like the errors
// of Resolve.
func (s Snapshot) Within(manifest *Layer, request Layer) (Snapshot, error) {
	out := s
	out.Fields = maps.Clone(s.Fields)
	if bad := Check(request, "policy_overrides."); len(bad) > 0 {
		return out, &fault.Error{Code: fault.InvalidRequest, Message: sentence("fields of the policy make no sense", bad), Fields: bad}
	}
	var denied []fault.Field
	for _, f := range fields {
		n, isNumber := f.(numeric)
		if isNumber && f.bounds() != container {
			n.lowerCeiling(&out)
			if manifest != nil {
				f.apply(manifest, LayerManifest, &out) // one that asks for more gets what the session has
			}
			if v := f.apply(&request, LayerRequest, &out); v != nil {
				v.Reason = fmt.Sprintf("%v is more than the %v of the session; leave it out, or start a session with more", v.Asked, v.Ceiling)
				denied = append(denied, *v)
			}
			continue
		}
		if asked := request.asked(f); asked != nil && asked != s.Fields[f.name()].Value {
			denied = append(denied, fault.Field{
				Field: f.name(), Asked: asked, Ceiling: s.Fields[f.name()].Value, Layer: LayerRequest,
				Reason: "belongs to the session's container; leave it out, or start a session with it",
			})
		}
	}
	if manifest != nil {
		denied = append(denied, s.unfit(manifest)...)
		if m := manifest.NetMode; m != nil && *m == NetNone && s.Values.NetMode != NetNone {
			out.Values.NetMode = NetNone
			out.Fields[FieldNetMode] = Field{Value: NetNone, Layer: LayerManifest, Ceiling: NetNone, CeilingFrom: LayerManifest}
		}
		if _, bound := out.Fields[FieldNetCredentials]; bound { // a skill gets what its manifest asks for
			f := out.Fields[FieldNetCredentials]
			out.Values.NetCredentials = append([]Credential{}, manifest.NetCredentials...)
			f.Value, f.Layer = append([]Credential{}, manifest.NetCredentials...), LayerManifest
			out.Fields[FieldNetCredentials] = f
		}
	}
	out.settle()
	if len(denied) > 0 {
		return out, refusal(denied)
	}
	return out, nil
}

// unfit returns why a skill with this manifest cannot run in a container with the policy s.
func (s Snapshot) unfit(manifest *Layer) (denied []fault.Field) {
	if i := manifest.Image; i != nil && *i != s.Values.Image {
		denied = append(denied, fault.Field{
			Field: FieldImage, Asked: *i, Ceiling: s.Values.Image, Layer: LayerManifest,
			Reason: "is not the image of the session; start a session with the skill's image, or invoke the skill without one",
		})
	}
	if m := manifest.NetMode; m != nil && *m == NetAllowlist {
		if s.Values.NetMode != NetAllowlist || len(uncovered(HostRules(manifest.NetAllow), HostRules(s.Values.NetAllow))) > 0 {
			denied = append(denied, fault.Field{
				Field: FieldNetAllow, Asked: texts(HostRules(manifest.NetAllow)), Ceiling: slices.Clone(s.Values.NetAllow),
				Layer: LayerManifest,
				Reason: "the skill needs a network that the session does not have; start a session with the skill's net.allow, or invoke the " +
					"skill without one",
			})
		}
	}
	for _, c := range manifest.NetCredentials {
		if !slices.ContainsFunc(s.Values.NetCredentials, c.within) {
			denied = append(denied, fault.Field{
				Field: FieldNetCredentials, Asked: slices.Clone(manifest.NetCredentials), Ceiling: slices.Clone(s.Values.NetCredentials),
				Layer: LayerManifest,
				Reason: "the skill needs a secret that the session does not have; start a session with the skill's net.credentials, or invoke " +
					"the skill without one",
			})
			break
		}
	}
	asked := s.Values
	asked.FSRead, asked.FSWrite = canonical(manifest.FSRead), canonical(manifest.FSWrite)
	if theirs, ours := asked.MountModes(), s.Values.MountModes(); theirs != ours {
		denied = append(denied, fault.Field{
			Field: FieldFSWrite, Asked: theirs.String(), Ceiling: ours.String(), Layer: LayerManifest,
			Reason: fmt.Sprintf("the skill wants %s, and the session has %s; start a session whose policy_overrides have the skill's lists, "+
				"or invoke the skill without one", theirs, ours),
		})
	}
	return denied
}

// ForLife is the policy of an exec that may run as long as its session, for so many milliseconds.
func (s Snapshot) ForLife(ms int64) Snapshot {
	s.Fields = maps.Clone(s.Fields)
	s.Values.TimeoutMS = ms
	s.Fields[FieldTimeoutMS] = Field{Value: ms, Layer: LayerBackend, Ceiling: ms, CeilingFrom: CeilingSession}
	return s
}

// asked is the value that a layer asks for of a field that bounds a container; nil: none. A list is
// a string, so that it can be compared with nothing but nil.
func (l *Layer) asked(f field) any {
	switch f := f.(type) {
	case numeric:
		return f.askedValue(&l.Limits)
	case netMode:
		if l.NetMode != nil {
			return *l.NetMode
		}
	case image:
		if l.Image != nil {
			return *l.Image
		}
	case netAllow:
		if l.NetAllow != nil {
			return fmt.Sprint(texts(HostRules(l.NetAllow)))
		}
	case netCredentials:
		if l.NetCredentials != nil {
			return fmt.Sprint(l.NetCredentials)
		}
	case fsList:
		if list := *f.asked(l); list != nil {
			return fmt.Sprint(list)
		}
	}
	return nil
}
