// Command skiff is a complete Kubernetes in one program. Its commands are in internal/cli.
package main

import (
	"os"

	"skiff/internal/cli"
)

func main() { os.Exit(cli.Main()) }
