// Package reviewclient sends reviews, such as SubjectAccessReviews, to a server that a kubeconfig file names, and reads its responses. The file's cluster is the
// server, whose URL is used as it is, and its user is how this server identifies itself there.
//
// A response, its headers, the time that it may take and the number of connections are bounded. Certificates and tokens are read again from their files when
// they are renewed.
//
// What differs from upstream: redirects are not followed, as the credentials would follow them; HTTP/1.1 is spoken, so that calls do not fail together.
//
// It must not import anything of skiff.
package reviewclient
