package config

// Check looks at the configuration file once.
func Check(a *Authorization) { a.check() }

// Parse returns the names of the authorizers of a configuration.
func Parse(data []byte) (names []string, err error) {
	c, err := parse(data, nil)
	if err != nil {
		return nil, err
	}
	for _, a := range c.Authorizers {
		names = append(names, a.Name)
	}
	return names, nil
}
