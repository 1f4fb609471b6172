// Package chaos mistreats the real program: it is killed at random moments under load and given a disk that is slow to sync. Whatever it
// acknowledged must be there afterwards, and a watch that is resumed must miss and repeat nothing.
//
// Control loops and schedulers, in processes of their own, are killed in the middle of rollouts, Jobs and the deletion of namespaces, while
// somebody else changes the same objects; a judge goes through everything that happened, and knows by rules of its own where a pod may be and
// what is needed. Leaders are stalled for longer than their lease, and objects contradict themselves.
//
// Everything random comes from one seed, which is printed; -seed plays it again, as far as the machine's own timing allows. -rounds says how
// often the program is killed, -fault-rounds in how many rounds the components are.
package chaos
