// Bodies of the frames that only a connection within one host carries: a client maps a node's memory, takes
// references on values that it then reads there itself, and gives them back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "wire/bytes.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace mooncake::wire {

// map: no body. Its answer: u32 count, u32 zero, MapRecords, u64 view_bytes_max; with it come the descriptors
// of those that are lent, in order.
enum MapFlags : std::uint32_t { kMapLent = 1 };
struct MapRecord {
    std::uint64_t offset = 0;  // of the segment in its file
    std::uint64_t bytes = 0;
    std::uint32_t flags = 0;  // MapFlags
    std::uint32_t zero = 0;
};
static_assert(sizeof(MapRecord) == 24);
struct MapReply {
    std::uint64_t view_bytes_max = 0;  // of values under references of one connection at a time
    std::vector<MapRecord> segments;
};
void encode(const MapReply& reply, Writer& writer);
std::optional<MapReply> parse_map_reply(Bytes body);

// open: as read (wire/data.h), of whole values: offset and length are not looked at. Its answer: u32 count,
// u32 zero, Opened records in the order of the items, then their user metadata.
struct Opened {
    std::uint64_t reference = 0;  // for close; 0: none was taken, and status says why
    std::uint64_t offset = 0;     // in the segment
    std::uint64_t size = 0;
    std::uint32_t checksum = 0;  // as the value's writer computed it
    Status status = Status::kOk;
    std::uint16_t metadata_bytes = 0;
    std::uint8_t segment = 0;  // as map counts them
    std::uint8_t has_checksum = 0;
    std::uint8_t zero[6] = {};
};
static_assert(sizeof(Opened) == 40);
struct OpenReply {
    std::vector<Opened> items;
    std::vector<std::string_view> metadata;  // one an item
};
void encode_open_reply(std::span<const Opened> items, std::span<const std::string_view> metadata,
                       Writer& writer);
std::optional<OpenReply> parse_open_reply(Bytes body);

// close: u32 count, u32 zero, u64 references. Not answered.
inline constexpr std::size_t kReferencesMax = 65'536;  // that one connection holds; in one close
void encode_close(std::span<const std::uint64_t> references, Writer& writer);
std::optional<std::vector<std::uint64_t>> parse_close(Bytes body);

}  // namespace mooncake::wire
