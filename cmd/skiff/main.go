package main

import (
	"os"

	"skiff/internal/cli"
)

func main() { os.Exit(cli.Main()) }
