// Package cronjob creates the Jobs of CronJobs at the times of their schedules.
//
// A reconcile first brings the status up to date: which Jobs are active, which was the last start, which the last success. Then it deletes
// finished Jobs beyond the history limits, and creates the Job of the latest start that is due (schedule.go). A Job's name has the minute of its
// start, so that the API server refuses a second one. A Job that was created just before the loop was killed is found by that name and its
// annotation, and recorded in the status before anything else: no start is made twice, wherever the loop was stopped and wherever the clock was
// set to meanwhile, as long as that Job is there.
//
// The only thing remembered is when a schedule was changed: what the new one would have started before that is not made up for.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package cronjob
