package registry

// SetScan has the store be read in small pages.
func (r *Registry) SetScan(first, most int64, bytes, held int) {
	r.scans = scanBounds{first: first, most: most, bytes: bytes, held: held}
}
