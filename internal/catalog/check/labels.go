package check

// PlainLabels reports whether labels are certainly valid, at a fraction of the cost of the full validation. It
// accepts only lower-case host names as prefixes; false means only that the labels need the full validation.
func PlainLabels(labels map[string]string) bool {
	for key, value := range labels {
		if !PlainKey(key) || value != "" && !plainName(value) {
			return false
		}
	}
	return true
}

const maxLabelName = 63 // also plenty for a prefix

// PlainKey reports whether the key of a label or a taint is certainly valid, as PlainLabels does.
func PlainKey(key string) bool {
	for i := range len(key) {
		if key[i] == '/' {
			return plainHost(key[:i]) && plainName(key[i+1:])
		}
	}
	return plainName(key)
}

func plainName(s string) bool {
	if s == "" || len(s) > maxLabelName || !isLetterOrDigit(s[0]) || !isLetterOrDigit(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLetterOrDigit(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func plainHost(s string) bool {
	if s == "" || len(s) > maxLabelName {
		return false
	}
	edge := true // whether a label of the host name may begin or must end here
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			edge = false
		case edge || c != '-' && c != '.' || i == len(s)-1:
			return false
		case c == '.':
			if s[i-1] == '-' {
				return false
			}
			edge = true
		}
	}
	return !edge
}

func isLetterOrDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z'
}
