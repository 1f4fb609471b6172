package catalogtest

import (
	"bytes"
	"strings"

	"sigs.k8s.io/yaml"
)

// ParseGolden parses a golden file, as Render writes it.
func ParseGolden(data []byte) ([]Answer, error) {
	var answers []Answer
	for _, doc := range bytes.Split(data, []byte("\n---\n"))[1:] {
		var a Answer
		if err := yaml.Unmarshal(doc, &a); err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// Diff returns the lines in which two texts differ, with two lines of context, or "".
func Diff(want, got string) string {
	if want == got {
		return ""
	}
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	common := longestCommon(a, b)
	var out []string
	i, j := 0, 0
	for _, c := range append(common, [2]int{len(a), len(b)}) {
		for ; i < c[0]; i++ {
			out = append(out, "- "+a[i])
		}
		for ; j < c[1]; j++ {
			out = append(out, "+ "+b[j])
		}
		if i < len(a) && c[0] < len(a) {
			out = append(out, "  "+a[i])
		}
		i, j = i+1, j+1
	}
	return strings.Join(contextOnly(out), "\n")
}

// longestCommon returns the index pairs of a longest common subsequence.
func longestCommon(a, b []string) [][2]int {
	n, m := len(a), len(b)
	length := make([][]int32, n+1)
	for i := range length {
		length[i] = make([]int32, m+1)
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var pairs [][2]int
	for i, j := 0, 0; i < n && j < m; {
		switch {
		case a[i] == b[j]:
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
	return pairs
}

// contextOnly keeps changed lines and two lines around each.
func contextOnly(lines []string) []string {
	keep := make([]bool, len(lines))
	for i, l := range lines {
		if l[0] != ' ' {
			for j := max(0, i-2); j <= min(len(lines)-1, i+2); j++ {
				keep[j] = true
			}
		}
	}
	var out []string
	for i, l := range lines {
		if keep[i] {
			out = append(out, l)
		} else if i > 0 && keep[i-1] {
			out = append(out, "  …")
		}
	}
	return out
}
