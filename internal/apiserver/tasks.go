package apiserver

import "sync"

// tasks owns goroutines: who starts them through it can wait for all of them.
type tasks struct{ wg sync.WaitGroup }

// Go runs f.
func (t *tasks) Go(f func()) { t.wg.Go(f) }

// Wait waits for all.
func (t *tasks) Wait() { t.wg.Wait() }
