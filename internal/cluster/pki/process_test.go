package pki

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"skiff/test/seed"
)

// The tests below run this program again as another process of skiff would: "open" looks once, "spin" renews everything all the time.
const childVariable = "SKIFF_PKI_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "":
		os.Exit(m.Run())
	case "open":
		os.Exit(openOnce(os.Args[1]))
	case "spin":
		os.Exit(spin(os.Args[1]))
	}
}

func openOnce(dir string) int {
	m, err := Open(options(dir, &clock{}))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Print(serials(m))
	return 0
}

// spin lets years pass: each round is in another year, so that each makes every leaf anew, and some the authorities.
func spin(dir string) int {
	c := &clock{}
	for round := 0; ; round++ {
		c.set(time.Duration(round%11) * 3 * year)
		if _, err := Open(options(dir, c)); err != nil {
			fmt.Println(err)
			return 1
		}
	}
}

func child(what, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), childVariable+"="+what)
	return cmd
}

// Processes that start at once in an empty directory end up with the same certificates.
func TestStartTogether(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	type answer struct {
		out []byte
		err error
	}
	answers := make(chan answer)
	const processes = 4
	for range processes {
		go func() {
			out, err := child("open", dir).CombinedOutput()
			answers <- answer{out, err}
		}()
	}
	want := ""
	for range processes {
		a := <-answers
		if a.err != nil {
			t.Errorf("%v: %s", a.err, a.out)
		}
		if want == "" {
			want = string(a.out)
		}
		if string(a.out) != want {
			t.Errorf("one has %s\nanother %s", want, a.out)
		}
	}
	c := &clock{}
	verify(t, open(t, options(dir, c)), c.now())
	onlyOwner(t, dir)
}

// A process that is killed while it renews everything leaves what the next start makes good, with the same authorities.
func TestKilledWhileRenewing(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	dir, c := t.TempDir(), &clock{}
	first := open(t, options(dir, c))
	for range 12 {
		cmd := child("spin", dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pause := time.Duration(20+random.IntN(60)) * time.Millisecond // chance, not waiting for something
		time.Sleep(pause)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if state, _ := cmd.Process.Wait(); state != nil && state.Exited() {
			t.Fatalf("ended by itself: %v", state)
		}
		m, err := Open(options(dir, c))
		if err != nil {
			t.Fatalf("killed after %v: %v", pause, err)
		}
		verify(t, m, c.now())
		for _, a := range authorities {
			if !samePublicKey(m.current.Load().authorities[a].cert.PublicKey, first.current.Load().authorities[a].cert.PublicKey) {
				t.Errorf("killed after %v, %s has a new key", pause, a)
			}
		}
		if !samePublicKey(m.AccountSigner().Public(), first.AccountSigner().Public()) {
			t.Errorf("killed after %v, service accounts have a new key", pause)
		}
		onlyOwner(t, dir)
	}
}
