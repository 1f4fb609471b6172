package all

import (
	"sync"

	"skiff/internal/catalog"
	"skiff/internal/catalog/admissionregistration"
	"skiff/internal/catalog/apiextensions"
	"skiff/internal/catalog/apiregistration"
	"skiff/internal/catalog/apps"
	"skiff/internal/catalog/authentication"
	"skiff/internal/catalog/authorization"
	"skiff/internal/catalog/autoscaling"
	"skiff/internal/catalog/batch"
	"skiff/internal/catalog/certificates"
	"skiff/internal/catalog/coordination"
	"skiff/internal/catalog/core"
	"skiff/internal/catalog/discovery"
	"skiff/internal/catalog/events"
	"skiff/internal/catalog/flowcontrol"
	"skiff/internal/catalog/networking"
	"skiff/internal/catalog/node"
	"skiff/internal/catalog/policy"
	"skiff/internal/catalog/rbac"
	"skiff/internal/catalog/resource"
	"skiff/internal/catalog/scheduling"
	"skiff/internal/catalog/storage"
	"skiff/internal/catalog/storagemigration"
)

// Former returns resources that Kubernetes had once and that are served beside those of today: InitializerConfigurations. The list is built once and must not
// be changed.
func Former() []*catalog.Info { return former() }

var former = sync.OnceValue(func() []*catalog.Info {
	return []*catalog.Info{admissionregistration.InitializerConfiguration.Info()}
})

// Resources returns all resources. The list is built once and must not be changed.
func Resources() []*catalog.Info { return resources() }

var resources = sync.OnceValue(func() []*catalog.Info {
	var infos []*catalog.Info
	for _, group := range [][]catalog.Declaration{
		core.Resources(),
		apiregistration.Resources(),
		apps.Resources(),
		events.Resources(),
		authentication.Resources(),
		authorization.Resources(),
		autoscaling.Resources(),
		batch.Resources(),
		certificates.Resources(),
		networking.Resources(),
		policy.Resources(),
		rbac.Resources(),
		storage.Resources(),
		admissionregistration.Resources(),
		apiextensions.Resources(),
		scheduling.Resources(),
		coordination.Resources(),
		node.Resources(),
		discovery.Resources(),
		resource.Resources(),
		flowcontrol.Resources(),
		storagemigration.Resources(),
	} {
		for _, declaration := range group {
			infos = append(infos, declaration.Info())
		}
	}
	return infos
})
