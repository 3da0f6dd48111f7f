package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/ko/pkg/build"
	"github.com/google/ko/pkg/commands/options"
)

const (
	root    = "../.."
	module  = "github.com/freshmesh/freshmesh"
	user    = "65532"
	version = "v0.0.0-image-test"
)

var programs = []string{"xds-server", "dataplane"}

// base stands for the distroless base, which this test does not fetch: an image of no layers.
func base(context.Context, string) (name.Reference, build.Result, error) {
	ref, err := name.ParseReference("base.invalid/static:test")
	if err != nil {
		return nil, nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}})
	return ref, image, err
}

// built builds a program as `make images` does, and gives the image as it lies
// in an OCI layout, and its SBOM.
func built(t *testing.T, program string) (v1.Image, []byte) {
	t.Helper()
	t.Setenv("VERSION", version)
	o := options.BuildOptions{WorkingDirectory: root}
	if err := o.LoadConfig(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(o.BaseImage, "distroless/static") || !strings.HasSuffix(o.BaseImage, ":nonroot") {
		t.Errorf("the base is %s, not distroless and non-root", o.BaseImage)
	}
	sboms, path := t.TempDir(), t.TempDir()
	builder, err := build.NewGo(t.Context(), root, build.WithBaseImages(base), build.WithConfig(o.BuildConfigs), build.WithPlatforms("linux/"+runtime.GOARCH),
		build.WithUser(user), build.WithSPDX(version), build.WithSBOMDir(sboms), build.WithJobs(1))
	if err != nil {
		t.Fatal(err)
	}
	result, err := builder.Build(t.Context(), build.StrictScheme+module+"/cmd/"+program)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := result.Digest()
	if err != nil {
		t.Fatal(err)
	}
	l, err := layout.Write(path, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AppendImage(result.(v1.Image)); err != nil {
		t.Fatal(err)
	}
	image, err := l.Image(digest) // as it was written
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(sboms + "/*.spdx.json")
	if err != nil || len(files) != 1 {
		t.Fatalf("SBOMs %q, %v", files, err)
	}
	sbom, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return image, sbom
}

// TestImages: what is in them, who runs it, and that it runs.
func TestImages(t *testing.T) {
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			image, sbom := built(t, program)
			config, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if config.Config.User != user || config.OS != "linux" || config.Architecture != runtime.GOARCH {
				t.Errorf("user %q on %s/%s", config.Config.User, config.OS, config.Architecture)
			}
			entry := "/ko-app/" + program
			if e := config.Config.Entrypoint; len(e) != 1 || e[0] != entry || len(config.Config.Cmd) > 0 {
				t.Errorf("entrypoint %q %q", e, config.Config.Cmd)
			}
			if !config.Created.IsZero() && config.Created.Unix() != 0 {
				t.Errorf("created at %v: no two builds can be equal", config.Created)
			}
			binary := files(t, image)[entry]
			if binary == nil {
				t.Fatalf("%s is missing", entry)
			}
			judgeVersion(t, binary, program)
			judgeSBOM(t, sbom)
		})
	}
}

// files gives what is in the image: regular files that everybody can read, by path.
func files(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for archive := tar.NewReader(r); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if header.Typeflag != tar.TypeReg {
				continue
			}
			if header.Mode&0o7777 != 0o555 {
				t.Errorf("%s has mode %o: any user must be able to run it, and none to change it", header.Name, header.Mode)
			}
			content, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			out[path.Join("/", header.Name)] = content
		}
		_ = r.Close()
	}
	if len(out) != 1 {
		t.Errorf("%d files, want the program and nothing else", len(out))
	}
	return out
}

// judgeVersion runs the binary of the image: it is static, so it runs anywhere.
func judgeVersion(t *testing.T, binary []byte, program string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), program)
	if err := os.WriteFile(file, binary, 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), file, "--version").CombinedOutput()
	if want := program + " " + version + "\n"; err != nil || string(out) != want {
		t.Errorf("--version: %q, %v, want %q", out, err, want)
	}
	for _, sign := range []string{"ld-linux", "libc.so"} {
		if bytes.Contains(binary, []byte("/lib64/"+sign)) {
			t.Errorf("%s is linked dynamically", program)
		}
	}
}

// judgeSBOM: the list of what is inside is SPDX, and has our dependencies with their versions.
func judgeSBOM(t *testing.T, sbom []byte) {
	t.Helper()
	var spdx struct {
		Version  string `json:"spdxVersion"`
		Packages []struct {
			Name    string `json:"name"`
			Version string `json:"versionInfo"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(sbom, &spdx); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, p := range spdx.Packages {
		versions[p.Name] = p.Version
	}
	if !strings.HasPrefix(spdx.Version, "SPDX-2.") || versions["google.golang.org/grpc"] == "" || len(versions) < 10 {
		t.Errorf("%s with %d packages, grpc %q", spdx.Version, len(versions), versions["google.golang.org/grpc"])
	}
}

// TestReproducible: two builds of one source are one image, byte for byte, and have one SBOM.
func TestReproducible(t *testing.T) {
	first, firstSBOM := built(t, "dataplane")
	second, secondSBOM := built(t, "dataplane")
	a, err := first.Digest()
	if err != nil {
		t.Fatal(err)
	}
	b, err := second.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if a != b || !bytes.Equal(firstSBOM, secondSBOM) {
		t.Errorf("%s and %s; equal SBOMs: %v", a, b, bytes.Equal(firstSBOM, secondSBOM))
	}
}
