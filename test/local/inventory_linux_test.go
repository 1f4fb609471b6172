package local

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// inventory is a set of facts, to compare what there is with what there should be.
type inventory struct{ facts map[string]bool }

func newInventory() *inventory { return &inventory{map[string]bool{}} }

func (i *inventory) add(format string, args ...any) { i.facts[fmt.Sprintf(format, args...)] = true }

// compare returns what found has too much or too little.
func (i *inventory) compare(found *inventory) error {
	var differs []string
	for _, fact := range slices.Sorted(maps.Keys(i.facts)) {
		if !found.facts[fact] {
			differs = append(differs, "missing: "+fact)
		}
	}
	for _, fact := range slices.Sorted(maps.Keys(found.facts)) {
		if !i.facts[fact] {
			differs = append(differs, "left: "+fact)
		}
	}
	if len(differs) > 0 {
		return fmt.Errorf("%s", strings.Join(differs, "\n"))
	}
	return nil
}

// attachedDirectory returns the nodes that a volume of the CSI driver is attached to, by the driver's own file.
func attachedDirectory(file string) (nodes []string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var volume struct{ Nodes map[string]bool }
	if err := json.Unmarshal(data, &volume); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(volume.Nodes)), nil
}
