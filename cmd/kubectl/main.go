package main

import "skiff/internal/kubectl"

func main() { kubectl.Main() }
