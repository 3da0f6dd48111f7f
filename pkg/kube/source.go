package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/hashicorp/go-hclog"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/object"
)

// Source is the mesh.Source over an API server; see the package
// documentation. Run may be called once.
type Source struct {
	client kubernetes.Interface
	server string
	log    hclog.Logger
	times
	// dropConnections closes every connection to the server.
	dropConnections func()
	health          *health
	// pace is of the server as a whole.
	pace  *pace
	feeds map[mesh.Kind]*feed
}

// Name is "kubernetes".
func (s *Source) Name() string { return "kubernetes" }

// Status is how the last requests, events and bookmarks leave the source.
func (s *Source) Status() mesh.SourceStatus { return s.health.Status() }

// Run delivers the cluster into sink until ctx ends, and then gives nil, once
// every goroutine of its own has ended.
func (s *Source) Run(ctx context.Context, sink mesh.Sink) error {
	ctx = klog.NewContext(ctx, s.clientLog()) //nolint:forbidigo // that is how client-go is given ours
	var all sync.WaitGroup
	for _, f := range s.feeds {
		f.sink = sink
		all.Go(func() { f.run(ctx) })
		all.Go(func() { f.keepChecking(ctx) })
	}
	all.Go(func() { s.keepProbing(ctx) })
	all.Wait()
	s.dropConnections()
	return nil
}

// clientLog takes what client-go has to say, at debug: what matters of it is in Status.
func (s *Source) clientLog() logr.Logger {
	return funcr.New(func(prefix, args string) {
		s.log.Debug("client-go", "logger", prefix, "message", args)
	}, funcr.Options{})
}

// Read asks the server for one service and its slices: two requests that are
// answered from the server's store and not from a cache (Kubernetes API,
// "Resource versions", unset). A service that does not exist is absent from
// the result.
func (s *Source) Read(ctx context.Context, service mesh.Key) ([]mesh.Object, error) {
	began := time.Now()
	var found []runtime.Object
	svc, err := s.client.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		found = append(found, svc)
	case !apierrors.IsNotFound(err):
		return nil, s.readFailed(ctx, began, err, service, "get services")
	}
	known := s.feeds[mesh.KindEndpointSlice]
	mark := known.held.mark()
	selector := labels.Set{discoveryv1.LabelServiceName: service.Name}.String()
	slices, err := s.client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, s.readFailed(ctx, began, err, service, "list endpointslices")
	}
	s.health.reached()
	if before(slices.ResourceVersion, mark) {
		known.relist(rewound, "a live read is at version "+slices.ResourceVersion+", and "+mark+" was delivered")
		return nil, fmt.Errorf("read %s: the server went back to an older state, which is being listed", service)
	}
	for i := range slices.Items {
		found = append(found, &slices.Items[i])
	}
	objects := make([]mesh.Object, 0, len(found))
	for _, o := range found {
		// What is wrong with an object's parts is told by its feed.
		converted, _, err := object.Convert(o)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", service, err)
		}
		m := converted.Metadata()
		m.Rewinds = s.feeds[m.Kind].held.rewound()
		objects = append(objects, converted)
	}
	return objects, nil
}

// readFailed gives Read's error, and notes what it tells of the server. A
// deadline that was the caller's own tells nothing.
func (s *Source) readFailed(ctx context.Context, began time.Time, err error, service mesh.Key, what string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("read %s: no answer from %s: %w", service, s.server, ctx.Err())
	}
	s.health.failed(err, what, began)
	reason, _ := explain(err, what, s.server)
	return fmt.Errorf("read %s: %w", service, &flatError{error: err, text: reason})
}
