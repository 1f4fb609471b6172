// Package batch declares jobs, which run pods until enough of them have succeeded, and cron jobs, which make jobs by the clock.
package batch
