package why

import (
	"context"
	"fmt"
	"strings"
)

const initializerConfigurations = "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations"

// readConfigurations reads which configurations name the initializer that the object waits for. They may be forbidden; the rest is not.
func (s *subject) readConfigurations(ctx context.Context) error {
	var list struct {
		Items []struct {
			Metadata     struct{ Name string }
			Initializers []struct{ Name string }
		}
	}
	if s.getJSON(ctx, initializerConfigurations, &list) != nil {
		return nil
	}
	for _, c := range list.Items {
		for _, in := range c.Initializers {
			if in.Name == s.tree.Pending[0] {
				s.configured = append(s.configured, c.Metadata.Name)
				break
			}
		}
	}
	return nil
}

// waitsForInitializer finds that an initializer has not acted on the object yet: nobody sees it until then.
func waitsForInitializer(s *subject) []finding {
	if len(s.tree.Pending) == 0 {
		return nil
	}
	first, then := s.tree.Pending[0], s.tree.Pending[1:]
	f := finding{sentence: fmt.Sprintf("It is not initialized, so that nobody sees it: it waits for the initializer %q and was created %s.", first, ago(s.now, s.tree.Created))}
	if len(then) > 0 {
		f.evidence = append(f.evidence, "then it waits for "+strings.Join(then, ", "))
	}
	for _, name := range s.configured {
		f.evidence = append(f.evidence, "the InitializerConfiguration "+name+" names the initializer: new objects wait for it, too")
	}
	return []finding{{f.sentence, append(f.evidence, "who may initialize the resource can remove the initializer from metadata.initializers.pending; kubectl delete removes the object")}}
}
