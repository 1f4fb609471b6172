package etcd

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap/zapcore"
)

const (
	// repeatAfter is the time between two equal messages: etcd repeats its warnings while a disk is slow.
	repeatAfter = time.Minute
	// maxMessages bounds how many different messages are remembered.
	maxMessages = 256
)

// logCore is a zap core that passes warnings and errors on to slog and drops the rest.
type logCore struct {
	log    *slog.Logger
	recent *recentMessages
}

func newLogCore(log *slog.Logger) *logCore {
	return &logCore{log: log, recent: &recentMessages{at: map[string]time.Time{}}}
}

// mute drops all messages from now on: while it is being stopped, etcd warns that it is being stopped.
func (c *logCore) mute() { c.recent.muted.Store(true) }

// unmute passes messages on again after mute.
func (c *logCore) unmute() { c.recent.muted.Store(false) }

// Enabled implements zapcore.Core.
func (c *logCore) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{log: c.log.With(attributes(fields)...), recent: c.recent}
}

// Check implements zapcore.Core.
func (c *logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) || isNoise(entry) {
		return checked
	}
	return checked.AddCore(entry, c)
}

// isNoise reports whether a warning has no meaning for a single member.
func isNoise(entry zapcore.Entry) bool {
	switch entry.Message {
	case "simple token is not cryptographically signed": // there are no users
	case "failed to apply request": // the caller gets the error
	case "failed to publish local member to cluster through raft": // etcd retries until the log has been read
	case "Failed to detect schema version", "failed to update storage version",
		"Failed to detect storage schema version. Please wait till wal snapshot before upgrading cluster.":
		// The schema is detected once the first entries are on disk, some seconds after the first start.
	default:
		return false
	}
	return true
}

// Write implements zapcore.Core.
func (c *logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	// A message that ends the process is never suppressed.
	if entry.Level < zapcore.DPanicLevel && c.recent.suppress(entry.Message, entry.Time) {
		return nil
	}
	level := slog.LevelWarn
	if entry.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	c.log.Log(context.Background(), level, "etcd: "+entry.Message, attributes(fields)...)
	return nil
}

// Sync implements zapcore.Core.
func (c *logCore) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
	encoded := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(encoded)
	}
	attrs := make([]any, 0, len(fields))
	for _, field := range fields {
		attrs = append(attrs, slog.Any(field.Key, encoded.Fields[field.Key]))
	}
	return attrs
}

// recentMessages remembers when each message was last logged.
type recentMessages struct {
	muted atomic.Bool
	mu    sync.Mutex
	at    map[string]time.Time
}

// suppress reports whether a message was logged recently or the log is muted. Otherwise it records the message as logged now.
func (r *recentMessages) suppress(message string, now time.Time) bool {
	if r.muted.Load() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.at[message]; ok && now.Sub(last) < repeatAfter {
		return true
	}
	if len(r.at) >= maxMessages {
		clear(r.at)
	}
	r.at[message] = now
	return false
}
