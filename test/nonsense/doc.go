// Package nonsense changes JSON documents at random, for tests that give a server what no proper client sends: fields of other types, values from
// elsewhere in the document, numbers that no type holds, and depth. The same seed gives the same document. Only tests import it.
//
// It must not import anything of skiff: tests of every package may use it.
package nonsense
