// Package pod declares pods, and pod templates for everything that makes pods: workload resources fill in and check the
// template they embed with DefaultTemplate, ValidateTemplate and TemplateWarnings, so that a template is refused for the
// same reasons as the pods that would be made from it.
//
// What a volume is made of is the volume package's concern; here volumes only matter for what containers mount.
package pod
