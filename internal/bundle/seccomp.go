package bundle

import (
	"encoding/json"
	"strings"
)

// pauseCalls are the system calls that pause makes, those of runc on the way to it, and of the kernel's and C library's start of a program. The runtime's
// default profile allows 383 and, for programs of 32 bits, as many twice more: to work that out takes runc 20 ms of processor time for every pod, this 1 ms.
// pause runs no other program, so it needs no more.
const pauseCalls = `access arch_prctl brk capget capset chdir clock_gettime clock_nanosleep clone clone3 close close_range dup dup2 dup3 epoll_create1 epoll_ctl
epoll_pwait epoll_wait eventfd2 execve exit exit_group faccessat faccessat2 fchdir fcntl fstat fstatfs futex getcwd getdents64 getegid geteuid getgid getgroups getpgrp
getpid getppid getrandom getrlimit gettid getuid ioctl lseek madvise mincore mmap mprotect mremap munmap nanosleep newfstatat open openat openat2 pause pipe2
ppoll prctl pread64 prlimit64 read readlink readlinkat restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait
sched_getaffinity sched_yield set_robust_list set_tid_address setgid setgroups setresgid setresuid setsid setuid sigaltstack statfs statx tgkill umask uname wait4 waitid
write writev`

// pauseProfile returns the seccomp profile of pause, in the JSON format of a localhost profile.
func pauseProfile() ([]byte, error) {
	type rule struct {
		Names  []string `json:"names"`
		Action string   `json:"action"`
	}
	return json.Marshal(struct {
		Default string `json:"defaultAction"`
		Errno   int    `json:"defaultErrnoRet"`
		Rules   []rule `json:"syscalls"`
	}{"SCMP_ACT_ERRNO", 1, []rule{{strings.Fields(pauseCalls), "SCMP_ACT_ALLOW"}}})
}
