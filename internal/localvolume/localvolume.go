package localvolume

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/rest"
)

const (
	// Driver is the name of the CSI driver of local volumes, and the provisioner of their StorageClasses.
	Driver = "local.skiff"
	// Path is the path of the calls on the kubelet's server.
	Path = "/localvolumes/"
	// NodeAttribute is the attribute of a PersistentVolume that has the name of its node.
	NodeAttribute = "node"
	// ImaginaryAnnotation is the annotation of nodes whose volumes are imaginary, as are their containers: hollow nodes.
	ImaginaryAnnotation = "local.skiff/imaginary"
	// Allocation is the parameter of a StorageClass that says when disk space is allocated: Full, the default, or Thin. It is an attribute of the volume too.
	Allocation = "allocation"
	Full       = "full" // when the volume is created
	Thin       = "thin" // when it is written
)

// Volumes creates, expands and deletes the volumes of a node: the part of csi.ControllerServer that is called from afar. Errors have gRPC codes.
type Volumes interface {
	CreateVolume(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error)
	ControllerExpandVolume(context.Context, *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error)
	DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error)
}

// answer is the body of every answer to a call that reached the driver.
type answer struct {
	Code     codes.Code `json:"code"`
	Message  string     `json:"message,omitempty"`
	Response []byte     `json:"response,omitempty"` // a message of CSI in protobuf
}

// maxRequest bounds the body of a call.
const maxRequest = 1 << 20

// NewHandler serves the calls below Path. It authenticates nobody: the kubelet's server has.
func NewHandler(volumes Volumes) http.Handler {
	m := http.NewServeMux()
	m.Handle("POST "+Path+"CreateVolume", handle(volumes.CreateVolume))
	m.Handle("POST "+Path+"ControllerExpandVolume", handle(volumes.ControllerExpandVolume))
	m.Handle("POST "+Path+"DeleteVolume", handle(volumes.DeleteVolume))
	return m
}

// message is a pointer to a message of CSI.
type message[T any] interface {
	*T
	proto.Message
}

func handle[Q, A any, PQ message[Q], PA message[A]](call func(context.Context, PQ) (PA, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, rq *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, rq.Body, maxRequest))
		if err != nil {
			http.Error(w, fmt.Sprintf("failed to read the call: %v", err), http.StatusBadRequest)
			return
		}
		request := PQ(new(Q))
		if err := proto.Unmarshal(body, request); err != nil {
			http.Error(w, fmt.Sprintf("the call is no message of CSI: %v", err), http.StatusBadRequest)
			return
		}
		var a answer
		response, err := call(rq.Context(), request)
		if err == nil {
			a.Response, err = proto.Marshal(response)
		}
		if err != nil {
			a = answer{Code: status.Code(err), Message: status.Convert(err).Message()}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a) // the client has gone
	})
}

// Client makes calls to the node Node through the API server. API is a client of the core group.
type Client struct {
	API  rest.Interface
	Node string
}

// CreateVolume implements Volumes.
func (c Client) CreateVolume(ctx context.Context, rq *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return call[csi.CreateVolumeResponse](ctx, c, "CreateVolume", rq)
}

// ControllerExpandVolume implements Volumes.
func (c Client) ControllerExpandVolume(ctx context.Context, rq *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	return call[csi.ControllerExpandVolumeResponse](ctx, c, "ControllerExpandVolume", rq)
}

// DeleteVolume implements Volumes.
func (c Client) DeleteVolume(ctx context.Context, rq *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return call[csi.DeleteVolumeResponse](ctx, c, "DeleteVolume", rq)
}

// call returns an error of the driver with its code, and any other with codes.Unavailable: then it is not known whether the call was carried out.
func call[A any, PA message[A]](ctx context.Context, c Client, name string, request proto.Message) (PA, error) {
	body, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	raw, err := c.API.Post().Resource("nodes").Name(c.Node).SubResource("proxy").Suffix(Path+name).SetHeader("Content-Type", "application/octet-stream").Body(body).DoRaw(ctx)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "failed to call node %s: %v", c.Node, err)
	}
	var a answer
	response := PA(new(A))
	if err = json.Unmarshal(raw, &a); err == nil {
		err = proto.Unmarshal(a.Response, response)
	}
	switch {
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "failed to read the answer of node %s: %v", c.Node, err)
	case a.Code != codes.OK:
		return nil, status.Error(a.Code, a.Message)
	}
	return response, nil
}
