package batch

import "skiff/internal/catalog"

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{CronJob, Job}
}

// fill sets a field that is nil.
func fill[V any](p **V, value V) {
	if *p == nil {
		*p = &value
	}
}

func valueOr[V any](p *V, otherwise V) V {
	if p == nil {
		return otherwise
	}
	return *p
}
