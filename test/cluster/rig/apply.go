package rig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// Manager is who owns what Apply writes.
const Manager = "rig"

// Apply applies YAML documents as `kubectl apply --server-side` does, in their order. Namespaced
// objects without a namespace go into the one given. dryRun only asks whether the server would
// take them.
func (r *Rig) Apply(ctx context.Context, namespace string, manifests []byte, dryRun bool) error {
	client, err := dynamic.NewForConfig(r.AdminConfig)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(r.Admin.Discovery()))
	objects, err := documents(manifests)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: Manager, Force: new(true), FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	for _, o := range objects {
		kind := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		var to dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			if o.GetNamespace() == "" {
				o.SetNamespace(namespace)
			}
			to = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
		}
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		if _, err := to.Patch(ctx, o.GetName(), types.ApplyPatchType, text, options); err != nil {
			return fmt.Errorf("apply %s %s/%s: %w", kind.Kind, o.GetNamespace(), o.GetName(), err)
		}
	}
	return nil
}

// documents reads objects from YAML.
func documents(manifests []byte) ([]*unstructured.Unstructured, error) {
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	var all []*unstructured.Unstructured
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		var content map[string]any
		if err := yaml.Unmarshal(text, &content); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, text)
		}
		if len(content) > 0 {
			all = append(all, &unstructured.Unstructured{Object: content})
		}
	}
}
