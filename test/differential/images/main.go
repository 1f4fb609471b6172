package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"skiff/test/differential"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Println(differential.Plugins)
		return
	}
	if _, _, err := differential.StartPolicyServer(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
