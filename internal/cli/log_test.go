package cli

import (
	"bytes"
	"errors"
	"log"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// Whoever logs, a line looks like any other.
func TestLogFormat(t *testing.T) {
	before, flags, writer := slog.Default(), log.Flags(), log.Writer()
	t.Cleanup(func() {
		klog.ClearLogger()
		slog.SetDefault(before)
		log.SetFlags(flags)
		log.SetOutput(writer)
	})
	var out bytes.Buffer
	setLog(&out, 0)
	slog.Info("by us", "port", 1)
	klog.Warningf("by %s", "klog") // which has no warnings when it logs elsewhere
	klog.InfoS("by klog with values", "pod", klog.KRef("default", "web"))
	klog.Background().Error(errors.New("no"), "by a logger of klog")
	runtime.HandleError(errors.New("by the machinery"))
	log.Print("by the standard library")
	slog.Debug("hidden")
	klog.V(2).Info("hidden")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{`INFO msg="by us" port=1`, `INFO msg="by klog"`, `INFO msg="by klog with values" pod.name=web pod.namespace=default`, `ERROR msg="by a logger of klog" err=no`,
		`ERROR msg="Unhandled Error" (logger=\S+ )?err="by the machinery"`, `INFO msg="by the standard library"`}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), &out)
	}
	for i, line := range lines {
		if !regexp.MustCompile(`^time=\S+ level=` + want[i] + `$`).MatchString(line) {
			t.Errorf("%s\nwant %s", line, want[i])
		}
	}
	out.Reset()
	setLog(&out, 4)
	if slog.Debug("shown"); !strings.Contains(out.String(), `level=DEBUG msg=shown`) {
		t.Errorf("with -v 4: %q", &out)
	}
}
