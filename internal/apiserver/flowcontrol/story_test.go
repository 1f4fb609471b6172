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
//	arrive LEVEL FLOW [xN]    N requests of a flow arrive
//	leave LEVEL FLOW [xN]     N of its executing requests end
//	withdraw LEVEL FLOW       its oldest waiting request gives up
//	park LEVEL FLOW [xN]      N of its executing requests wait for their client
//	unpark LEVEL FLOW [xN]    N of its parked requests end
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
	for i, section := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(section, "\n----")
		if i > 0 {
			out.WriteString("\n")
		}
		out.WriteString(commands + "\n----\n")
		for line := range strings.Lines(commands) {
			if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
				if words[0] == "levels" {
					c = storyCore(t, words)
					continue
				}
				storyCommand(t, c, words, &out)
			}
		}
		for _, l := range c.levels {
			fmt.Fprintf(&out, "%s: guaranteed %d, in use %d, free %d, waiting %d\n", l.Name, l.guaranteed, l.inUse, c.free(l), l.queued)
		}
	}
	return out.String()
}

// storyCore reads "levels SEATS MAXPARKED NAME:SHARES:LENDABLE:QUEUE...".
func storyCore(t *testing.T, words []string) *core {
	seats, err1 := strconv.Atoi(words[1])
	parked, err2 := strconv.Atoi(words[2])
	if err1 != nil || err2 != nil {
		t.Fatal(words)
	}
	var levels []Level
	for _, w := range words[3:] {
		l := Level{}
		if _, err := fmt.Sscanf(strings.ReplaceAll(w, ":", " "), "%s %d %d %d", &l.Name, &l.Shares, &l.LendablePercent, &l.QueueLength); err != nil {
			t.Fatal(w, err)
		}
		levels = append(levels, l)
	}
	return newCore(seats, levels, parked, parked)
}

func storyCommand(t *testing.T, c *core, words []string, out *strings.Builder) {
	times := 1
	if len(words) > 3 {
		times, _ = strconv.Atoi(strings.TrimPrefix(words[3], "x"))
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
			_, _, v := c.arrive(l, key, func() *waiter { return &waiter{} })
			count(words[2] + map[decision]string{execute: " executes", wait: " waits", reject: " is rejected"}[v])
		case "leave":
			granted(c.leave(f))
		case "withdraw":
			granted(c.withdraw(f.queue[0]))
		case "park":
			ws, ok := c.park(f)
			if !ok {
				count(words[2] + " keeps its seat")
			}
			granted(ws)
		case "unpark":
			c.unpark(f)
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
