package install

import (
	"context"
	"errors"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
)

var (
	podKind     = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// policy is one compiled policy, mutating or validating.
type policy struct {
	compiler *cel.CompositedCompiler
	matcher  matchconditions.Matcher
	patchers []patch.Patcher
	// validations and their messages, in the same order.
	validations cel.ConditionEvaluator
	messages    []string
	param       *corev1.ConfigMap
	// byReflection is how expressions see the pod.
	byReflection bool
}

// compiler compiles as the API server does with what is stored: for every
// version that it must be able to go back to.
func compiler(t *testing.T) *cel.CompositedCompiler {
	t.Helper()
	c, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (p *policy) common(t *testing.T, name string, variables []admissionregistrationv1.Variable, conditions []admissionregistrationv1.MatchCondition, options cel.OptionalVariableDeclarations) {
	t.Helper()
	for _, v := range variables {
		compiled := p.compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, options, environment.StoredExpressions)
		if compiled.Error != nil {
			t.Fatalf("variable %s: %v", v.Name, compiled.Error)
		}
	}
	var accessors []cel.ExpressionAccessor
	for i := range conditions {
		accessors = append(accessors, (*matchconditions.MatchCondition)(&conditions[i]))
	}
	fail := admissionregistrationv1.Fail
	p.matcher = matchconditions.NewMatcher(p.compiler.CompileCondition(accessors, options, environment.StoredExpressions), &fail, "policy", "validate", name)
}

func compileMutating(t *testing.T, from *admissionregistrationv1.MutatingAdmissionPolicy, param *corev1.ConfigMap) *policy {
	t.Helper()
	p := &policy{compiler: compiler(t), param: param}
	options := cel.OptionalVariableDeclarations{HasParams: true, HasAuthorizer: true}
	p.common(t, from.Name, from.Spec.Variables, from.Spec.MatchConditions, options)
	options.HasPatchTypes = true
	for _, m := range from.Spec.Mutations {
		if m.PatchType != admissionregistrationv1.PatchTypeJSONPatch {
			t.Fatalf("a mutation is a %s, which this test cannot evaluate", m.PatchType)
		}
		compiled := p.compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, options, environment.StoredExpressions)
		if err := errors.Join(compiled.CompilationErrors()...); err != nil {
			t.Fatal(err)
		}
		p.patchers = append(p.patchers, patch.NewJSONPatcher(compiled))
	}
	return p
}

func compileValidating(t *testing.T, from *admissionregistrationv1.ValidatingAdmissionPolicy) *policy {
	t.Helper()
	p := &policy{compiler: compiler(t)}
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	p.common(t, from.Name, from.Spec.Variables, from.Spec.MatchConditions, options)
	var accessors []cel.ExpressionAccessor
	for _, v := range from.Spec.Validations {
		accessors = append(accessors, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
		p.messages = append(p.messages, v.Message)
	}
	p.validations = p.compiler.CompileCondition(accessors, options, environment.StoredExpressions)
	if err := errors.Join(p.validations.CompilationErrors()...); err != nil {
		t.Fatal(err)
	}
	return p
}

// request is the creation of a pod. Expressions see it in one of two ways, by a switch of the API server's.
func (p *policy) request(pod *corev1.Pod) *admission.VersionedAttributes {
	object := admission.NewLazyObject(pod)
	object.UseSchemalessTypeRef = p.byReflection
	return &admission.VersionedAttributes{
		Attributes:      admission.NewAttributesRecord(pod, nil, podKind, "default", pod.Name, podResource, "", admission.Create, &metav1.CreateOptions{}, false, nil),
		VersionedObject: object,
		VersionedKind:   podKind,
	}
}

func (p *policy) matches(ctx context.Context, attributes *admission.VersionedAttributes) (bool, error) {
	var param runtime.Object
	if p.param != nil {
		param = p.param
	}
	result := p.matcher.Match(ctx, attributes, param, nil)
	return result.Matches, result.Error
}

// mutate gives the pod as the policy makes it.
func (p *policy) mutate(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx = p.compiler.CreateContext(ctx)
	if ok, err := p.matches(ctx, p.request(pod)); !ok || err != nil {
		return pod, err
	}
	for i, patcher := range p.patchers {
		patched, err := patcher.Patch(ctx, patch.Request{
			MatchedResource: podResource, VersionedAttributes: p.request(pod), ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme.Scheme),
			OptionalVariables: cel.OptionalVariableBindings{VersionedParams: p.param}, Namespace: &corev1.Namespace{},
		}, celconfig.RuntimeCELCostBudget)
		if err != nil {
			return nil, fmt.Errorf("mutation %d: %w", i, err)
		}
		pod = patched.(*corev1.Pod)
	}
	return pod, nil
}

// refusals gives the messages of the validations that refuse the pod.
func (p *policy) refusals(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	attributes := p.request(pod)
	ctx = p.compiler.CreateContext(ctx)
	if ok, err := p.matches(ctx, attributes); !ok || err != nil {
		return nil, err
	}
	results, _, err := p.validations.ForInput(ctx, attributes, &admissionv1.AdmissionRequest{}, cel.OptionalVariableBindings{}, &corev1.Namespace{}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil, err
	}
	var out []string
	for i, r := range results {
		if r.Error != nil {
			return nil, fmt.Errorf("%s: %w", p.messages[i], r.Error)
		}
		if r.EvalResult.Value() != true {
			out = append(out, p.messages[i])
		}
	}
	return out, nil
}
