package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"skiff/internal/store"
)

// The back-off between two attempts to resume a watch.
// The back-off between two attempts to resume a watch.
const (
	firstResume = 50 * time.Millisecond
	maxResume   = 2 * time.Second
)

// errWatchRefused wraps etcd's reason to end a watch that must not be resumed.
var errWatchRefused = errors.New("etcd refused it")

// runWatch keeps a stream open. When it breaks (a member stops, the leader is lost) it resumes with another after
// the last revision seen.
//
// Each watch has its own stream: etcd answers progress requests only when all watches of a stream are up to
// date, and with its own stream flow control blocks only a slow reader.
func (x *external) runWatch(ctx context.Context, p *watchBuffer) error {
	backoff := firstResume
	for {
		before := p.seen
		err := x.stream(ctx, p)
		if ctx.Err() != nil || errors.Is(err, store.ErrCompacted) || errors.Is(err, errWatchRefused) {
			return err
		}
		if p.seen > before {
			backoff = firstResume
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return ctx.Err()
		}
		backoff = min(2*backoff, maxResume)
	}
}

// stream watches until the stream breaks.
func (x *external) stream(ctx context.Context, p *watchBuffer) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	stream, err := pb.NewWatchClient(x.client.ActiveConnection()).Watch(ctx, callOptions()...)
	if err != nil {
		cancel()
		return err
	}
	responses, ended := receive(ctx, stream)
	defer func() {
		cancel()
		<-ended
	}()
	if err := stream.Send(createRequest(p)); err != nil {
		return err
	}
	take := func(r received) error {
		if r.err != nil {
			return rpctypes.Error(r.err)
		}
		return takeResponse(p, r.response)
	}
	ask := func() error {
		return stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	}
	return deliver(ctx, p, responses, take, ask)
}

func createRequest(p *watchBuffer) *pb.WatchRequest {
	from, end := prefixRange(p.watch.prefix)
	if len(end) == 0 {
		end = []byte{0} // how the wire spells "no end"
	}
	create := &pb.WatchCreateRequest{Key: from, RangeEnd: end, StartRevision: p.seen + 1}
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}
}

type received struct {
	response *pb.WatchResponse
	err      error
}

// receive reads the stream into an unbuffered channel. ended is closed when it has stopped, which it
// does when ctx ends.
func receive(ctx context.Context, stream pb.Watch_WatchClient) (responses chan received, ended chan struct{}) {
	responses, ended = make(chan received), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			response, err := stream.Recv()
			select {
			case responses <- received{response, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return responses, ended
}

func takeResponse(p *watchBuffer, response *pb.WatchResponse) error {
	switch {
	case response.CompactRevision != 0:
		return store.ErrCompacted
	case response.Canceled && response.CancelReason == rpctypes.ErrNoLeader.Error():
		return rpctypes.ErrNoLeader
	case response.Canceled:
		return fmt.Errorf("%w: %s", errWatchRefused, response.CancelReason)
	case response.Created:
		return nil // the header's revision is the store's, not that of the watch
	}
	for _, event := range response.Events {
		p.add(eventOf(event.Kv, event.Type == mvccpb.Event_DELETE, event.Kv.ModRevision))
		p.advance(event.Kv.ModRevision)
	}
	if len(response.Events) == 0 {
		p.advance(response.Header.Revision)
	}
	return nil
}
