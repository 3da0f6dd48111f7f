//go:build !linux

package redirect

// Apply gives ErrUnsupported.
func Apply(r Rules) error {
	if err := r.validate(); err != nil {
		return err
	}
	return ErrUnsupported
}

// Remove gives ErrUnsupported.
func Remove() error { return ErrUnsupported }
