package cli

import (
	"strconv"
	"strings"

	"skiff/internal/timerslack"
)

// unit returns the text of a service unit that runs a program with the given arguments. Stopping the service stops skiff alone: containerd and
// containers keep running (KillMode=process). systemd never gives up starting it (StartLimitIntervalSec=0).
//
// A service with a node is not sandboxed: everything that containers run is its child. NoNewPrivileges, capability bounds and system call
// filters (LockPersonality, RestrictRealtime, RestrictSUIDSGID, ProtectClock and so on) would be inherited by every container and break
// setuid programs, privileged pods and the unpacking of images; what gives the service a mount namespace of its own (ProtectSystem,
// PrivateTmp, ProtectKernelTunables and so on) would hide volumes' mounts from containers that outlive it. What a container may do is
// decided by its securityContext. A service without a node runs nothing else and takes all of that.
func unit(program string, arguments []string, node bool) string {
	command := []string{program}
	for _, f := range arguments {
		if !strings.HasPrefix(f, "--unit-dir=") && !strings.HasPrefix(f, "--bin-dir=") {
			command = append(command, f)
		}
	}
	for i, word := range command {
		command[i] = quote(word)
	}
	sandbox := ""
	if !node {
		sandbox = controlPlaneSandbox
	}
	return `[Unit]
Description=skiff, a Kubernetes in one program
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=` + strings.Join(command, " ") + `
KillMode=process
Delegate=yes
Restart=always
RestartSec=1
LimitNOFILE=1048576
TasksMax=infinity
OOMScoreAdjust=-999
OOMPolicy=continue
TimerSlackNSec=` + strconv.Itoa(int(timerslack.Ample)) + `
` + sandbox + `
[Install]
WantedBy=multi-user.target
`
}

// controlPlaneSandbox is for a service that starts no other program. The capabilities left are for ports below 1024 and for files of
// other users: keys that flags name, and kubeconfigs that the cluster was added to, which are under /home or /root.
const controlPlaneSandbox = `NoNewPrivileges=yes
CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_DAC_OVERRIDE CAP_CHOWN CAP_FOWNER
LockPersonality=yes
MemoryDenyWriteExecute=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=full
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
`

// quote returns a word as it is written in a unit.
func quote(word string) string {
	word = strings.NewReplacer("%", "%%", "$", "$$").Replace(word)
	if !strings.ContainsAny(word, " \t\"'\\;") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}
