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

const (
	firstResume = 50 * time.Millisecond
	maxResume   = 2 * time.Second
)

// errWatchRefused wraps etcd's reason to end a watch for good.
var errWatchRefused = errors.New("etcd refused it")

// follow keeps a stream open. When it breaks (a member stops, the leader is lost) it goes on with another, after
// what it has seen.
//
// Each watch has a stream of its own: requests for progress are answered only when all watches of a stream are up to
// date, and flow control holds up a slow reader alone.
func (x *external) follow(ctx context.Context, p *pump) error {
	wait := firstResume
	for {
		before := p.seen
		err := x.stream(ctx, p)
		if ctx.Err() != nil || errors.Is(err, store.ErrCompacted) || errors.Is(err, errWatchRefused) {
			return err
		}
		if p.seen > before {
			wait = firstResume
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = min(2*wait, maxResume)
	}
}

// stream watches until the stream breaks.
func (x *external) stream(ctx context.Context, p *pump) error {
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
	return run(ctx, p, responses, take, ask)
}

func createRequest(p *pump) *pb.WatchRequest {
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

// receive turns the stream into a channel, which waits for its reader. ended is closed when it has stopped, which it
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

func takeResponse(p *pump, response *pb.WatchResponse) error {
	switch {
	case response.CompactRevision != 0:
		return store.ErrCompacted
	case response.Canceled && response.CancelReason == rpctypes.ErrNoLeader.Error():
		return rpctypes.ErrNoLeader
	case response.Canceled:
		return fmt.Errorf("%w: %s", errWatchRefused, response.CancelReason)
	case response.Created:
		return nil // its revision is the store's, not how far the watch has come
	}
	for _, event := range response.Events {
		p.take(eventOf(event.Kv, event.Type == mvccpb.Event_DELETE, event.Kv.ModRevision))
		p.reach(event.Kv.ModRevision)
	}
	if len(response.Events) == 0 {
		p.reach(response.Header.Revision)
	}
	return nil
}
