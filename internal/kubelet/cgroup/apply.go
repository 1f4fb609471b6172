package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// apply writes resources into a cgroup.
func (m *Manager) apply(path string, r resources) error {
	if m.version == 2 {
		return m.apply2(path, r)
	}
	return m.apply1(path, r)
}

func (m *Manager) apply1(path string, r resources) error {
	if dir, ok := m.dir("cpu", path); ok {
		if r.shares != 0 {
			if err := write(filepath.Join(dir, "cpu.shares"), strconv.FormatUint(r.shares, 10)); err != nil {
				return err
			}
		}
		if err := setQuota1(dir, r.quota, r.period); err != nil {
			return err
		}
	}
	if dir, ok := m.dir("memory", path); ok && r.memory != 0 {
		if err := writeLimit(dir, "memory.limit_in_bytes", "memory.usage_in_bytes", r.memory); err != nil {
			return err
		}
	}
	if dir, ok := m.dir("pids", path); ok && r.pids > 0 {
		if err := write(filepath.Join(dir, "pids.max"), strconv.FormatInt(r.pids, 10)); err != nil {
			return err
		}
	}
	if dir, ok := m.dir("hugetlb", path); ok {
		return m.setPages(dir, "limit_in_bytes", r.hugePages)
	}
	return nil
}

// setQuota1 writes a cpu limit. A period that does not go with the quota in force is refused; then the quota goes first.
func setQuota1(dir string, quota, period int64) error {
	if quota == 0 {
		return nil
	}
	setPeriod := func() error { return write(filepath.Join(dir, "cpu.cfs_period_us"), strconv.FormatInt(period, 10)) }
	first := setPeriod()
	if first != nil && !errors.Is(first, syscall.EINVAL) {
		return first
	}
	if err := write(filepath.Join(dir, "cpu.cfs_quota_us"), strconv.FormatInt(quota, 10)); err != nil {
		return err
	}
	if first != nil {
		return setPeriod()
	}
	return nil
}

func (m *Manager) apply2(path string, r resources) error {
	dir, _ := m.dir("", path)
	if r.shares != 0 {
		if err := write(filepath.Join(dir, "cpu.weight"), strconv.FormatUint(SharesToWeight(r.shares), 10)); err != nil {
			return err
		}
	}
	if r.quota != 0 {
		quota := "max"
		if r.quota > 0 {
			quota = strconv.FormatInt(r.quota, 10)
		}
		if err := write(filepath.Join(dir, "cpu.max"), quota+" "+strconv.FormatInt(r.period, 10)); err != nil {
			return err
		}
	}
	if r.memory != 0 {
		if err := writeLimit(dir, "memory.max", "memory.current", r.memory); err != nil {
			return err
		}
	}
	if r.pids > 0 {
		if err := write(filepath.Join(dir, "pids.max"), strconv.FormatInt(r.pids, 10)); err != nil {
			return err
		}
	}
	return m.setPages(dir, "max", r.hugePages)
}

// writeLimit writes a memory limit and, when the kernel finds that more is in use already, adds the current usage to the error.
func writeLimit(dir, file, usage string, limit int64) error {
	err := write(filepath.Join(dir, file), strconv.FormatInt(limit, 10))
	if errors.Is(err, syscall.EBUSY) {
		current, _ := os.ReadFile(filepath.Join(dir, usage))
		return fmt.Errorf("%w (current usage: %s)", err, current)
	}
	return err
}

// setPages bounds huge pages of every size, where the controller is there. Kernels since 5.7 count reservations apart.
func (m *Manager) setPages(dir, suffix string, limits map[int64]int64) error {
	for _, size := range m.pageSizes {
		for i, file := range []string{"hugetlb." + pageName(size) + "." + suffix, "hugetlb." + pageName(size) + ".rsvd." + suffix} {
			file = filepath.Join(dir, file)
			if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) && (i > 0 || m.version == 2) {
				continue
			}
			if err := write(file, strconv.FormatInt(limits[size], 10)); err != nil {
				return err
			}
		}
	}
	return nil
}
