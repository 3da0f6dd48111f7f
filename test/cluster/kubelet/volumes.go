package kubelet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// files are the contents of one volume by their relative paths.
type files map[string][]byte

// volumes makes the pod's volumes, and gives when they are to be made anew because a
// token in them gets old; zero for never.
func (w *worker) volumes(ctx context.Context) (renew time.Time, err error) {
	for i := range w.pod.Spec.Volumes {
		v := &w.pod.Spec.Volumes[i]
		dir := w.volumeDir(v.Name)
		if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // containers have users of their own
			return time.Time{}, err
		}
		if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // despite the umask
			return time.Time{}, err
		}
		content, expires, err := w.content(ctx, v)
		if err != nil {
			return time.Time{}, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		if !expires.IsZero() {
			// kubelet renews when 80% of the time have passed.
			at := time.Now().Add(time.Until(expires) * 4 / 5)
			if renew.IsZero() || at.Before(renew) {
				renew = at
			}
		}
		for name, text := range content {
			if err := write(filepath.Join(dir, name), text); err != nil {
				return time.Time{}, fmt.Errorf("volume %s: %w", v.Name, err)
			}
		}
	}
	return renew, nil
}

func (w *worker) volumeDir(name string) string { return filepath.Join(w.dir, "volumes", name) }

// write puts a file in place by one rename, so that no reader sees half of it.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // containers have users of their own
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o644); err != nil { //nolint:gosec // as above
		return err
	}
	return os.Rename(path+".new", path)
}

// content gives the files of a volume, and when the first of them expires.
func (w *worker) content(ctx context.Context, v *v1.Volume) (files, time.Time, error) {
	switch {
	case v.EmptyDir != nil:
		return nil, time.Time{}, nil
	case v.ConfigMap != nil:
		f, err := w.configMap(ctx, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
		return f, time.Time{}, err
	case v.Secret != nil:
		f, err := w.secret(ctx, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
		return f, time.Time{}, err
	case v.DownwardAPI != nil:
		f, err := w.downward(v.DownwardAPI.Items)
		return f, time.Time{}, err
	case v.Projected != nil:
		return w.projected(ctx, v.Projected)
	default:
		return nil, time.Time{}, fmt.Errorf("its kind is not played here")
	}
}

func (w *worker) projected(ctx context.Context, p *v1.ProjectedVolumeSource) (files, time.Time, error) {
	all := make(files)
	var expires time.Time
	for _, s := range p.Sources {
		var f files
		var err error
		switch {
		case s.ServiceAccountToken != nil:
			var until time.Time
			f, until, err = w.token(ctx, s.ServiceAccountToken)
			if expires.IsZero() || until.Before(expires) {
				expires = until
			}
		case s.ConfigMap != nil:
			f, err = w.configMap(ctx, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
		case s.Secret != nil:
			f, err = w.secret(ctx, s.Secret.Name, s.Secret.Items, s.Secret.Optional)
		case s.DownwardAPI != nil:
			f, err = w.downward(s.DownwardAPI.Items)
		default:
			err = fmt.Errorf("a projected source is not played here: %v", s)
		}
		if err != nil {
			return nil, time.Time{}, err
		}
		maps.Copy(all, f)
	}
	return all, expires, nil
}

// token asks the API for a token of the pod's service account that ends with the pod.
func (w *worker) token(ctx context.Context, s *v1.ServiceAccountTokenProjection) (files, time.Time, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: s.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: w.pod.Name, UID: w.pod.UID},
	}}
	if s.Audience != "" {
		request.Spec.Audiences = []string{s.Audience}
	}
	got, err := w.node.client.CoreV1().ServiceAccounts(w.pod.Namespace).
		CreateToken(ctx, w.pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, time.Time{}, err
	}
	return files{s.Path: []byte(got.Status.Token)}, got.Status.ExpirationTimestamp.Time, nil
}

func (w *worker) configMap(ctx context.Context, name string, items []v1.KeyToPath, optional *bool) (files, error) {
	m, err := w.node.client.CoreV1().ConfigMaps(w.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, absent(err, optional)
	}
	content := make(files)
	for k, v := range m.Data {
		content[k] = []byte(v)
	}
	maps.Copy(content, m.BinaryData)
	return content.pick(items), nil
}

func (w *worker) secret(ctx context.Context, name string, items []v1.KeyToPath, optional *bool) (files, error) {
	s, err := w.node.client.CoreV1().Secrets(w.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, absent(err, optional)
	}
	return files(s.Data).pick(items), nil
}

func absent(err error, optional *bool) error {
	if optional != nil && *optional {
		return nil
	}
	return err
}

func (f files) pick(items []v1.KeyToPath) files {
	if len(items) == 0 {
		return f
	}
	picked := make(files)
	for _, i := range items {
		picked[i.Path] = f[i.Key]
	}
	return picked
}

func (w *worker) downward(items []v1.DownwardAPIVolumeFile) (files, error) {
	content := make(files)
	for _, i := range items {
		if i.FieldRef == nil {
			return nil, fmt.Errorf("%s: only fields are played here", i.Path)
		}
		value, err := w.field(i.FieldRef.FieldPath)
		if err != nil {
			return nil, err
		}
		content[i.Path] = []byte(value)
	}
	return content, nil
}

// etc writes what is in /etc of every container of the pod.
func (w *worker) etc() (string, error) {
	dir := filepath.Join(w.dir, "etc")
	search := w.pod.Namespace + ".svc.cluster.local svc.cluster.local cluster.local"
	resolv := "search " + search + "\nnameserver " + w.node.config.DNS.String() + "\noptions ndots:5\n"
	if w.pod.Spec.DNSPolicy == v1.DNSNone && w.pod.Spec.DNSConfig != nil {
		resolv = "nameserver " + strings.Join(w.pod.Spec.DNSConfig.Nameservers, "\nnameserver ") + "\n"
	}
	name := hostname(w.pod)
	if w.pod.Spec.Subdomain != "" {
		name = name + "." + w.pod.Spec.Subdomain + "." + w.pod.Namespace + ".svc.cluster.local " + name
	}
	for file, content := range map[string]string{
		"resolv.conf":   resolv,
		"hosts":         "127.0.0.1 localhost\n::1 localhost\n" + w.v4.String() + " " + name + "\n" + w.v6.String() + " " + name + "\n",
		"hostname":      hostname(w.pod) + "\n",
		"nsswitch.conf": "hosts: files dns\n",
		"passwd":        "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
		"group":         "root:x:0:\nnonroot:x:65532:\n",
	} {
		if err := write(filepath.Join(dir, file), []byte(content)); err != nil {
			return "", err
		}
	}
	return dir, nil
}
