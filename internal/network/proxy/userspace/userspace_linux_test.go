package userspace

import (
	"testing"

	"skiff/internal/network/proxy/model"
	"skiff/internal/network/proxy/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

func TestSuite(t *testing.T) {
	proxytest.Run(t, proxytest.Options{
		New:          func(c model.Config) (model.Mode, error) { return New(c) },
		Clean:        Clean,
		HidesClients: true,
		EndsOnClose:  true,
	})
}
