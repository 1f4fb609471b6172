package iptables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"skiff/internal/network/proxy/model"
)

// program is iptables of an address family.
type program struct {
	family        model.Family
	save, restore string // paths
	limit         int    // up to how many chains are written in one run
}

const (
	// runLimit is how long one run may take. The largest clusters take some seconds.
	runLimit = 2 * time.Minute
	// lockLimit is for how many seconds to wait for others who write rules; only the legacy variant has need of it.
	lockLimit = "10"
	// maxComplaint is how much of what a program says is kept.
	maxComplaint = 4 << 10
	// The variant of nftables takes a time that grows with the square of the number of chains. The legacy one writes the whole table anyway.
	limitNFT, limitLegacy = 2000, 1 << 30
)

// endings are those of the names of the variants. The plain name is the one that the machine's owner chose; in Debian it leads by way of /etc, which
// nodes in namespaces of a machine have of their own.
var endings = []string{"", "-nft", "-legacy"}

// lookup finds the programs of a family on the PATH, by an ending of their name.
func lookup(f model.Family, ending string) (program, error) {
	name := "iptables"
	if f == model.IPv6 {
		name = "ip6tables"
	}
	p := program{family: f}
	var errs [2]error
	p.save, errs[0] = exec.LookPath(name + ending + "-save")
	p.restore, errs[1] = exec.LookPath(name + ending + "-restore")
	return p, errors.Join(errs[:]...)
}

// find finds the programs of a family to use.
func find(f model.Family) (program, error) {
	var failed error
	for _, ending := range endings {
		p, err := lookup(f, ending)
		if err == nil {
			return p, nil
		}
		if failed == nil {
			failed = err
		}
	}
	return program{}, failed
}

var versionPattern = regexp.MustCompile(`v(\d+)\.(\d+)\.(\d+)`)

// check looks which program it is and whether we can use it: since 1.6.2 it knows how to wait for others and how to masquerade at random.
func (p *program) check(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, p.restore, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --version: %w", p.restore, err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("%s --version says %q", p.restore, bytes.TrimSpace(out))
	}
	number := 0
	for _, part := range m[1:] {
		n, err := strconv.Atoi(string(part))
		if err != nil || n > 999 {
			return fmt.Errorf("%s --version says %q", p.restore, bytes.TrimSpace(out))
		}
		number = number*1000 + n
	}
	if number < 1_006_002 {
		return fmt.Errorf("%s is of version %s, 1.6.2 is the first that will do", p.restore, m[0])
	}
	p.limit = limitLegacy
	if bytes.Contains(out, []byte("nf_tables")) {
		p.limit = limitNFT
	}
	return nil
}

// failure is that a program did not do what it was asked to.
type failure struct {
	program, complaint string
	code               int // its exit code
	err                error
}

func (f *failure) Error() string {
	if f.complaint == "" {
		return fmt.Sprintf("%s: %v", f.program, f.err)
	}
	return fmt.Sprintf("%s: %s", f.program, f.complaint)
}

func (f *failure) Unwrap() error { return f.err }

// commit has a transaction come into effect.
func (p program) commit(ctx context.Context, tx *transaction) error {
	for _, text := range tx.texts(p.limit) {
		if err := p.write(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// write has rules come into effect. Chains that text does not name stay as they are.
func (p program) write(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.restore, "-w", lockLimit, "--noflush")
	cmd.Stdin = bytes.NewReader(text)
	complaint := &limited{rest: maxComplaint}
	cmd.Stdout, cmd.Stderr = complaint, complaint
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	f := &failure{program: p.restore, err: err, complaint: strings.Join(strings.Fields(complaint.text.String()), " "), code: cmd.ProcessState.ExitCode()}
	if line := offending(f.complaint, text); line != "" {
		f.complaint += ": " + line
	}
	return f
}

var linePattern = regexp.MustCompile(`line:? (\d+)`)

// offending is the line that a program complains about.
func offending(complaint string, text []byte) string {
	m := linePattern.FindStringSubmatch(complaint)
	if m == nil {
		return ""
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		if n--; n == 0 && !bytes.HasPrefix(line, []byte("COMMIT")) { // that is all of it
			return string(bytes.TrimSpace(line))
		}
	}
	return ""
}

// limited keeps the beginning of what is written to it.
type limited struct {
	text strings.Builder
	rest int
}

func (l *limited) Write(b []byte) (int, error) {
	keep := min(len(b), l.rest)
	l.text.Write(b[:keep])
	l.rest -= keep
	return len(b), nil
}

// found is what there is of ours.
type found struct {
	chains [tables]map[string]struct{}
	jumps  [tables][]string // rules of other chains that lead to ours, as the program writes them, "-A" and all
}

// find lists what there is of ours, without making anything that is not there.
func (p program) find(ctx context.Context, n scheme) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.save)
	complaint := &limited{rest: maxComplaint}
	cmd.Stderr = complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f, readErr := n.read(out)
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		return nil, &failure{program: p.save, err: err, complaint: strings.Join(strings.Fields(complaint.text.String()), " "), code: cmd.ProcessState.ExitCode()}
	}
	return f, readErr
}

// maxRule is the longest line that we expect of other people's rules.
const maxRule = 1 << 20

// read picks what is ours from a listing.
func (n scheme) read(in io.Reader) (*found, error) {
	f := &found{}
	for t := range tables {
		f.chains[t] = map[string]struct{}{}
	}
	ours := func(t table, chain string) bool { return n.owned(chain) || n.fixed(t, chain) }
	current := tables
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxRule)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "*"):
			current = tables
			for t := range tables {
				if line[1:] == t.String() {
					current = t
				}
			}
		case current == tables:
		case strings.HasPrefix(line, ":"):
			if chain, _, _ := strings.Cut(line[1:], " "); ours(current, chain) {
				f.chains[current][chain] = struct{}{}
			}
		case strings.HasPrefix(line, "-A "):
			from, _, _ := strings.Cut(line[len("-A "):], " ")
			if to, ok := target(line); ok && ours(current, to) && !ours(current, from) {
				f.jumps[current] = append(f.jumps[current], line)
			}
		}
	}
	return f, lines.Err()
}

// target is the chain that a rule leads to.
func target(rule string) (string, bool) {
	words := strings.Fields(rule)
	if len(words) < 2 || (words[len(words)-2] != "-j" && words[len(words)-2] != "-g") {
		return "", false
	}
	return words[len(words)-1], true
}
