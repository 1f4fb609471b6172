package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

type document struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Components []component `json:"components"`
}

type component struct {
	Type       string      `json:"type"`
	Name       string      `json:"name"`
	Version    string      `json:"version,omitempty"`
	PURL       string      `json:"purl,omitempty"`
	Properties []property  `json:"properties,omitempty"`
	Components []component `json:"components,omitempty"` // of a program: the modules it is linked from
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// run reads all programs; each has a line with its name and Go version, then tab-indented lines as debug.ParseBuildInfo takes them.
func run(in io.Reader, out io.Writer) error {
	texts, versions := map[string]string{}, map[string]string{} // the build information of each program, and the Go it was built with
	program := ""
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "\t"); ok {
			texts[program] += rest + "\n"
			continue
		}
		file, version, ok := strings.Cut(lines.Text(), ": ")
		if !ok {
			return fmt.Errorf("not a line of go version -m: %q", lines.Text())
		}
		program = path.Base(file)
		texts[program], versions[program] = "", version
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if len(texts) == 0 {
		return errors.New("no program on standard input")
	}
	doc := document{Format: "CycloneDX", Spec: "1.6", Version: 1}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		info, err := debug.ParseBuildInfo(texts[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		info.GoVersion = versions[name]
		doc.Components = append(doc.Components, describe(name, info))
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", " ")
	return encoder.Encode(doc)
}

func describe(name string, info *debug.BuildInfo) component {
	c := component{Type: "application", Name: name, Version: info.Main.Version, Properties: []property{{"go:package", info.Path}, {"go:version", info.GoVersion}}}
	for _, m := range info.Deps {
		dep := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
		if m.Sum != "" {
			dep.Properties = append(dep.Properties, property{"go:sum", m.Sum})
		}
		if m.Replace != nil {
			dep.Properties = append(dep.Properties, property{"go:replacedBy", path.Base(m.Replace.Path)})
		}
		c.Components = append(c.Components, dep)
	}
	c.Components = append(c.Components, component{Type: "library", Name: "stdlib", Version: info.GoVersion, PURL: "pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")})
	return c
}
