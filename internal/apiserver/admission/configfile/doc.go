// Package configfile reads the file of --admission-control-config-file: an AdmissionConfiguration, which holds a configuration for each
// plugin that takes one, or, as it was before there was that kind, the configuration of ImagePolicyWebhook or PodNodeSelector itself.
//
// What differs from upstream: a plugin that does not exist, that takes no configuration, or that is named twice is an error, where upstream
// ignores it.
//
// It must not import a plugin, nor anything else of skiff: the caller says which plugins exist and parses their configurations.
package configfile
