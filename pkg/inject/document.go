package inject

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Result is what Documents gives.
type Result struct {
	// Text holds all documents in their order.
	Text []byte
	// Notes are for people: which workloads were changed, which were passed over
	// and why, one line each, in the order of the documents.
	Notes []string
	// Warnings name annotations and labels of ours that nobody reads, with their
	// object and field, one line each.
	Warnings []string
}

// Documents adds the proxy to every workload among YAML or JSON documents. A
// workload is a Pod, or what makes pods: a Deployment, ReplicaSet, StatefulSet or DaemonSet
// (apps/v1), a Job or CronJob (batch/v1), a ReplicationController or PodTemplate (v1); a List
// is looked into. The error joins one line for each thing that is wrong, with the object and the
// field; there is no Result then.
func Documents(in []byte, c Config) (Result, error) {
	var out Result
	var wrong []error
	for i, doc := range split(in) {
		text, told, err := c.document(doc)
		if err != nil {
			wrong = append(wrong, named(fmt.Sprintf("document %d", i+1), err))
		}
		out.Text = append(out.Text, text...)
		out.Notes = append(out.Notes, told.notes...)
		out.Warnings = append(out.Warnings, told.warnings...)
	}
	if err := errors.Join(wrong...); err != nil {
		return Result{}, err
	}
	return out, nil
}

// told is what people are told of one document, as in Result.
type told struct{ notes, warnings []string }

func (t *told) add(more told) {
	t.notes, t.warnings = append(t.notes, more.notes...), append(t.warnings, more.warnings...)
}

// split cuts at the lines that begin a document. Each part but the first
// begins with that line, so that the parts joined are the input.
func split(in []byte) [][]byte {
	var parts [][]byte
	begin, at := 0, 0
	for line := range bytes.Lines(in) {
		if at > begin && isSeparator(line) {
			parts, begin = append(parts, in[begin:at]), at
		}
		at += len(line)
	}
	return append(parts, in[begin:])
}

func isSeparator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0])))
}

// document gives one document with the proxies added; byte for byte as it was
// when there is nothing to add.
func (c Config) document(doc []byte) (text []byte, say told, err error) {
	value, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, told{}, fmt.Errorf("no YAML: %s", strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: "))
	}
	var tree any
	if err := kjson.Unmarshal(value, &tree); err != nil {
		return nil, told{}, err
	}
	object, ok := tree.(map[string]any)
	if !ok {
		return doc, told{}, nil
	}
	changed, say, err := c.object(object, 0)
	if err != nil || !changed {
		return doc, say, err
	}
	text, err = yaml.Marshal(object)
	if err != nil {
		return nil, told{}, fmt.Errorf("write %s: %w", nameOf(object), err)
	}
	if first, _, _ := bytes.Cut(doc, []byte("\n")); isSeparator(first) {
		text = append([]byte("---\n"), text...)
	}
	return text, say, nil
}

// maxListDepth bounds a List within a List.
const maxListDepth = 4

// object changes one object, or the items of a list.
func (c Config) object(o map[string]any, depth int) (changed bool, say told, err error) {
	if items, ok := o["items"].([]any); ok && o["kind"] == "List" && o["apiVersion"] == "v1" && depth < maxListDepth {
		var wrong []error
		for i, item := range items {
			inner, ok := item.(map[string]any)
			if !ok {
				continue
			}
			did, more, err := c.object(inner, depth+1)
			if err != nil {
				wrong = append(wrong, named(fmt.Sprintf("items[%d]", i), err))
			}
			changed = changed || did
			say.add(more)
		}
		return changed, say, errors.Join(wrong...)
	}
	path, ok := templatePath(o)
	if !ok {
		return false, told{}, nil
	}
	name := nameOf(o)
	changed, note, err := c.template(o, path)
	if err != nil {
		return false, told{}, named(name, err)
	}
	say.notes = []string{name + ": " + note}
	for _, w := range unread(o, path) {
		say.warnings = append(say.warnings, name+": "+w)
	}
	return changed, say, nil
}

// named puts a name before each line of err.
func named(name string, err error) error {
	var lines []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		lines = append(lines, errors.New(name+": "+line))
	}
	return errors.Join(lines...)
}

// templatePath is where a kind has its pod; false for what makes no pods.
func templatePath(o map[string]any) ([]string, bool) {
	switch fmt.Sprint(o["apiVersion"], " ", o["kind"]) {
	case "v1 Pod":
		return nil, true
	case "v1 PodTemplate":
		return []string{"template"}, true
	case "apps/v1 Deployment", "apps/v1 ReplicaSet", "apps/v1 StatefulSet", "apps/v1 DaemonSet", "batch/v1 Job", "v1 ReplicationController":
		return []string{"spec", "template"}, true
	case "batch/v1 CronJob":
		return []string{"spec", "jobTemplate", "spec", "template"}, true
	}
	return nil, false
}

// nameOf is "Deployment default/web", or without the namespace where there is none.
func nameOf(o map[string]any) string {
	meta, _ := o["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if name == "" {
		generated, _ := meta["generateName"].(string)
		name = generated + "*"
	}
	if namespace, _ := meta["namespace"].(string); namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprint(o["kind"], " ", name)
}

// template changes the pod, or the pod's template, at a path of an object. The
// tree keeps what the typed form does not know.
func (c Config) template(o map[string]any, path []string) (changed bool, note string, err error) {
	tree, at := o, ""
	for _, step := range path {
		next, ok := tree[step].(map[string]any)
		at += step
		if !ok {
			return false, "", fmt.Errorf("%s: missing, or no object", at)
		}
		tree, at = next, at+"."
	}
	spec, ok := tree["spec"].(map[string]any)
	if !ok {
		return false, "", fmt.Errorf("%sspec: missing, or no object", at)
	}
	var pod corev1.PodTemplateSpec
	if err := typed(map[string]any{"metadata": tree["metadata"], "spec": spec}, &pod); err != nil {
		return false, "", fmt.Errorf("%s%w", at, err)
	}
	// A wrong annotation is wrong on a pod that is passed over, too.
	todo, err := c.changesOf(&pod.ObjectMeta, &pod.Spec, at)
	if err != nil {
		return false, "", err
	}
	if reason := PassedOver(&pod.ObjectMeta, &pod.Spec); reason != "" {
		return false, "not injected: " + reason, nil
	}
	if len(pod.Spec.Containers) == 0 {
		return false, "", fmt.Errorf("%sspec.containers: empty", at)
	}
	changed, err = todo.apply(spec)
	if note = "injected"; !changed {
		note = "has the proxy already"
	}
	if len(todo.kept) > 0 {
		note += "; a preStop of their own keep: " + strings.Join(todo.kept, ", ")
	}
	return changed, note, err
}

// typed reads the known fields of a tree.
func typed(tree map[string]any, into *corev1.PodTemplateSpec) error {
	text, err := kjson.Marshal(tree)
	if err != nil {
		return err
	}
	if err := kjson.Unmarshal(text, into); err != nil {
		// "json: cannot unmarshal string into Go struct field PodTemplateSpec.spec.hostNetwork of type bool"
		reason := err.Error()
		if before, after, ok := strings.Cut(reason, "Go struct field "); ok {
			_, field, _ := strings.Cut(after, ".")
			field, kind, _ := strings.Cut(field, " of type ")
			return fmt.Errorf("%s: %s%s", field, strings.TrimPrefix(before, "json: "), kind)
		}
		return errors.New(reason)
	}
	return nil
}

// apply makes the changes to the tree of a pod's spec.
func (c changes) apply(spec map[string]any) (changed bool, err error) {
	var first []any
	for i := range c.init {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c.init[i])
		if err != nil {
			return false, fmt.Errorf("container %s: %w", c.init[i].Name, err)
		}
		first = append(first, tree)
	}
	if len(first) > 0 {
		old, _ := spec["initContainers"].([]any)
		spec["initContainers"] = append(first, old...)
	}
	for i := range c.volumes {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c.volumes[i])
		if err != nil {
			return false, fmt.Errorf("volume %s: %w", c.volumes[i].Name, err)
		}
		old, _ := spec["volumes"].([]any)
		spec["volumes"] = append(old, tree)
	}
	containers, _ := spec["containers"].([]any)
	for i, handler := range c.preStop {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&handler)
		if err != nil {
			return false, fmt.Errorf("preStop: %w", err)
		}
		container, ok := containers[i].(map[string]any)
		if !ok {
			continue // the typed form says that it is one
		}
		lifecycle, ok := container["lifecycle"].(map[string]any)
		if !ok {
			lifecycle = map[string]any{}
			container["lifecycle"] = lifecycle
		}
		lifecycle["preStop"] = tree
	}
	return len(c.init)+len(c.volumes)+len(c.preStop) > 0, nil
}
