package main

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	namespace = "default"
	selector  = "app=loops"
)

// statefulSet creates a StatefulSet that manages its pods in parallel, returns how long it took until all of them were Ready, and deletes it.
func statefulSet(ctx context.Context, c kubernetes.Interface) (time.Duration, error) {
	if err := prepare(ctx, c); err != nil {
		return 0, err
	}
	pods, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, err
	}
	labels, count := map[string]string{"app": "loops"}, int32(*replicas)
	began := time.Now()
	_, err = c.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "loops"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &count, PodManagementPolicy: appsv1.ParallelPodManagement, ServiceName: "loops", Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if err := untilReady(ctx, c, pods.ResourceVersion); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, remove(ctx, c)
}

// prepare waits for the service account that pods run as.
func prepare(ctx context.Context, c kubernetes.Interface) error {
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// untilReady returns when all pods of the StatefulSet are Ready; version is that of a list without them.
func untilReady(ctx context.Context, c kubernetes.Interface, version string) error {
	ready := map[string]bool{}
	return follow(ctx, c.CoreV1().Pods(namespace).Watch, version, func(pod *corev1.Pod) bool {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				ready[pod.Name] = true
			}
		}
		return len(ready) == *replicas
	})
}

// remove deletes the StatefulSet and returns when its pods are gone.
func remove(ctx context.Context, c kubernetes.Interface) error {
	background := metav1.DeletePropagationBackground
	if err := c.AppsV1().StatefulSets(namespace).Delete(ctx, "loops", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		return err == nil && len(pods.Items) == 0, err
	})
}
