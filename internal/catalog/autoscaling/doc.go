// Package autoscaling declares horizontal pod autoscalers. They are stored as v2; v1 is a view of the same objects that can name
// one CPU target and nothing else, and carries the rest in annotations.
package autoscaling
