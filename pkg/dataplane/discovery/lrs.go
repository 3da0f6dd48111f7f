package discovery

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	// minReporting keeps a server from asking for reports without pause.
	minReporting = time.Second
	// reportingInterval holds where the server names none.
	reportingInterval = 10 * time.Second
)

// loadStream is the stream of envoy.service.load_stats.v3.
type loadStream = grpc.BidiStreamingClient[loadv3.LoadStatsRequest, loadv3.LoadStatsResponse]

// reportLoads keeps a load report stream open beside the ADS stream, on the same
// connection, until ctx ends. Its failures stay its own.
func (c *Client) reportLoads(ctx context.Context, conn *grpc.ClientConn, now <-chan struct{}) {
	for failures := 0; ; failures++ {
		good, err := c.reportOn(ctx, conn, now)
		if ctx.Err() != nil {
			return
		}
		if good {
			failures = 0
		}
		c.log.Debug("load report stream ended", "err", err)
		ceiling := backoffAfter(failures)
		if status.Code(err) == codes.Unimplemented {
			ceiling = time.Minute
		}
		wait := time.NewTimer(rand.N(ceiling))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
	}
}

// reportOn reports on one stream until it fails; good tells whether the server answered on it.
func (c *Client) reportOn(ctx context.Context, conn *grpc.ClientConn, now <-chan struct{}) (good bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := loadv3.NewLoadReportingServiceClient(conn).StreamLoadStats(ctx)
	if err != nil {
		return false, err
	}
	if err := stream.Send(&loadv3.LoadStatsRequest{Node: c.config.node()}); err != nil {
		_, err = stream.Recv()
		return false, err
	}
	wanted, ended := make(chan *loadv3.LoadStatsResponse), make(chan error, 1)
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		ended <- receive(ctx, stream, wanted)
	}()
	return c.report(stream, wanted, ended, now)
}

func receive(ctx context.Context, stream loadStream, to chan<- *loadv3.LoadStatsResponse) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case to <- r:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// report sends at the interval that the server named, and whenever now says so.
// Nothing but the node is sent before the server's first word (LRS, step 2).
func (c *Client) report(stream loadStream, wanted <-chan *loadv3.LoadStatsResponse, ended <-chan error, now <-chan struct{}) (bool, error) {
	var order *loadv3.LoadStatsResponse
	var interval time.Duration
	last, timer := time.Now(), time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	early := false
	for {
		send := false
		select {
		case err := <-ended:
			return order != nil, err
		case r := <-wanted:
			send = early
			order, early = r, false
			interval = reportingInterval
			if d := r.GetLoadReportingInterval(); d.IsValid() && d.AsDuration() > 0 {
				interval = max(d.AsDuration(), minReporting)
			}
			timer.Reset(interval)
		case <-now:
			send = order != nil
			early = order == nil
		case <-timer.C:
			send = true
			timer.Reset(interval)
		}
		if !send {
			continue
		}
		at := time.Now()
		if err := c.sendReport(stream, order, at.Sub(last)); err != nil {
			return true, err
		}
		last = at
	}
}

func (c *Client) sendReport(stream loadStream, order *loadv3.LoadStatsResponse, over time.Duration) error {
	deltas := c.loads.take(time.Now())
	wanted := deltas
	if !order.GetSendAllClusters() {
		wanted = slices.DeleteFunc(slices.Clone(deltas), func(d delta) bool {
			return !slices.Contains(order.GetClusters(), d.cluster)
		})
	}
	if err := stream.Send(&loadv3.LoadStatsRequest{ClusterStats: c.clusterStats(wanted, over)}); err != nil {
		giveBack(deltas)
		c.metrics.loadReports.WithLabelValues("failed").Inc()
		return err
	}
	c.metrics.loadReports.WithLabelValues("sent").Inc()
	return nil
}

// clusterStats groups what was counted by cluster, then locality and priority, in order of name.
func (c *Client) clusterStats(deltas []delta, over time.Duration) []*endpointv3.ClusterStats {
	slices.SortFunc(deltas, func(a, b delta) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), a.key.Address.Compare(b.key.Address),
			cmp.Compare(a.key.Identity, b.key.Identity))
	})
	var list []*endpointv3.ClusterStats
	for start := 0; start < len(deltas); {
		end := start
		for end < len(deltas) && deltas[end].cluster == deltas[start].cluster {
			end++
		}
		list = append(list, c.oneCluster(deltas[start:end], over))
		start = end
	}
	return list
}

// place is what load reports are summed up by.
type place struct {
	region, zone string
	priority     uint32
}

func (c *Client) oneCluster(deltas []delta, over time.Duration) *endpointv3.ClusterStats {
	name := deltas[0].cluster
	stats := &endpointv3.ClusterStats{
		ClusterName: name, ClusterServiceName: name, LoadReportInterval: durationpb.New(over),
	}
	places := map[mesh.EndpointKey]place{}
	if v, ok := c.slots.Load(name); ok {
		if cluster := v.(*slot).answer.Load().cluster; cluster != nil {
			stats.ClusterServiceName = cluster.ServiceName
			for _, e := range cluster.Endpoints {
				places[e.EndpointKey] = place{e.Region, e.Zone, e.Priority}
			}
		}
	}
	byPlace := map[place]*endpointv3.UpstreamLocalityStats{}
	for _, d := range deltas {
		p := places[d.key] // an endpoint that is gone already counts for the nameless place
		l := byPlace[p]
		if l == nil {
			l = &endpointv3.UpstreamLocalityStats{
				Locality: &corev3.Locality{Region: p.region, Zone: p.zone}, Priority: p.priority,
			}
			byPlace[p] = l
			stats.UpstreamLocalityStats = append(stats.UpstreamLocalityStats, l)
		}
		l.TotalIssuedRequests += d.Issued
		l.TotalSuccessfulRequests += d.Succeeded
		l.TotalErrorRequests += d.Failed
		l.TotalFailConnections += d.ConnectFailed
		l.UpstreamEndpointStats = append(l.UpstreamEndpointStats, endpointStats(d))
	}
	return stats
}

// endpointStats always goes along, whether or not the server asked for endpoint
// granularity: which endpoint fails is what the report is for.
func endpointStats(d delta) *endpointv3.UpstreamEndpointStats {
	fields := map[string]*structpb.Value{mesh.ConnectFailuresKey: structpb.NewNumberValue(float64(d.ConnectFailed))}
	if d.key.Identity != "" {
		fields["identity"] = structpb.NewStringValue(string(d.key.Identity))
	}
	return &endpointv3.UpstreamEndpointStats{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address:       d.key.Address.Addr().String(),
			PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(d.key.Address.Port())},
		}}},
		Metadata:                &structpb.Struct{Fields: fields},
		TotalIssuedRequests:     d.Issued,
		TotalSuccessfulRequests: d.Succeeded,
		TotalErrorRequests:      d.Failed,
	}
}
