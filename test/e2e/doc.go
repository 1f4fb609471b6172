// Package e2e holds tests of whole servers, as clients see them.
package e2e
