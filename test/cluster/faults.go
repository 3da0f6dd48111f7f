package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// StartAPI starts etcd and the API server where they do not run, and waits until the latter is ready.
func (k *Cluster) StartAPI(ctx context.Context) error {
	for _, p := range []*process{k.etcd, k.api} {
		if p.running() {
			continue
		}
		if err := p.start(); err != nil {
			return err
		}
	}
	return until(ctx, startTime, "the API server", func(ctx context.Context) error {
		for _, p := range []*process{k.etcd, k.api} {
			if !p.running() {
				return fatalError{fmt.Errorf("%s has ended", p.name)}
			}
		}
		return k.Admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// StopAPI ends the API server as an update does: with SIGTERM.
func (k *Cluster) StopAPI() { k.api.stop() }

// KillAPI ends the API server as a crash does.
func (k *Cluster) KillAPI() { k.api.kill() }

// PauseAPI stops the API server's clock, or lets it go on: its connections stay, and nothing answers.
func (k *Cluster) PauseAPI(pause bool) error { return k.api.pause(pause) }

// PauseStore does the same to etcd: the API server answers what it has in its cache.
func (k *Cluster) PauseStore(pause bool) error { return k.etcd.pause(pause) }

// Save copies the store as it is at one moment, and gives a name for Rewind.
func (k *Cluster) Save() (name string, err error) {
	to, err := os.MkdirTemp(k.config.Dir, "saved-")
	if err != nil {
		return "", err
	}
	// What a crash at this moment would leave; etcd starts from that.
	if err := k.etcd.pause(true); err != nil {
		return "", err
	}
	return to, errors.Join(os.CopyFS(filepath.Join(to, "etcd"), os.DirFS(k.data())), k.etcd.pause(false))
}

// Rewind restores the store to what Save copied, as from a backup: resource
// versions go back, and will be used anew. The API server, the controllers and the
// scheduler are started anew with it, as Kubernetes' documentation of such a restore
// says; the nodes are the caller's.
func (k *Cluster) Rewind(ctx context.Context, name string) error {
	for _, p := range append(slices.Clone(k.others), k.api, k.etcd) {
		p.kill()
	}
	if err := os.RemoveAll(k.data()); err != nil {
		return err
	}
	if err := os.CopyFS(k.data(), os.DirFS(filepath.Join(name, "etcd"))); err != nil {
		return fmt.Errorf("restore %s: %w", name, err)
	}
	if err := k.StartAPI(ctx); err != nil {
		return err
	}
	for _, p := range k.others {
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

func (k *Cluster) data() string { return filepath.Join(k.config.Dir, "etcd") }
