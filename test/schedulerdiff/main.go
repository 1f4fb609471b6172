package main

import (
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"skiff/internal/scheduling/schedulingtest"
)

func main() {
	first := flag.Uint64("seed", 1, "first seed")
	count := flag.Uint64("count", 1000, "number of seeds, each a cluster")
	record := flag.String("record", "", "file to write kube-scheduler's answers to")
	most := flag.Int("show", 20, "how many differences to print")
	flag.Parse()
	fmt.Printf("comparing with kube-scheduler on clusters of seeds %d to %d\n", *first, *first+*count-1)

	metrics.Register() // plugins use the metrics
	var all []string
	differences := 0
	for seed := *first; seed < *first+*count; seed++ {
		theirs, err := upstream(context.Background(), schedulingtest.New(seed))
		if err != nil {
			fatal(err)
		}
		ours, err := schedulingtest.Evaluate(schedulingtest.New(seed))
		if err != nil {
			fatal(err)
		}
		all = append(all, theirs.Lines...)
		for _, d := range schedulingtest.Compare(theirs.Lines, ours.Lines) {
			if differences++; differences <= *most {
				fmt.Println(d)
			}
		}
	}
	if *record != "" {
		if err := write(*record, all); err != nil {
			fatal(err)
		}
	}
	fmt.Printf("%d clusters, %d answers, %d differences\n", *count, len(all), differences)
	if differences > 0 {
		os.Exit(1)
	}
}

func write(name string, lines []string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write([]byte(strings.Join(lines, "\n") + "\n")); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
