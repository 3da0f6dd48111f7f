package envoyaudit

import (
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// references collects the names of the route configurations that a listener
// asks for, wherever in it: over ADS, and from elsewhere.
func references(m protoreflect.Message, ads, elsewhere map[string]bool) {
	switch x := m.Interface().(type) {
	case *anypb.Any:
		if inner, err := x.UnmarshalNew(); err == nil {
			references(inner.ProtoReflect(), ads, elsewhere)
		}
		return
	case *hcmv3.Rds:
		if x.GetConfigSource().GetAds() != nil {
			ads[x.GetRouteConfigName()] = true
		} else {
			elsewhere[x.GetRouteConfigName()] = true
		}
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				references(v.Message(), ads, elsewhere)
				return true
			})
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				references(v.List().Get(i).Message(), ads, elsewhere)
			}
		case !f.IsMap() && !f.IsList() && f.Message() != nil:
			references(v.Message(), ads, elsewhere)
		}
		return true
	})
}
