package alone

import (
	"fmt"
	"os"
	"testing"
)

// stage is the environment variable with the stage of Main that a process is in.
const stage = "SKIFF_TEST_ALONE"

// Main runs the tests; TestMain calls it. It starts the test program again as the first process of a new PID namespace, which prepares the rest, and there
// once more, for the tests; the first process only reaps.
func Main(m *testing.M) {
	var code int
	var err error
	switch os.Getenv(stage) {
	case "":
		code, err = outer()
	case "init":
		code, err = prepare()
	default:
		code = m.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a machine for the tests:", err)
		code = 1
	}
	os.Exit(code)
}
