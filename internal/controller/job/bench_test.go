package job_test

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/job"
)

// BenchmarkJob measures Jobs of 500 pods, 100 at a time, whose pods end at once. Pods are written by the loop three times, by the kubelet once.
func BenchmarkJob(b *testing.B) {
	server := apitest.Start(b, apitest.WithoutGuard())
	n := &fakeNode{end: always(corev1.PodSucceeded)}
	n.run(b, server, 100)
	controllertest.Run(b, server, job.New)
	const pods = 500
	began, i := time.Now(), 0
	for b.Loop() {
		i++
		name := fmt.Sprintf("job-%d", i)
		_, err := server.Client().BatchV1().Jobs("default").Create(b.Context(), newJob(name, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = p(int32(pods)), p(int32(100)) }), metav1.CreateOptions{})
		ok(b, err)
		finish(b, server, name, batchv1.JobComplete)
	}
	b.ReportMetric(float64(i*pods)/time.Since(began).Seconds(), "pods/s")
}
