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

// zpage is /statusz or /flagz, on which a server describes itself: as text for people, or as a versioned object for clients that ask for one.
type zpage struct {
	kind string
	text func(io.Writer)
	// fields sets the fields of the object beside its name.
	fields func(*zpageObject)
}

// zpageObject is a Statusz or a Flagz of the group config.k8s.io.
type zpageObject struct {
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
	zpageGroup   = "config.k8s.io"
	zpageWarning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only."
)

// zpageVersions are the versions of the objects; the first is deprecated.
var zpageVersions = []string{"v1alpha1", "v1beta1"}

// statuszPage returns /statusz: the version of the program, and since when it runs.
func (h *Handler) statuszPage() zpage {
	version, _, _ := strings.Cut(strings.TrimPrefix(h.Build.GitVersion, "v"), "+")
	up := time.Since(h.began)
	status := &statusz{StartTime: metav1.NewTime(h.began), UptimeSeconds: int64(up.Seconds()), GoVersion: runtime.Version(), BinaryVersion: version,
		EmulationVersion: version[:strings.LastIndexByte(version, '.')], Paths: []string{"/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"}}
	return zpage{"Statusz", func(w io.Writer) {
		seconds := status.UptimeSeconds
		fmt.Fprintf(w, "\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation version: %s\nPaths: %s\n",
			h.began.Format(time.UnixDate), seconds/3600, seconds/60%60, seconds%60, status.GoVersion, status.BinaryVersion, status.EmulationVersion, strings.Join(status.Paths, " "))
	}, func(o *zpageObject) { o.statusz = status }}
}

// flagzPage returns /flagz: the values of all flags, also of those that are not on the command line.
func (h *Handler) flagzPage() zpage {
	return zpage{"Flagz", func(w io.Writer) {
		for _, name := range slices.Sorted(maps.Keys(h.Flags)) {
			fmt.Fprintf(w, "%s: %s\n", name, h.Flags[name])
		}
	}, func(o *zpageObject) { o.Flags = h.Flags }}
}

// serveZPage answers with a page in the form that the client accepts.
func (h *Handler) serveZPage(w http.ResponseWriter, r *http.Request, p zpage) {
	media, version, err := acceptZPage(r.Header.Get("Accept"), p.kind)
	if err != nil {
		r.Header.Del("Accept") // so that the error is JSON, whatever the client accepts
		response.Fail(w, r, err)
		return
	}
	if version == "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "\n%s %s\n%s\n", metrics.ComponentName, strings.ToLower(p.kind), zpageWarning)
		p.text(w)
		return
	}
	object := zpageObject{TypeMeta: metav1.TypeMeta{Kind: p.kind, APIVersion: zpageGroup + "/" + version}}
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
	if version == zpageVersions[0] {
		w.Header().Add("Warning", fmt.Sprintf("299 - %q", "This version of the "+strings.ToLower(p.kind)+" endpoint is deprecated. Please use a newer version."))
	}
	w.Header().Set("Content-Type", fmt.Sprintf("%s;g=%s;v=%s;as=%s", media, zpageGroup, version, p.kind))
	_, _ = w.Write(body)
}

// acceptZPage returns the form that a client accepts: an object in a media type and version, or text if version is empty.
func acceptZPage(header, kind string) (media codec.Media, version string, err error) {
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
		if clause.Params["g"] == zpageGroup && clause.Params["as"] == kind && slices.Contains(zpageVersions, version) {
			return media, version, nil
		}
	}
	return 0, "", codec.NotAcceptable("only the following media types are accepted: " + codec.JSONType + ", " + codec.YAMLType + ", text/plain")
}
