// The one vocabulary of outcomes: Mooncake's numeric codes where it has the case, ours at -2000 and below.
//
// Owns the numbers. proto/mooncake_store/v1 and mooncake_store/status.py carry the same table; a test
// compares them.
#pragma once

#include <cstdint>

namespace mooncake::wire {

enum class Status : std::int16_t {
    kOk = 0,
    kInternalError = -1,
    kBufferOverflow = -10,
    kSegmentNotFound = -101,
    kSegmentAlreadyExists = -102,
    kClientNotFound = -103,
    kNoSpace = -200,
    kInvalidKey = -400,
    kWriteFail = -500,
    kInvalidParams = -600,
    kIllegalClient = -601,
    kNotReady = -703,
    kObjectNotFound = -704,
    kObjectAlreadyExists = -705,
    kObjectHasLease = -706,
    kReplicaNotFound = -710,
    kTransferFail = -800,
    kChecksumMismatch = -801,
    kRpcFail = -900,
    kRpcTimeout = -901,
    kNotSupported = -1012,
    kTaskNotFound = -1400,
    kTaskPendingLimitExceeded = -1401,
    kStaleGrant = -2000,  // the grant's epoch or replica is no longer good: start the put again
    kBusy = -2001,        // a named bound is reached: try again later
    kNoRange = -2002,     // the node has bytes but no range long enough: put again without this segment
    kRebuilding = -2003,  // a miss that may be a hit once all nodes have reported
    kGone = -2004,        // the node does not serve this replica_id (retired, unknown, or the digest differs)
    kSuperseded = -2005,  // a newer value of the key is visible
    kSealed = -2006,      // the replica was already written; the bytes were discarded
    kStaleEpoch = -2007,  // the sender follows an older reign
    kStaleRequest = -2008,     // a repeated sequence that left the replay window
    kSessionUnknown = -2009,   // open a session first (it expired, or the master is new)
    kVersionMismatch = -2010,  // the text names both versions
    kUnauthenticated = -2011,
    kUnreachable = -2012,  // present, but only on segments this client cannot reach
    kClosed = -2013,
    kDeadline = -2014,
    kValueTooLarge = -2015,  // larger than any segment that is mounted
    kMalformed = -2016,      // bytes that do not parse; the connection ends after this answer
};

constexpr bool ok(Status status) { return status == Status::kOk; }

// The name as printed in messages ("NOT_READY"); "UNKNOWN" for a number outside the table.
const char* status_name(Status status);

}  // namespace mooncake::wire
