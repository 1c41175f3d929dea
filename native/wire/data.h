// Bodies of the data plane's frames, between a client and a node. A body holds descriptors only; the bytes of
// values follow it as the frame's payload, so that both ends scatter and gather without staging.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "wire/bytes.h"
#include "wire/ids.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace mooncake::wire {

// read: u32 count, u32 flags, ReadItems.
enum ReadFlags : std::uint32_t {
    kReadUserMetadata = 1,  // answer the value's user metadata in its first piece
    kReadHeader = 2,        // answer its whole header there, times as they remain; for a node that copies it
    // The items are parts of values, and a part cannot be held against the checksum of the whole: the node
    // checks each value before it answers, and the verdict's checksum is of the part alone, from 0. It looks
    // at kVerifiedBytesMax a request: a value once for items that follow each other, and each part. What is
    // beyond it is answered VALUE_TOO_LARGE.
    kReadVerified = 4,
};
inline constexpr std::uint64_t kVerifiedBytesMax = 32u << 20;  // 2 to 4 ms of a data thread's time
struct ReadItem {
    ReplicaId replica = 0;
    std::uint64_t digest = 0;  // key_digest(tenant, key): not another value, not another tenant's
    std::uint64_t offset = 0;
    std::uint64_t length = ~std::uint64_t{0};  // at most; all ones = to the end
};
static_assert(sizeof(ReadItem) == 32);
struct Read {
    std::uint32_t flags = 0;
    std::vector<ReadItem> items;
};
void encode_read(std::uint32_t flags, std::span<const ReadItem> items, Writer& writer);
std::optional<Read> parse_read(Bytes body);

// Its answer: frames (kFlagMore on all but the last) of at most kChunkBytesMax payload. Body: u32 count, u32
// zero, Pieces, then their user metadata. Payload: for each piece its bytes, then a Verdict. Pieces come in
// the order of the items; a value may be cut into several; every item has exactly one piece marked last,
// whose verdict counts.
enum PieceFlags : std::uint16_t { kPieceLast = 1 };
struct Piece {
    std::uint32_t index = 0;  // of the item in the request
    std::uint16_t flags = 0;  // PieceFlags
    std::uint16_t metadata_bytes = 0;
    std::uint64_t length = 0;
};
static_assert(sizeof(Piece) == 16);
struct Verdict {
    Status status = Status::kOk;
    std::uint16_t has_checksum = 0;
    std::uint32_t checksum = 0;  // of the whole value, as its writer computed it
};
static_assert(sizeof(Verdict) == 8);
struct ReadReply {
    std::vector<Piece> pieces;
    std::vector<std::string_view> metadata;  // one a piece
    std::uint64_t payload_bytes = 0;         // pieces and verdicts
};
void encode_read_reply(std::span<const Piece> pieces, std::span<const std::string_view> metadata,
                       Writer& writer);
// metadata_max: kValueHeaderBytesMax where headers were asked for.
std::optional<ReadReply> parse_read_reply(Bytes body, std::size_t metadata_max = kUserMetadataBytesMax);

// write: u32 count, u32 zero, WriteItems, then the encoded ValueHeaders. Payload: the values, in order. The
// epoch in the frame's header is the grant's; answer: u32 count, i16 status each (OK, SEALED, NO_RANGE,
// STALE_GRANT, ...).
struct WriteItem {
    ReplicaId replica = 0;
    SegmentId segment = 0;
    std::uint64_t length = 0;
    std::uint32_t header_bytes = 0;
    std::uint32_t flags = 0;  // none yet
};
static_assert(sizeof(WriteItem) == 32);
struct Write {
    std::vector<WriteItem> items;
    std::vector<Bytes> headers;       // encoded ValueHeaders; parse_value_header checks each
    std::uint64_t payload_bytes = 0;  // the sum of lengths
};
void encode_write(std::span<const WriteItem> items, std::span<const Buffer> headers, Writer& writer);
std::optional<Write> parse_write(Bytes body);

}  // namespace mooncake::wire
