// Package chaos injects faults into the real program: it is killed at random moments under load and given a disk that is slow to sync. What it
// acknowledged must be there afterwards, and a resumed watch must neither miss nor repeat an event.
//
// Controllers and schedulers, in processes of their own, are killed in the middle of rollouts, Jobs and the deletion of namespaces, while
// a disruptor changes the same objects; a checker goes through all watch events, and knows by rules of its own where a pod may be and
// which pods are needed. Leaders are stalled for longer than their lease, and objects contradict themselves.
//
// Everything random comes from one seed, which is printed; -seed plays it again, as far as the machine's own timing allows. -rounds says how
// often the program is killed, -fault-rounds in how many rounds the components are killed.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package chaos
