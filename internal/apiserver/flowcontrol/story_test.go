package flowcontrol

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the core decides into the stories")

// TestStories runs the files in testdata. Each begins with "levels": the seats, then one level per line. Commands are
//
//	arrive LEVEL FLOW [xN] [wW]    N requests of a flow arrive, which take W seats each
//	leave LEVEL FLOW [xN] [wW]     N of its executing requests end
//	withdraw LEVEL FLOW            its oldest waiting request gives up
//	park LEVEL FLOW [xN]           N of its executing requests wait for their client
//	unpark LEVEL FLOW [xN]         N of its parked requests end
//	exempt N                       so many exempt requests execute
//	configure LEVEL...             the levels are replaced
//
// and their outcome is below the line. With -update it is written there.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("decided:\n%s", got)
			}
		})
	}
}

// replay returns the story with the actual decisions.
func replay(t *testing.T, text string) string {
	var out strings.Builder
	var c *core
	exempt := 0
	for i, section := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(section, "\n----")
		if i > 0 {
			out.WriteString("\n")
		}
		out.WriteString(commands + "\n----\n")
		for line := range strings.Lines(commands) {
			if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
				switch words[0] {
				case "levels":
					c = storyCore(t, words, func() int { return exempt })
				case "exempt":
					var err error
					if exempt, err = strconv.Atoi(words[1]); err != nil {
						t.Fatal(err)
					}
					storyGranted(c.dispatch(), &out)
				case "configure":
					storyGranted(c.setLevels(storyLevels(t, words[1:]), func(string) bool { return true }), &out)
				default:
					storyCommand(t, c, words, &out)
				}
			}
		}
		for _, l := range c.levels {
			draining := ""
			if l.draining {
				draining = ", draining"
			}
			fmt.Fprintf(&out, "%s: %d/%d/%d, in use %d, free %d, waiting %d%s\n", l.Name, l.lower, l.nominal, l.upper, l.inUse, c.free(l), l.queued, draining)
		}
	}
	return out.String()
}

// storyCore reads "levels SEATS MAXPARKED LEVEL...".
func storyCore(t *testing.T, words []string, exempt func() int) *core {
	seats, err1 := strconv.Atoi(words[1])
	parked, err2 := strconv.Atoi(words[2])
	if err1 != nil || err2 != nil {
		t.Fatal(words)
	}
	c := newCore(seats, parked, parked, exempt)
	c.setLevels(storyLevels(t, words[3:]), func(string) bool { return true })
	return c
}

// storyLevels reads levels NAME:SHARES:LENDABLE:BORROWING:QUEUES:HAND:LENGTH; BORROWING is - if there is no limit.
func storyLevels(t *testing.T, words []string) (levels []Level) {
	for _, w := range words {
		var l Level
		var borrowing string
		if _, err := fmt.Sscanf(strings.ReplaceAll(w, ":", " "), "%s %d %d %s %d %d %d", &l.Name, &l.Shares, &l.LendablePercent, &borrowing, &l.Queues, &l.HandSize, &l.QueueLength); err != nil {
			t.Fatal(w, err)
		}
		if most, err := strconv.Atoi(borrowing); err == nil {
			l.BorrowingLimitPercent = &most
		}
		l.Exempt = l.Name == "exempt"
		levels = append(levels, l)
	}
	return levels
}

func storyGranted(ws []*waiter, out *strings.Builder) {
	for _, w := range ws {
		fmt.Fprintf(out, "%s executes\n", w.flow.key.distinguisher)
	}
}

func storyCommand(t *testing.T, c *core, words []string, out *strings.Builder) {
	times, width := 1, 1
	for _, word := range words[3:] {
		n, err := strconv.Atoi(word[1:])
		switch {
		case err == nil && word[0] == 'x':
			times = n
		case err == nil && word[0] == 'w':
			width = n
		default:
			t.Fatal(words)
		}
	}
	var l *level
	for _, have := range c.levels {
		if have.Name == words[1] {
			l = have
		}
	}
	key := flowKey{distinguisher: words[2]}
	counts := map[string]int{}
	var order []string
	count := func(what string) {
		if counts[what]++; counts[what] == 1 {
			order = append(order, what)
		}
	}
	granted := func(ws []*waiter) {
		for _, w := range ws {
			count(w.flow.key.distinguisher + " executes")
		}
	}
	for range times {
		f := l.flows[key]
		switch words[0] {
		case "arrive":
			_, _, v := c.arrive(l, key, width, false, func() *waiter { return &waiter{} })
			count(words[2] + map[decision]string{execute: " executes", wait: " waits", rejectFull: " is rejected: the queue is full", rejectLimit: " is rejected"}[v])
		case "leave":
			granted(c.leave(f, width))
		case "withdraw":
			granted(c.withdraw(f.queue[0]))
		case "park":
			ws, ok := c.park(f, width)
			if !ok {
				count(words[2] + " keeps its seat")
			}
			granted(ws)
		case "unpark":
			granted(c.unpark(f))
		default:
			t.Fatal(words)
		}
	}
	for _, what := range order {
		if counts[what] > 1 {
			what += fmt.Sprintf(" (%d times)", counts[what])
		}
		out.WriteString(what + "\n")
	}
}
