#include "wire/status.h"

namespace mooncake::wire {

const char* status_name(Status status) {
    switch (status) {
        case Status::kOk:
            return "OK";
        case Status::kInternalError:
            return "INTERNAL_ERROR";
        case Status::kBufferOverflow:
            return "BUFFER_OVERFLOW";
        case Status::kSegmentNotFound:
            return "SEGMENT_NOT_FOUND";
        case Status::kSegmentAlreadyExists:
            return "SEGMENT_ALREADY_EXISTS";
        case Status::kClientNotFound:
            return "CLIENT_NOT_FOUND";
        case Status::kNoSpace:
            return "NO_AVAILABLE_HANDLE";
        case Status::kInvalidKey:
            return "INVALID_KEY";
        case Status::kWriteFail:
            return "WRITE_FAIL";
        case Status::kInvalidParams:
            return "INVALID_PARAMS";
        case Status::kIllegalClient:
            return "ILLEGAL_CLIENT";
        case Status::kNotReady:
            return "REPLICA_IS_NOT_READY";
        case Status::kObjectNotFound:
            return "OBJECT_NOT_FOUND";
        case Status::kObjectAlreadyExists:
            return "OBJECT_ALREADY_EXISTS";
        case Status::kObjectHasLease:
            return "OBJECT_HAS_LEASE";
        case Status::kReplicaNotFound:
            return "REPLICA_NOT_FOUND";
        case Status::kTransferFail:
            return "TRANSFER_FAIL";
        case Status::kChecksumMismatch:
            return "CHECKSUM_MISMATCH";
        case Status::kRpcFail:
            return "RPC_FAIL";
        case Status::kRpcTimeout:
            return "RPC_TIMEOUT";
        case Status::kNotSupported:
            return "NOT_SUPPORTED";
        case Status::kTaskNotFound:
            return "TASK_NOT_FOUND";
        case Status::kTaskPendingLimitExceeded:
            return "TASK_PENDING_LIMIT_EXCEEDED";
        case Status::kStaleGrant:
            return "STALE_GRANT";
        case Status::kBusy:
            return "BUSY";
        case Status::kNoRange:
            return "NO_RANGE";
        case Status::kRebuilding:
            return "REBUILDING";
        case Status::kGone:
            return "GONE";
        case Status::kSuperseded:
            return "SUPERSEDED";
        case Status::kSealed:
            return "SEALED";
        case Status::kStaleEpoch:
            return "STALE_EPOCH";
        case Status::kStaleRequest:
            return "STALE_REQUEST";
        case Status::kSessionUnknown:
            return "SESSION_UNKNOWN";
        case Status::kVersionMismatch:
            return "VERSION_MISMATCH";
        case Status::kUnauthenticated:
            return "UNAUTHENTICATED";
        case Status::kUnreachable:
            return "UNREACHABLE";
        case Status::kClosed:
            return "CLOSED";
        case Status::kDeadline:
            return "DEADLINE";
        case Status::kValueTooLarge:
            return "VALUE_TOO_LARGE";
        case Status::kMalformed:
            return "MALFORMED";
    }
    return "UNKNOWN";
}

}  // namespace mooncake::wire
