package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

const (
	dialTimeout      = 20 * time.Second
	keepAliveTime    = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
	// maxSendBytes allows for a request being a little larger than the object in it.
	maxSendBytes = MaxRequestBytes + 512<<10

	// probeKey is read to get the store's revision and health; nobody writes it.
	probeKey = "skiff/probe"
)

// DialOptions are the endpoints of an etcd cluster and the files to authenticate with.
type DialOptions struct {
	Endpoints                 []string // as --etcd-servers
	CAFile, CertFile, KeyFile string   // as --etcd-cafile, --etcd-certfile, --etcd-keyfile
}

// Dial connects to an etcd cluster and returns when it has answered.
func Dial(ctx context.Context, opts DialOptions) (*Store, error) {
	x, err := dial(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %v: %w", opts.Endpoints, err)
	}
	return newStore(x), nil
}

// external is the engine of an external etcd cluster, reached over gRPC.
type external struct {
	client *clientv3.Client
	kv     pb.KVClient
}

func dial(ctx context.Context, opts DialOptions) (*external, error) {
	if len(opts.Endpoints) == 0 {
		return nil, errors.New("no endpoints given")
	}
	cfg := clientv3.Config{
		Endpoints:            opts.Endpoints,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		MaxCallSendMsgSize:   maxSendBytes,
		Logger:               zap.NewNop(), // the client logs only errors that it also returns
	}
	if opts.CAFile != "" || opts.CertFile != "" || opts.KeyFile != "" {
		info := transport.TLSInfo{TrustedCAFile: opts.CAFile, CertFile: opts.CertFile, KeyFile: opts.KeyFile}
		tlsConfig, err := info.ClientConfig()
		if err != nil {
			return nil, err
		}
		cfg.TLS = tlsConfig
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, err
	}
	x := &external{client: client, kv: clientv3.RetryKVClient(client)}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := x.healthy(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return x, nil
}

// callOptions returns the limits of one call; requests are bounded, responses are not.
func callOptions() []grpc.CallOption {
	return []grpc.CallOption{grpc.MaxCallSendMsgSize(maxSendBytes), grpc.MaxCallRecvMsgSize(math.MaxInt32)}
}

func (x *external) read(ctx context.Context, key, end []byte, revision, limit int64, _ bool) (readResult, error) {
	if end != nil && len(end) == 0 {
		end = []byte{0} // how the wire spells "no end"
	}
	response, err := x.kv.Range(ctx, &pb.RangeRequest{Key: key, RangeEnd: end, Revision: revision, Limit: limit}, callOptions()...)
	if err != nil {
		return readResult{}, rpctypes.Error(err)
	}
	return readResult{kvs: response.Kvs, count: response.Count, revision: response.Header.Revision}, nil
}

func (x *external) write(ctx context.Context, c *change) (writeResult, error) {
	response, err := x.kv.Txn(ctx, c.txn(), callOptions()...)
	if err != nil {
		return writeResult{}, rpctypes.Error(err)
	}
	return resultOf(c, response), nil
}

func (x *external) grant(ctx context.Context, seconds int64) (int64, error) {
	response, err := x.client.Grant(ctx, seconds)
	if err != nil {
		return 0, err
	}
	return int64(response.ID), nil
}

func (x *external) compact(ctx context.Context, revision int64) error {
	_, err := x.kv.Compact(ctx, &pb.CompactionRequest{Revision: revision}, callOptions()...)
	return rpctypes.Error(err)
}

func (x *external) revision(ctx context.Context) (int64, error) {
	result, err := x.read(ctx, []byte(probeKey), nil, 0, 1, true)
	return result.revision, err
}

func (x *external) snapshot(ctx context.Context, w io.Writer) error {
	r, err := x.client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}

// defragment defragments one member after the other, because each blocks meanwhile.
func (x *external) defragment(ctx context.Context) error {
	for _, endpoint := range x.client.Endpoints() {
		if _, err := x.client.Defragment(ctx, endpoint); err != nil {
			return fmt.Errorf("%s: %w", endpoint, err)
		}
	}
	return nil
}

func (x *external) healthy(ctx context.Context) error {
	_, err := x.revision(ctx)
	return err
}

func (x *external) size(ctx context.Context) (allocated, inUse int64, err error) {
	status, err := x.client.Status(ctx, x.client.Endpoints()[0])
	if err != nil {
		return 0, 0, err
	}
	return status.DbSize, status.DbSizeInUse, nil
}

func (x *external) close() error { return x.client.Close() }
