package deploy

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"secbox/settings"
)

// rights are the verbs that core-api needs in the namespace of jobs, by resource.
//
// Once package engine/kube has a list of the calls that it makes, this is that list.
var rights = map[string][]string{
	"pods":        {"create", "delete", "get", "list", "watch"},
	"pods/attach": {"create", "get"},
}

// object is what the tests read of a manifest.
type object struct {
	file string

	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Data  map[string]string
	Rules []struct {
		APIGroups, Resources, Verbs []string
	}
	RoleRef  struct{ Kind, Name string } `yaml:"roleRef"`
	Subjects []struct{ Kind, Name, Namespace string }
	Spec     struct {
		PodSelector map[string]any `yaml:"podSelector"`
		PolicyTypes []string       `yaml:"policyTypes"`
		Ingress     []any
		Egress      []any
		Template    struct {
			Spec podSpec
		}
	}
}

type podSpec struct {
	HostNetwork     bool `yaml:"hostNetwork"`
	HostPID         bool `yaml:"hostPID"`
	SecurityContext struct {
		RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []struct {
		Name            string
		Args            []string
		StartupProbe    *probe `yaml:"startupProbe"`
		LivenessProbe   *probe `yaml:"livenessProbe"`
		ReadinessProbe  *probe `yaml:"readinessProbe"`
		SecurityContext struct {
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
			Privileged               bool
			Capabilities             struct{ Add, Drop []string }
		} `yaml:"securityContext"`
	}
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

// read returns the objects of all files below a directory, without kustomizations. Each file must
// hold whole documents.
func read(t *testing.T, dir string) (out []object) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		documents := yaml.NewDecoder(bytes.NewReader(content))
		for {
			var node yaml.Node
			if err := documents.Decode(&node); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				t.Errorf("%s: %v", path, err)
				return nil
			}
			one := object{file: path}
			if err := node.Decode(&one); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			switch {
			case one.Kind == "":
				t.Errorf("%s: a document without a kind", path)
			case one.Kind != "Kustomization":
				out = append(out, one)
			}
		}
	})
	if err != nil || len(out) == 0 {
		t.Fatal(dir, len(out), err)
	}
	return out
}

// find returns the only object of a kind and name.
func find(t *testing.T, all []object, kind, namespace, name string) object {
	t.Helper()
	var found []object
	for _, one := range all {
		if one.Kind == kind && one.Metadata.Namespace == namespace && one.Metadata.Name == name {
			found = append(found, one)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects are %s %s/%s", len(found), kind, namespace, name)
	}
	return found[0]
}

// TestRights: core-api has the rights that it needs in the namespace of jobs, and no others.
func TestRights(t *testing.T) {
	t.Parallel()
	all := read(t, "kubernetes")
	got := map[string][]string{}
	for _, rule := range find(t, all, "Role", "secbox-jobs", "core-api").Rules {
		for _, resource := range rule.Resources {
			got[resource] = append(got[resource], rule.Verbs...)
			slices.Sort(got[resource])
		}
	}
	for resource, verbs := range rights {
		if !slices.Equal(got[resource], verbs) {
			t.Errorf("%s: the Role has %q, core-api needs %q", resource, got[resource], verbs)
		}
		delete(got, resource)
	}
	if len(got) > 0 {
		t.Errorf("core-api does not need %v", got)
	}
	binding := find(t, all, "RoleBinding", "secbox-jobs", "core-api")
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != "core-api" || binding.Subjects[0].Namespace != "secbox" ||
		binding.RoleRef.Kind != "Role" || binding.RoleRef.Name != "core-api" {
		t.Errorf("%+v", binding)
	}
	for _, one := range all {
		if strings.HasPrefix(one.Kind, "ClusterRole") || (one.Kind == "Role" || one.Kind == "RoleBinding") && one.Metadata.Name != "core-api" {
			t.Errorf("%s: rights that no test knows: %s %s", one.file, one.Kind, one.Metadata.Name)
		}
	}
}

// TestNamespaces: only restricted pods run, and pods of jobs reach nothing.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	all := read(t, "kubernetes/base")
	for _, name := range []string{"secbox", "secbox-jobs"} {
		if got := find(t, all, "Namespace", "", name).Metadata.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
			t.Errorf("%s enforces %q", name, got)
		}
	}
	deny := find(t, all, "NetworkPolicy", "secbox-jobs", "deny-all").Spec
	if len(deny.PodSelector) > 0 || !slices.Equal(deny.PolicyTypes, []string{"Ingress", "Egress"}) || len(deny.Ingress)+len(deny.Egress) > 0 {
		t.Errorf("deny-all is %+v", deny)
	}
}

// TestCoreAPI: the Deployment runs as its namespace demands, and the overlays take nothing back.
func TestCoreAPI(t *testing.T) {
	t.Parallel()
	spec := find(t, read(t, "kubernetes/base"), "Deployment", "secbox", "core-api").Spec.Template.Spec
	one := spec.Containers[0]
	if !spec.SecurityContext.RunAsNonRoot || spec.SecurityContext.SeccompProfile.Type != "RuntimeDefault" || len(spec.Containers) != 1 ||
		one.SecurityContext.AllowPrivilegeEscalation == nil || *one.SecurityContext.AllowPrivilegeEscalation ||
		!one.SecurityContext.ReadOnlyRootFilesystem || !slices.Equal(one.SecurityContext.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("%+v", spec)
	}
	for want, got := range map[string]*probe{"/readyz": one.ReadinessProbe, "/healthz": one.LivenessProbe} {
		if got == nil || got.HTTPGet.Path != want {
			t.Errorf("the probe of %s is %+v", want, got)
		}
	}
	for _, overlay := range []string{"shared-volume", "demo"} {
		spec := find(t, read(t, "kubernetes/overlays/"+overlay), "Deployment", "secbox", "core-api").Spec.Template.Spec
		one := spec.Containers[0].SecurityContext
		if spec.HostNetwork || spec.HostPID || one.Privileged || one.AllowPrivilegeEscalation != nil || len(one.Capabilities.Add) > 0 {
			t.Errorf("%s: %+v", overlay, spec)
		}
	}
}

// TestSettings: core-api starts with each ConfigMap, which holds no secret.
func TestSettings(t *testing.T) {
	t.Parallel()
	for dir, claim := range map[string]string{"base": "", "overlays/shared-volume": "workspace", "overlays/demo": "workspace"} {
		config := find(t, read(t, "kubernetes/"+dir), "ConfigMap", "secbox", "core-api")
		file := filepath.Join(t.TempDir(), "core-api.yaml")
		if err := os.WriteFile(file, []byte(config.Data["core-api.yaml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := settings.Load(file, nil, settings.Overrides{})
		if err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		if got.Addr != "0.0.0.0:8003" || got.DatabaseURL != "" || got.Sandbox.Engine != settings.EngineKubernetes ||
			got.Sandbox.Kubernetes.Namespace != "secbox-jobs" || got.Sandbox.Kubernetes.VolumeClaim != claim {
			t.Errorf("%s: %+v", dir, got.Sandbox)
		}
	}
}

// TestKustomizations: each file of a directory is used, and each that is used exists.
func TestKustomizations(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"kubernetes/base", "kubernetes/overlays/shared-volume", "kubernetes/overlays/demo"} {
		content, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Resources []string
			Patches   []struct{ Path, Patch string }
		}
		if err := yaml.Unmarshal(content, &got); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		used := []string{"kustomization.yaml"}
		for _, resource := range got.Resources {
			if resource != "../../base" {
				used = append(used, resource)
			}
		}
		for _, patch := range got.Patches {
			if patch.Path != "" {
				used = append(used, patch.Path)
			}
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range files {
			files[i] = filepath.Base(files[i])
		}
		if slices.Sort(used); !slices.Equal(used, files) {
			t.Errorf("%s uses %q and has %q", dir, used, files)
		}
	}
}
