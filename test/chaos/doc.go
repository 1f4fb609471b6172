// Package chaos breaks skiff on purpose: the built program is killed under load and must come back with everything it promised.
package chaos
