package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"skiff/internal/store"
)

// txn returns the etcd transaction for a change of a key: make the change if the key has the given revision, and otherwise read
// the key.
func (c *change) txn() *pb.TxnRequest {
	op := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: c.key, Value: c.value, Lease: c.lease}}}
	if c.kind == kindDelete {
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

// resultOf returns the result of a change from the response to its transaction.
func resultOf(c *change, response *pb.TxnResponse) writeResult {
	if !response.Succeeded {
		kvs := response.Responses[0].GetResponseRange().GetKvs()
		if len(kvs) == 0 {
			return writeResult{}
		}
		current := kvOf(kvs[0])
		return writeResult{current: &current}
	}
	if c.kind == kindDelete && response.Responses[0].GetResponseDeleteRange().GetDeleted() == 0 {
		return writeResult{}
	}
	return writeResult{revision: response.Header.Revision}
}
