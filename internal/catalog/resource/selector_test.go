package resource

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestSelectors(t *testing.T) {
	loops := `device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a + b + c + d != ""))))`
	for _, c := range []struct{ expression, want string }{
		{`device.driver == "a" && device.attributes["a"].model == "x"`, ""},
		{`device.attributes["a"].healthy`, ""}, // of a type that is known only of a device
		{`device.allowMultipleAllocations`, ""},
		{`1`, `spec.selectors[0].cel.expression: Invalid value: "1": must evaluate to bool or the unknown type, not int`},
		{`object.x`, `spec.selectors[0].cel.expression: Invalid value: "object.x": compilation failed: ERROR: <input>:1:1: undeclared reference to 'object'`},
		{`device.attributes["a"].list.includes(1)`, `spec.selectors[0].cel.expression: Invalid value: "device.attributes[\"a\"].list.includes(1)": compilation failed`},
		{loops, `spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit`},
		{strings.Repeat(" ", resourcev1.CELSelectorExpressionMaxLength+1), `spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes`},
	} {
		class := &resourcev1.DeviceClass{Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: c.expression}}}}}
		expect(t, c.expression, DeviceClass.Validate(class), c.want)
		expect(t, "unchanged "+c.expression, DeviceClass.ValidateUpdate(class, class.DeepCopy()), "")
		expect(t, "new "+c.expression, DeviceClass.ValidateUpdate(class, &resourcev1.DeviceClass{}), c.want)
	}
}

// expect wants one error that begins with a text, or none.
func expect(t *testing.T, what string, errs field.ErrorList, want string) {
	t.Helper()
	switch {
	case want == "" && len(errs) > 0:
		t.Errorf("%s: %v", what, errs)
	case want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want)):
		t.Errorf("%s:\ngot  %v\nwant %s", what, errs, want)
	}
}
