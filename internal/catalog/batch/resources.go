package batch

import "skiff/internal/catalog"

// Resources are the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{CronJob, Job}
}

// fill sets what was left out.
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
