// Package webhook authenticates bearer tokens by asking another server, with a TokenReview. The kubeconfig of
// --authentication-token-webhook-config-file says where it is and with which credentials to ask. Failures that are likely to pass are tried
// again. A tokencache belongs in front of it.
//
// It must not import anything else of skiff but authn.
package webhook
