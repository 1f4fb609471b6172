// Package chaos mistreats the real program: it is killed at random moments under load and given a disk that is slow to sync. Whatever it
// acknowledged must be there afterwards, and a watch that is resumed must miss and repeat nothing.
//
// Everything random comes from one seed, which is printed; -seed plays it again, as far as the machine's own timing allows. -rounds says how
// often the program is killed.
package chaos
