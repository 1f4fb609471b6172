// Package schedulingtest makes random clusters from seeds and records what plugins say about them, so that package scheduling can be compared with
// kube-scheduler. test/schedulerdiff asks kube-scheduler; its answers are kept in internal/scheduling/testdata.
//
// It must not import any other package of skiff than scheduling.
package schedulingtest
