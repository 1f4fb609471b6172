// Package cli is the commands of skiff, one file each. They read flags, call cluster, and say what happened; nothing else is decided here.
package cli
