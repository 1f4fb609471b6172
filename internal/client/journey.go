package client

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/journey"
)

// Journey returns the journey of an object, and the JSON that the server sent. The kind may be spelled as for kubectl.
func (c *Client) Journey(ctx context.Context, kind, namespace, name string) (*journey.Tree, []byte, error) {
	result := c.Kubernetes().CoreV1().RESTClient().Get().AbsPath(journey.PathJourney).
		Param("resource", kind).Param("namespace", namespace).Param("name", name).SetHeader("Accept", "application/json").Do(ctx)
	if err := result.Error(); err != nil {
		if apierrors.IsUnexpectedServerError(err) {
			return nil, nil, fmt.Errorf("the server remembers no journeys: is it skiff? (%w)", err)
		}
		return nil, nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, nil, err
	}
	tree := &journey.Tree{}
	if err := json.Unmarshal(body, tree); err != nil {
		return nil, nil, fmt.Errorf("failed to parse the journey: %w", err)
	}
	return tree, body, nil
}
