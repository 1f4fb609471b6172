package cli

import (
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

// debugVerbosity is from where on everything is logged.
const debugVerbosity = 4

// setLog has all that is logged written in one format, by whomever: client-go and other libraries of Kubernetes log with klog.
func setLog(w io.Writer, verbosity int) {
	level := slog.LevelInfo
	if verbosity >= debugVerbosity {
		level = slog.LevelDebug
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
	klog.SetSlogLogger(slog.Default())
}
