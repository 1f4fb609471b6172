package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// track has given set when one of the flags is given.
func track(f *pflag.FlagSet, given *bool, names ...string) {
	for _, name := range names {
		flag := f.Lookup(name)
		t := tracked{flag.Value, given}
		if s, ok := flag.Value.(pflag.SliceValue); ok {
			flag.Value = trackedSlice{t, s}
		} else {
			flag.Value = t
		}
	}
}

// tracked is the value of a flag of which it is of interest whether it was given.
type tracked struct {
	pflag.Value
	given *bool
}

func (t tracked) Set(s string) error {
	*t.given = true
	return t.Value.Set(s)
}

// trackedSlice is tracked for a flag with several values.
type trackedSlice struct {
	tracked
	pflag.SliceValue
}

// pairs is a flag of the form name=value, which may be given several times. A value may contain commas.
type pairs map[string]string

func (p *pairs) Type() string   { return "name=value" }
func (p *pairs) String() string { return "[" + strings.Join(p.GetSlice(), " ") + "]" }

func (p *pairs) Set(s string) error { return p.Append(s) }

func (p *pairs) Append(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return fmt.Errorf("malformed pair, expect string=string")
	}
	if *p == nil {
		*p = pairs{}
	}
	(*p)[strings.TrimSpace(name)] = strings.TrimSpace(value)
	return nil
}

func (p *pairs) Replace(all []string) error {
	*p = nil
	for _, s := range all {
		if err := p.Append(s); err != nil {
			return err
		}
	}
	return nil
}

func (p *pairs) GetSlice() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(*p)) {
		all = append(all, name+"="+(*p)[name])
	}
	return all
}
