// Command kubectl is the kubectl that comes with skiff.
package main

import "skiff/internal/kubectl"

func main() { kubectl.Main() }
