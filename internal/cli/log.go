package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"skiff/internal/cluster/process"
)

// debugVerbosity is the value of -v from which on debug lines are logged.
const debugVerbosity = 4

// keepLog has a process that "skiff up" has started log to its log file, which it rotates, until the returned function is called.
func keepLog(cmd *cobra.Command, dataDir string) (closeLog func(), err error) {
	file, err := process.InheritedLog(dataDir)
	if err != nil {
		return nil, fmt.Errorf("failed to open the log: %w", err)
	}
	if file == nil {
		return func() {}, nil
	}
	verbosity, _ := cmd.Flags().GetInt("v") // 0 if the command has no such flag
	setLog(file, verbosity)
	return func() {
		setLog(os.Stderr, verbosity) // standard error is the log too
		file.Close()
	}, nil
}

// setLog sets the writer and the level of slog, and of klog, which client-go and other libraries of Kubernetes log with.
func setLog(w io.Writer, verbosity int) {
	level := slog.LevelInfo
	if verbosity >= debugVerbosity {
		level = slog.LevelDebug
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
	klog.SetSlogLogger(slog.Default())
}
