package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"skiff/internal/store"
)

// txn is how a server of etcd is asked for a change of a key: do it if the key has the given revision, and otherwise read
// the key.
func (c *change) txn() *pb.TxnRequest {
	op := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: c.key, Value: c.value, Lease: c.lease}}}
	if c.kind == deleted {
		op = &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: c.key}}}
	}
	request := &pb.TxnRequest{Success: []*pb.RequestOp{op}}
	if c.ifRevision == store.AnyRevision {
		return request
	}
	request.Compare = []*pb.Compare{{
		Key:         c.key,
		Target:      pb.Compare_MOD,
		Result:      pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_ModRevision{ModRevision: c.ifRevision},
	}}
	request.Failure = []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: c.key}}}}
	return request
}

// outcomeOf is what a server answered to such a request.
func outcomeOf(c *change, response *pb.TxnResponse) outcome {
	if !response.Succeeded {
		kvs := response.Responses[0].GetResponseRange().GetKvs()
		if len(kvs) == 0 {
			return outcome{}
		}
		current := kvOf(kvs[0])
		return outcome{current: &current}
	}
	if c.kind == deleted && response.Responses[0].GetResponseDeleteRange().GetDeleted() == 0 {
		return outcome{}
	}
	return outcome{revision: response.Header.Revision}
}
