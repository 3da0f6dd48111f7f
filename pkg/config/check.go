package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func anyText(string) error { return nil }

// printable refuses what cannot stand in a line of YAML or of a log.
func printable(s string) error {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%q holds characters that cannot be printed", s)
	}
	return nil
}

// listenAddress takes HOST:PORT with HOST empty (all addresses), "localhost" or an IP
// address, and a port from 0 (any free one) to 65535.
func listenAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not an address such as 127.0.0.1:15000 or :15000", s)
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && host != "localhost" {
		return fmt.Errorf("%q: %q is not an IP address", s, host)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: port %q is not a number from 0 to 65535", s, port)
	}
	return nil
}

// optional makes check pass the empty text.
func optional(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

// dialAddress takes HOST:PORT with a host name or an IP address and a port from 1 to 65535.
func dialAddress(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("%q is not an address such as xds-server.mesh:18000", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%q: port %q is not a number from 1 to 65535", s, port)
	}
	if _, err := netip.ParseAddr(host); err != nil && !domainName(host) {
		return "", fmt.Errorf("%q: %q is neither an IP address nor a host name", s, host)
	}
	return s, nil
}

// domainName tells whether s is a host name by RFC 1123 (letters, digits and
// inner dashes in labels of 1 to 63, at most 253 in all); underscores, which real
// names have, and one final dot are allowed too.
func domainName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !nameByte(c) {
				return false
			}
		}
	}
	return true
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

func clusterDomain(s string) error {
	if !domainName(s) || strings.HasSuffix(s, ".") {
		return fmt.Errorf("%q is not a domain such as cluster.local", s)
	}
	return nil
}

// namespaceName takes a Kubernetes namespace (an RFC 1123 label).
func namespaceName(s string) error {
	if !domainName(s) || strings.ContainsAny(s, "._") || strings.ToLower(s) != s {
		return fmt.Errorf("%q is not a namespace name", s)
	}
	return nil
}

// oneOf takes exactly the given words.
func oneOf(words ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(words, s) {
			return nil
		}
		return fmt.Errorf("%q is not one of %s", s, strings.Join(words, ", "))
	}
}

func existingDirectory(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return readError(path, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", path)
	}
	return nil
}

func existingFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return readError(path, err)
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a directory, not a file", path)
	}
	return nil
}

// makeableDirectory takes a directory, or a name that can become one because its parent is there.
func makeableDirectory(path string) error {
	err := existingDirectory(path)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return existingDirectory(filepath.Dir(filepath.Clean(path)))
}

// readError drops the system call's name from err: "open x: no such file" becomes "x: no such file".
func readError(path string, err error) error {
	if pathError, ok := errors.AsType[*os.PathError](err); ok {
		err = pathError.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// writableFile takes a file that can be written, or that can be made: it tries,
// and leaves nothing behind. What is neither file nor directory, a pipe or a
// device, is taken unseen, since opening one may wait or be heard.
func writableFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return makeableFile(path)
	case err != nil:
		return readError(path, err)
	case info.IsDir():
		return fmt.Errorf("%s is a directory, not a file", path)
	case !info.Mode().IsRegular():
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return readError(path, err)
	}
	return f.Close()
}

// makeableFile makes a file of another name beside path: what has its own name may be somebody's in the meantime.
func makeableFile(path string) error {
	dir := filepath.Dir(path)
	if err := existingDirectory(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".freshmesh-check-")
	if err != nil {
		return fmt.Errorf("no file can be made there: %w", readError(dir, err))
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// fileOrStandardOutput takes - and what writableFile does.
func fileOrStandardOutput(path string) error {
	if path == "-" {
		return nil
	}
	return writableFile(path)
}
