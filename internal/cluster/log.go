package cluster

import (
	"context"
	"log"
	"log/slog"
	"strings"
)

// quietLog returns a logger for net/http that logs at debug level: a client that closes its connection is not worth a line.
func quietLog(l *slog.Logger) *log.Logger {
	return log.New(writerFunc(func(p []byte) (int, error) {
		l.Log(context.Background(), slog.LevelDebug, strings.TrimSpace(string(p)))
		return len(p), nil
	}), "", 0)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
