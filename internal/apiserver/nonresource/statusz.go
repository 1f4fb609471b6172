package nonresource

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/metrics"
	"skiff/internal/apiserver/response"
)

// page is one of those on which a server tells about itself: /statusz and /flagz. A person gets text; who asks for a version gets an object.
type page struct {
	kind string
	text func(io.Writer)
	// fields are what the object has beside its name.
	fields func(*aboutObject)
}

// aboutObject is config.k8s.io's Statusz or Flagz.
type aboutObject struct {
	metav1.TypeMeta `json:""`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	*statusz `json:""`
	Flags    map[string]string `json:"flags,omitempty"`
}

type statusz struct {
	StartTime        metav1.Time `json:"startTime"`
	UptimeSeconds    int64       `json:"uptimeSeconds"`
	GoVersion        string      `json:"goVersion"`
	BinaryVersion    string      `json:"binaryVersion"`
	EmulationVersion string      `json:"emulationVersion"`
	Paths            []string    `json:"paths"`
}

const (
	aboutGroup   = "config.k8s.io"
	aboutWarning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only."
)

// aboutVersions are the versions of the objects; the first is deprecated.
var aboutVersions = []string{"v1alpha1", "v1beta1"}

// statusPage says since when which program runs.
func (h *Handler) statusPage() page {
	version, _, _ := strings.Cut(strings.TrimPrefix(h.Build.GitVersion, "v"), "+")
	up := time.Since(h.began)
	status := &statusz{StartTime: metav1.NewTime(h.began), UptimeSeconds: int64(up.Seconds()), GoVersion: runtime.Version(), BinaryVersion: version,
		EmulationVersion: version[:strings.LastIndexByte(version, '.')], Paths: []string{"/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"}}
	return page{"Statusz", func(w io.Writer) {
		seconds := status.UptimeSeconds
		fmt.Fprintf(w, "\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation version: %s\nPaths: %s\n",
			h.began.Format(time.UnixDate), seconds/3600, seconds/60%60, seconds%60, status.GoVersion, status.BinaryVersion, status.EmulationVersion, strings.Join(status.Paths, " "))
	}, func(o *aboutObject) { o.statusz = status }}
}

// flagPage says what the server was told on its command line, and what it took where it was told nothing.
func (h *Handler) flagPage() page {
	return page{"Flagz", func(w io.Writer) {
		for _, name := range slices.Sorted(maps.Keys(h.Flags)) {
			fmt.Fprintf(w, "%s: %s\n", name, h.Flags[name])
		}
	}, func(o *aboutObject) { o.Flags = h.Flags }}
}

// serveAbout answers with a page in the form that was asked for.
func (h *Handler) serveAbout(w http.ResponseWriter, r *http.Request, p page) {
	media, version, err := acceptAbout(r.Header.Get("Accept"), p.kind)
	if err != nil {
		r.Header.Del("Accept") // the refusal is JSON, whatever was asked for
		response.Fail(w, r, err)
		return
	}
	if version == "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "\n%s %s\n%s\n", metrics.ComponentName, strings.ToLower(p.kind), aboutWarning)
		p.text(w)
		return
	}
	object := aboutObject{TypeMeta: metav1.TypeMeta{Kind: p.kind, APIVersion: aboutGroup + "/" + version}}
	object.Metadata.Name = metrics.ComponentName
	p.fields(&object)
	body, err := json.MarshalIndent(object, "", "  ")
	if err == nil && media == codec.YAML {
		body, err = yaml.JSONToYAML(body)
	}
	if err != nil {
		response.Fail(w, r, apierrors.NewInternalError(err))
		return
	}
	if version == aboutVersions[0] {
		w.Header().Add("Warning", fmt.Sprintf("299 - %q", "This version of the "+strings.ToLower(p.kind)+" endpoint is deprecated. Please use a newer version."))
	}
	w.Header().Set("Content-Type", fmt.Sprintf("%s;g=%s;v=%s;as=%s", media, aboutGroup, version, p.kind))
	_, _ = w.Write(body)
}

// acceptAbout finds what to answer with: an object in a version of it, or text if there is none.
func acceptAbout(header, kind string) (media codec.Media, version string, err error) {
	if header == "" {
		return 0, "", nil
	}
	for _, clause := range goautoneg.ParseAccept(header) {
		switch clause.Type + "/" + clause.SubType {
		case "*/*", "text/*", "text/plain":
			return 0, "", nil
		case codec.YAMLType:
			media = codec.YAML
		case codec.JSONType:
			media = codec.JSON
		default:
			continue
		}
		version := clause.Params["v"]
		if clause.Params["g"] == aboutGroup && clause.Params["as"] == kind && slices.Contains(aboutVersions, version) {
			return media, version, nil
		}
	}
	return 0, "", codec.NotAcceptable("only the following media types are accepted: " + codec.JSONType + ", " + codec.YAMLType + ", text/plain")
}
