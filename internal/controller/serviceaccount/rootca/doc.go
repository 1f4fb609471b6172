// Package rootca publishes the certificate authority of the API server's certificate: every namespace has it in a ConfigMap that pods mount
// beside their token, and the cluster has it in a ClusterTrustBundle.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package rootca
