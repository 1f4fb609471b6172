//go:build !linux

package kubelet

import "errors"

func makeBallast(string, int64) error { return errors.New("nodes need Linux") }
