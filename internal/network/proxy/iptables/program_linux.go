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

// program is the pair of iptables programs of an address family.
type program struct {
	family        model.Family
	save, restore string // paths
	limit         int    // the most chains that are written in one run
}

const (
	// runTimeout bounds one run. The largest clusters take some seconds.
	runTimeout = 2 * time.Minute
	// lockTimeout is how many seconds the program waits for the lock of other writers; only the legacy variant has one.
	lockTimeout = "10"
	// maxOutput bounds the output of a program that is kept for error messages.
	maxOutput = 4 << 10
	// The nftables variant takes time that grows with the square of the number of chains. The legacy variant writes the whole table anyway.
	limitNFT, limitLegacy = 2000, 1 << 30
)

// variantSuffixes lists the suffixes of the variants' names. The plain name is the variant that the administrator chose; in Debian it is a link
// through /etc, which nodes in namespaces of a machine have of their own.
var variantSuffixes = []string{"", "-nft", "-legacy"}

// lookup returns the programs of a family with a suffix, from the PATH.
func lookup(f model.Family, suffix string) (program, error) {
	name := "iptables"
	if f == model.IPv6 {
		name = "ip6tables"
	}
	p := program{family: f}
	var errs [2]error
	p.save, errs[0] = exec.LookPath(name + suffix + "-save")
	p.restore, errs[1] = exec.LookPath(name + suffix + "-restore")
	return p, errors.Join(errs[:]...)
}

// find returns the programs of a family that are used.
func find(f model.Family) (program, error) {
	var failed error
	for _, suffix := range variantSuffixes {
		p, err := lookup(f, suffix)
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

// check reads the program's version and variant, and fails if it is too old: since 1.6.2 it supports waiting for the lock and fully random
// masquerading.
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

// failure is the error of a program that failed.
type failure struct {
	program, output string
	code            int // the exit code
	err             error
}

func (f *failure) Error() string {
	if f.output == "" {
		return fmt.Sprintf("%s: %v", f.program, f.err)
	}
	return fmt.Sprintf("%s: %s", f.program, f.output)
}

func (f *failure) Unwrap() error { return f.err }

// commit runs the program for a transaction.
func (p program) commit(ctx context.Context, tx *transaction) error {
	for _, text := range tx.texts(p.limit) {
		if err := p.write(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// write runs iptables-restore with text. Chains that text does not name stay as they are.
func (p program) write(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.restore, "-w", lockTimeout, "--noflush")
	cmd.Stdin = bytes.NewReader(text)
	output := &limited{rest: maxOutput}
	cmd.Stdout, cmd.Stderr = output, output
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	f := &failure{program: p.restore, err: err, output: strings.Join(strings.Fields(output.text.String()), " "), code: cmd.ProcessState.ExitCode()}
	if line := offending(f.output, text); line != "" {
		f.output += ": " + line
	}
	return f
}

var linePattern = regexp.MustCompile(`line:? (\d+)`)

// offending returns the line of text that a program's error message names.
func offending(output string, text []byte) string {
	m := linePattern.FindStringSubmatch(output)
	if m == nil {
		return ""
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		if n--; n == 0 && !bytes.HasPrefix(line, []byte("COMMIT")) { // an error at COMMIT is about the whole table
			return string(bytes.TrimSpace(line))
		}
	}
	return ""
}

// limited is a writer that keeps only the beginning of what is written to it.
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

// found holds the mode's chains, and the jumps to them, in the kernel.
type found struct {
	chains [tables]map[string]struct{}
	jumps  [tables][]string // rules of other chains that jump to the mode's, as the program lists them, beginning with "-A"
}

// find lists the mode's chains and the jumps to them. It creates nothing.
func (p program) find(ctx context.Context, n scheme) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.save)
	output := &limited{rest: maxOutput}
	cmd.Stderr = output
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
		return nil, &failure{program: p.save, err: err, output: strings.Join(strings.Fields(output.text.String()), " "), code: cmd.ProcessState.ExitCode()}
	}
	return f, readErr
}

// maxRuleLength bounds the length of a listed rule.
const maxRuleLength = 1 << 20

// read returns the mode's chains and jumps in a listing.
func (n scheme) read(in io.Reader) (*found, error) {
	f := &found{}
	for t := range tables {
		f.chains[t] = map[string]struct{}{}
	}
	ours := func(t table, chain string) bool { return n.isPortChain(chain) || n.isFixedChain(t, chain) }
	current := tables
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxRuleLength)
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

// target returns the chain that a rule jumps to.
func target(rule string) (string, bool) {
	words := strings.Fields(rule)
	if len(words) < 2 || (words[len(words)-2] != "-j" && words[len(words)-2] != "-g") {
		return "", false
	}
	return words[len(words)-1], true
}
