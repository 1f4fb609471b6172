package scheduling_test

import (
	"bufio"
	"compress/gzip"
	"os"
	"strconv"
	"strings"
	"testing"

	"skiff/internal/scheduling/schedulingtest"
)

// TestSameAsKubeScheduler compares verdicts, scores and queueing hints of every plugin with kube-scheduler's for the same random clusters.
// test/schedulerdiff/run.sh compares with kube-scheduler itself, and with other seeds; after a change to schedulingtest, `run.sh record` records anew.
func TestSameAsKubeScheduler(t *testing.T) {
	t.Parallel()
	recorded := map[uint64][]string{}
	f, err := os.Open("testdata/kube-scheduler-v1.37.1.txt.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		seed, _, _ := strings.Cut(lines.Text(), "/")
		n, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		recorded[n] = append(recorded[n], lines.Text())
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	const clusters = 1000 // seeds 1 to 1000
	if len(recorded) != clusters {
		t.Fatalf("kube-scheduler's answers are about %d clusters, want %d", len(recorded), clusters)
	}
	wrong := 0
	for seed := uint64(1); seed <= clusters; seed++ {
		ours, err := schedulingtest.Evaluate(schedulingtest.New(seed))
		if err != nil {
			t.Fatal(err)
		}
		for _, difference := range schedulingtest.Compare(recorded[seed], ours.Lines) {
			if wrong++; wrong <= 10 {
				t.Error("seed/pod " + difference)
			}
		}
	}
	if wrong > 10 {
		t.Errorf("and %d more", wrong-10)
	}
}
