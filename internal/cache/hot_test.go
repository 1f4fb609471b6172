package cache

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func items(n int) []*Item {
	out := make([]*Item, n)
	for i := range out {
		out[i] = NewItem([]byte("x"), int64(i+1))
	}
	return out
}

func kept(all []*Item) (n int) {
	for _, it := range all {
		if it.forms[JSON].Load() != nil {
			n++
		}
	}
	return n
}

func TestHotDropsTheOldest(t *testing.T) {
	hot := NewHot(1000, time.Hour)
	defer hot.Close()
	all := items(100)
	for _, it := range all {
		it.Form(JSON, hot, func() []byte { return make([]byte, 100) })
	}
	if got := kept(all); got != 10 || hot.size != 1000 {
		t.Errorf("%d forms, %d bytes", got, hot.size)
	}
	if kept(all[90:]) != 10 {
		t.Error("the newest were dropped")
	}
	made := 0
	for range 2 {
		all[99].Form(JSON, hot, func() []byte { made++; return nil })
		all[0].Form(JSON, nil, func() []byte { made += 10; return nil }) // nobody keeps it
	}
	if made != 20 {
		t.Errorf("made %d", made)
	}
	large := NewItem(nil, 1)
	large.Form(JSON, hot, func() []byte { return make([]byte, 251) })
	if large.forms[JSON].Load() != nil || kept(all) != 10 {
		t.Error("one large form took the place of many")
	}
}

func TestHotKeepsAnything(t *testing.T) {
	hot := NewHot(1000, time.Hour)
	defer hot.Close()
	it, other := NewItem(nil, 1), NewItem(nil, 2)
	if it.Kept() != nil {
		t.Error("something is kept from the start")
	}
	it.Keep(hot, "row", 200)
	if it.Kept() != "row" {
		t.Errorf("kept %v", it.Kept())
	}
	for range 5 {
		other.Keep(hot, "more", 200)
	}
	if it.Kept() != nil || other.Kept() != "more" {
		t.Errorf("kept %v and %v", it.Kept(), other.Kept())
	}
}

func TestHotDropsAllWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hot := NewHot(1000, hotIdle)
		defer hot.Close()
		all := items(5)
		for _, it := range all {
			it.Form(JSON, hot, func() []byte { return make([]byte, 10) })
			time.Sleep(hotIdle / 2)
		}
		if kept(all) != 5 {
			t.Errorf("%d forms while they are made", kept(all))
		}
		time.Sleep(2 * hotIdle)
		synctest.Wait()
		if kept(all) != 0 || hot.size != 0 || len(hot.entries) != 0 {
			t.Errorf("%d forms, %d bytes after a rest", kept(all), hot.size)
		}
		all[0].Form(JSON, hot, func() []byte { return make([]byte, 10) }) // and warms up again
		if kept(all) != 1 {
			t.Error("nothing is kept after a rest")
		}
		time.Sleep(3 * hotIdle)
		synctest.Wait()
		if kept(all) != 0 {
			t.Error("kept for ever")
		}
	})
}

// The forms attached to items are those accounted, also if many goroutines make forms at once.
func TestHotUnderContention(t *testing.T) {
	hot := NewHot(5000, time.Hour)
	all := items(200)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				for _, it := range all {
					it.Form(JSON, hot, func() []byte { return make([]byte, 100) })
				}
			}
		})
	}
	wg.Wait()
	if got := kept(all) * 100; got > hot.size || hot.size > 5000 {
		t.Errorf("%d bytes attached, %d accounted", got, hot.size)
	}
	hot.Close()
	before := kept(all)
	for _, it := range all {
		it.Form(JSON, hot, func() []byte { return make([]byte, 100) })
	}
	if kept(all) != before {
		t.Error("forms are kept after the end")
	}
}

func TestItemSplice(t *testing.T) {
	it := NewItem([]byte("message"), 1234567890123)
	if string(it.Message()) != "message" || string(it.Raw()) != "message\n\x0f2\r1234567890123" {
		t.Errorf("%q %q", it.Message(), it.Raw())
	}
	at := it.At(7)
	if string(at.Message()) != "message" || string(at.Raw()) != "message\n\x032\x017" || at.Revision != 7 {
		t.Errorf("%q %q", at.Message(), at.Raw())
	}
}
