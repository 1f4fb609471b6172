package localvolume_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"skiff/internal/localvolume"
)

// volumes know one volume, v, and have space for no other.
type volumes struct{}

func (volumes) CreateVolume(_ context.Context, rq *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if rq.Name != "v" {
		return nil, status.Error(codes.ResourceExhausted, "no space for "+rq.Name)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: rq.Name, CapacityBytes: rq.CapacityRange.RequiredBytes}}, nil
}

func (volumes) ControllerExpandVolume(_ context.Context, rq *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: rq.CapacityRange.RequiredBytes, NodeExpansionRequired: true}, nil
}

func (volumes) DeleteVolume(_ context.Context, rq *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if rq.VolumeId != "v" {
		return nil, status.Error(codes.FailedPrecondition, rq.VolumeId+" is in use")
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// Answers and errors are the driver's; where nobody answers, the error says that nothing is known.
func TestCalls(t *testing.T) {
	server := httptest.NewServer(http.StripPrefix("/api/v1/nodes/n1/proxy", localvolume.NewHandler(volumes{})))
	defer server.Close()
	api, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, n1 := t.Context(), localvolume.Client{API: api.CoreV1().RESTClient(), Node: "n1"}
	size := &csi.CapacityRange{RequiredBytes: 1 << 30}
	if created, err := n1.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "v", CapacityRange: size}); err != nil || created.Volume.VolumeId != "v" || created.Volume.CapacityBytes != 1<<30 {
		t.Errorf("%v %v", created, err)
	}
	if _, err := n1.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "w"}); status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "no space for w" {
		t.Error(err)
	}
	if expanded, err := n1.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: size}); err != nil || expanded.CapacityBytes != 1<<30 || !expanded.NodeExpansionRequired {
		t.Errorf("%v %v", expanded, err)
	}
	if _, err := n1.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "v"}); err != nil {
		t.Error(err)
	}
	if _, err := n1.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "w"}); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	if _, err := (localvolume.Client{API: api.CoreV1().RESTClient(), Node: "n2"}).DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "v"}); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	for _, request := range []struct{ method, path string }{{"GET", "CreateVolume"}, {"POST", "ListVolumes"}} {
		rq, err := http.NewRequestWithContext(ctx, request.method, server.URL+"/api/v1/nodes/n1/proxy"+localvolume.Path+request.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(rq)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode < 400 {
			t.Errorf("%s %s: %s", request.method, request.path, response.Status)
		}
	}
}
