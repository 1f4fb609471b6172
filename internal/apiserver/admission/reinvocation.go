package admission

// reinvocation is the state of mutating admission that may run twice: what a plugin changes late must be seen by those that ran before it.
type reinvocation struct {
	wanted, begun bool
	memory        map[string]any // by plugin
}

// Reinvoke has all mutators run once more when the last has run. In the second run it has no effect.
func (a *Attributes) Reinvoke() { a.reinvocation.wanted = true }

// ReinvocationWanted reports whether a mutator has called Reinvoke.
func (a *Attributes) ReinvocationWanted() bool { return a.reinvocation.wanted }

// Reinvoked reports whether mutators run for the second time.
func (a *Attributes) Reinvoked() bool { return a.reinvocation.begun }

// Remember keeps a value of a plugin from its first run for its second.
func (a *Attributes) Remember(plugin string, value any) {
	if a.reinvocation.memory == nil {
		a.reinvocation.memory = map[string]any{}
	}
	a.reinvocation.memory[plugin] = value
}

// Recall returns what the plugin has remembered; nil if nothing.
func (a *Attributes) Recall(plugin string) any { return a.reinvocation.memory[plugin] }
