# Sourced by benchmarks of the network: runs the script anew in a network, mounts and processes of its own, with an empty /run, loopback up, and a
# directory $work, which is removed when the script ends. What the machine must have is checked before, by the function "prepare" of the script.
if [ "${ALONE:-}" != yes ]; then
  prepare
  ALONE=yes exec unshare --net --mount --pid --fork --kill-child "$self" "$@"
fi
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
work=$(mktemp -d /tmp/skiff-network-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
ip link set lo up
