package kube

import (
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"secbox/engine"
	"secbox/engine/initproto"
	"secbox/policy"
)

// containerName is the name of the container in each pod.
const containerName = "sandbox"

// LabelPart is the label of all pods that run jobs, for network policies and the like.
const (
	LabelPart  = "app.kubernetes.io/part-of"
	partOf     = "secbox-jobs"
	annotation = "secbox.project"
)

// lifetime is how long a pod lives at most, in seconds, if it is forgotten: longer than any job
// with the time that its pod has waited.
const lifetime = 7 * 24 * 3600

// cpuRequest is the part of a core that the scheduler counts for a pod, whose limit is the
// policy's: jobs compute seldom. Memory is counted whole.
const cpuRequest = "100m"

// noNameServer stands in a pod's resolv.conf: an address for documentation (RFC 5737).
const noNameServer = "192.0.2.1"

// pod is the pod of a container. It has nothing of the job, and of the request only numbers that
// policy has bounded and ids whose alphabet was checked.
func (c *Cluster) pod(of engine.Container) *corev1.Pod {
	limits := of.Limits()
	uid, gid := userOf(of.Spec.User)
	command := append([]string{engine.InitPath, initproto.PodFlag}, engine.InitArgs(of.Spec)...)
	if of.Copied {
		command = append(command, initproto.FilesArg)
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: of.Name(),
			Labels: map[string]string{
				engine.LabelInstallation: of.Identity.Installation, engine.LabelNode: of.Identity.Node, engine.LabelExec: of.ID,
				LabelPart: partOf,
			},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         new(int64(lifetime)),
			TerminationGracePeriodSeconds: new(int64(1)), // init ignores all signals; 0 would not wait for the kubelet's confirmation
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			Hostname:                      "sandbox", // so that a replay sees the same
			HostAliases:                   []corev1.HostAlias{{IP: "127.0.0.1", Hostnames: []string{"sandbox"}}},
			DNSPolicy:                     corev1.DNSNone,
			DNSConfig:                     &corev1.PodDNSConfig{Nameservers: []string{noNameServer}},
			NodeSelector:                  c.cfg.NodeSelector,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(uid != 0), RunAsUser: &uid, RunAsGroup: &gid,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: containerName, Image: of.Spec.ImageRef, ImagePullPolicy: corev1.PullPolicy(c.cfg.PullPolicy), Command: command,
				WorkingDir: "/", Stdin: true, StdinOnce: true, SecurityContext: hardened(), Resources: resources(limits),
			}},
		},
	}
	if of.Spec.ProjectID != "" {
		p.Annotations = map[string]string{annotation: of.Spec.ProjectID}
	}
	if class := of.Spec.Runtime; class != "" || c.cfg.RuntimeClass != "" {
		if class == "" {
			class = c.cfg.RuntimeClass
		}
		p.Spec.RuntimeClassName = &class
	}
	if c.cfg.PullSecret != "" {
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: c.cfg.PullSecret}}
	}
	c.addVolumes(p, of, limits)
	return p
}

// hardened is what every container of a pod may do.
func hardened() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Privileged: new(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func resources(l policy.ContainerLimits) corev1.ResourceRequirements {
	memory := *resource.NewQuantity(l.MemoryMB<<20, resource.BinarySI)
	cores := *resource.NewMilliQuantity(max(int64(l.CPUCores*1000), 1), resource.DecimalSI)
	request := resource.MustParse(cpuRequest)
	if cores.Cmp(request) < 0 {
		request = cores
	}
	return corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{corev1.ResourceMemory: memory, corev1.ResourceCPU: cores},
		Requests: corev1.ResourceList{corev1.ResourceMemory: memory, corev1.ResourceCPU: request},
	}
}

// addVolumes adds the volumes and mounts of a pod.
func (c *Cluster) addVolumes(p *corev1.Pod, of engine.Container, limits policy.ContainerLimits) {
	main := &p.Spec.Containers[0]
	add := func(name, target string, source corev1.VolumeSource) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: target})
	}
	add("tmp", "/tmp", inMemory(limits.TmpMB))
	add("shm", "/dev/shm", inMemory(min(limits.ShmMB, limits.MemoryMB)))
	if len(of.Mounts) > 0 {
		claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.cfg.VolumeClaim}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
			Name: "workspace", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim},
		})
	}
	if of.Copied {
		c.addDirs(p, of.Spec.Targets)
	}
	for _, m := range of.Mounts {
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{
			Name: "workspace", SubPath: m.Source, MountPath: m.Target, ReadOnly: m.ReadOnly,
		})
	}
	if of.Spec.InitVolume != "" {
		c.addInit(p)
	}
}

// addDirs adds the directories that files are copied to. Each is a mount, which a job cannot
// replace by a link; they are of one volume, so that they have its room together.
func (c *Cluster) addDirs(p *corev1.Pod, targets []string) {
	const name = "files"
	dir := &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(c.cfg.FilesMaxBytes, resource.BinarySI)}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: dir}})
	main := &p.Spec.Containers[0]
	for i, target := range append([]string{"/workspace/inputs", "/workspace/work", "/workspace/artifacts"}, targets...) {
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: target, SubPath: strconv.Itoa(i)})
	}
}

// addInit gives an image without sandbox-init the one of our image.
func (c *Cluster) addInit(p *corev1.Pod) {
	const name, from = "init", "/init"
	dir := engine.InitPath[:strings.LastIndexByte(engine.InitPath, '/')]
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: inMemory(64)})
	main := &p.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: dir, ReadOnly: true})
	p.Spec.InitContainers = []corev1.Container{{
		Name: name, Image: c.cfg.InitImage, ImagePullPolicy: corev1.PullPolicy(c.cfg.PullPolicy),
		Command: []string{"cp", engine.InitPath, from}, SecurityContext: hardened(), Resources: main.Resources,
		VolumeMounts: []corev1.VolumeMount{{Name: name, MountPath: from}},
	}}
}

// inMemory is a directory in the pod's memory.
func inMemory(mb int64) corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(mb<<20, resource.BinarySI),
	}}
}

// userOf splits "uid:gid", which the settings have checked.
func userOf(user string) (uid, gid int64) {
	u, g, _ := strings.Cut(user, ":")
	uid, _ = strconv.ParseInt(u, 10, 64)
	gid, _ = strconv.ParseInt(g, 10, 64)
	return uid, gid
}

// Args implements engine.Driver: the pod as kubectl would create it.
func (c *Cluster) Args(of engine.Container) []string {
	pod, err := json.Marshal(c.pod(of))
	if err != nil {
		pod = []byte(err.Error())
	}
	return []string{"kubectl", "create", "--namespace=" + c.cfg.Namespace, "--filename=-", string(pod)}
}
