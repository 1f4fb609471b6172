package disk

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// internal returns an error with codes.Internal, unless an error that it wraps has a code of its own: then it has that.
func internal(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	var coded interface{ GRPCStatus() *status.Status }
	if errors.As(err, &coded) {
		return status.Error(coded.GRPCStatus().Code(), err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
