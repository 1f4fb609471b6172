// Command encryptiondiff compares how skiff encrypts what it stores with how upstream does: each reads what the other has written, with every provider, and both
// refuse the same configurations with the same errors. It prints the differences and exits with status 1 if there are any; with -record it writes upstream's
// values and errors to the test data of skiff's package. It is a module of its own, because it needs upstream's package.
//
// It must not import anything of skiff but its encryption, which is what is compared, and the plugin of its tests.
package main
