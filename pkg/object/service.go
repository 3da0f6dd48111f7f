package object

import (
	"net/netip"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxAffinityTimeout is the API's bound of sessionAffinityConfig.clientIP.timeoutSeconds, in seconds.
const maxAffinityTimeout = 86400

func service(m mesh.Meta, o *corev1.Service, p *problems) mesh.Object {
	s := &mesh.Service{
		Meta:                     m,
		Type:                     serviceType(o, p),
		Headless:                 o.Spec.ClusterIP == corev1.ClusterIPNone,
		Selector:                 len(o.Spec.Selector) > 0,
		ClusterIPs:               clusterIPs(o, p),
		PublishNotReadyAddresses: o.Spec.PublishNotReadyAddresses,
		InternalTrafficLocal:     internalTrafficLocal(o, p),
		TrafficDistribution:      trafficDistribution(o, p),
		Ports:                    servicePorts(o, p),
		Annotations:              ownAnnotations(o.Annotations),
	}
	s.ClientIPAffinity, s.ClientIPAffinityTimeout = affinity(o, p)
	if s.Type == string(corev1.ServiceTypeExternalName) {
		s.ExternalName = hostname(o.Spec.ExternalName, "spec.externalName", p)
	}
	return s
}

// clusterIPs are spec.clusterIPs, or else the one spec.clusterIP.
func clusterIPs(o *corev1.Service, p *problems) []netip.Addr {
	if o.Spec.Type == corev1.ServiceTypeExternalName {
		return nil // the fields may stand there from another type, and mean nothing
	}
	texts, field := o.Spec.ClusterIPs, "spec.clusterIPs"
	if len(texts) == 0 {
		texts, field = []string{o.Spec.ClusterIP}, "spec.clusterIP"
	}
	var out []netip.Addr
	for i, text := range texts {
		if text == "" || text == corev1.ClusterIPNone {
			continue
		}
		at := field
		if len(o.Spec.ClusterIPs) > 0 {
			at = index(field, i)
		}
		if a, ok := address(text, at, p); ok {
			out = append(out, a)
		}
	}
	return out
}

func serviceType(o *corev1.Service, p *problems) string {
	switch o.Spec.Type {
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName:
		return string(o.Spec.Type)
	}
	p.add("spec.type", "%q is no service type", o.Spec.Type)
	return ""
}

func internalTrafficLocal(o *corev1.Service, p *problems) bool {
	policy := o.Spec.InternalTrafficPolicy
	if policy == nil || *policy == corev1.ServiceInternalTrafficPolicyCluster {
		return false
	}
	if *policy == corev1.ServiceInternalTrafficPolicyLocal {
		return true
	}
	p.add("spec.internalTrafficPolicy", "%q is neither Cluster nor Local", *policy)
	return false
}

func trafficDistribution(o *corev1.Service, p *problems) string {
	d := o.Spec.TrafficDistribution
	if d == nil {
		return ""
	}
	switch *d {
	case corev1.ServiceTrafficDistributionPreferClose,
		corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode:
		return *d
	}
	p.add("spec.trafficDistribution", "%q is not known", *d)
	return ""
}

func affinity(o *corev1.Service, p *problems) (bool, time.Duration) {
	switch o.Spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		return false, 0
	case corev1.ServiceAffinityClientIP:
	default:
		p.add("spec.sessionAffinity", "%q is neither None nor ClientIP", o.Spec.SessionAffinity)
		return false, 0
	}
	c := o.Spec.SessionAffinityConfig
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return true, 0
	}
	if s := *c.ClientIP.TimeoutSeconds; s >= 1 && s <= maxAffinityTimeout {
		return true, time.Duration(s) * time.Second
	}
	p.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is outside 1..%d", *c.ClientIP.TimeoutSeconds, maxAffinityTimeout)
	return true, 0
}

// servicePorts are the good ports. The API refuses two ports of one name, and
// two of one number and protocol; files may hold them, and then the first stands.
func servicePorts(o *corev1.Service, p *problems) []mesh.ServicePort {
	type number struct {
		port     uint16
		protocol string
	}
	names, numbers := make(map[string]bool), make(map[number]bool)
	var ports []mesh.ServicePort
	for i, in := range o.Spec.Ports {
		field := index("spec.ports", i)
		port, okPort := portNumber(in.Port, field+".port", p)
		protocol, okProtocol := protocol(in.Protocol, field+".protocol", p)
		if !okPort || !okProtocol {
			continue
		}
		n := number{port, protocol}
		switch {
		case names[in.Name]:
			p.add(field+".name", "%q is the name of an earlier port", in.Name)
			continue
		case numbers[n]:
			p.add(field+".port", "%d/%s is an earlier port", port, protocol)
			continue
		}
		names[in.Name], numbers[n] = true, true
		ports = append(ports, mesh.ServicePort{
			Name: in.Name, Port: port, Protocol: protocol,
			AppProtocol: appProtocol(value(in.AppProtocol), field+".appProtocol", p),
		})
	}
	return ports
}

func portNumber(n int32, field string, p *problems) (uint16, bool) {
	if n < 1 || n > 65535 {
		p.add(field, "%d is outside 1..65535", n)
		return 0, false
	}
	return uint16(n), true
}

func protocol(in corev1.Protocol, field string, p *problems) (string, bool) {
	switch in {
	case "":
		return string(corev1.ProtocolTCP), true
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return string(in), true
	}
	p.add(field, "%q is none of TCP, UDP, SCTP", in)
	return "", false
}

// appProtocol gives the text back when the API accepts its form; the set of values is open.
func appProtocol(in, field string, p *problems) string {
	if in == "" {
		return ""
	}
	if reasons := validation.IsQualifiedName(in); len(reasons) > 0 {
		p.add(field, "%q: %s", in, reasons[0])
		return ""
	}
	return in
}

// hostname gives a host name in lower case and without the final dot; "" and a Problem when it is none.
func hostname(in, field string, p *problems) string {
	name := strings.ToLower(strings.TrimSuffix(in, "."))
	if reasons := validation.IsDNS1123Subdomain(name); len(reasons) > 0 {
		p.add(field, "%q: %s", in, reasons[0])
		return ""
	}
	return name
}

// address parses one IP address. Loopback is allowed: meshes from files live on
// it. An IPv4 address in IPv6 form and one with a zone are refused, as by the API.
func address(in, field string, p *problems) (netip.Addr, bool) {
	a, err := netip.ParseAddr(in)
	switch {
	case err != nil:
		p.add(field, "%q is no IP address", in)
	case a.Is4In6():
		p.add(field, "%q is an IPv4 address in IPv6 form", in)
	case a.Zone() != "":
		p.add(field, "%q has a zone", in)
	case a.IsUnspecified() || a.IsMulticast():
		p.add(field, "%q cannot be connected to", in)
	default:
		return a, true
	}
	return netip.Addr{}, false
}
