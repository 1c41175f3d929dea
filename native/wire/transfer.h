// Bodies of the frames between two transfer engines: one reads and writes the memory that the other
// registered, by address. The bytes themselves follow as the frame's payload, in the order of the ranges.
//
// Nothing of the store goes over these connections, and no store's frame over those of engines.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "wire/bytes.h"
#include "wire/limits.h"

namespace mooncake::wire {

// A name and a message together: as much as Mooncake's handshake carries.
inline constexpr std::size_t kNoticeBytesMax = 1u << 20;

// Memory of the process that is asked.
struct MemoryRange {
    std::uint64_t address = 0;
    std::uint64_t length = 0;

    bool operator==(const MemoryRange&) const = default;
};
static_assert(sizeof(MemoryRange) == 16);

// transfer_read, transfer_write: u32 count, u32 zero, MemoryRanges. Payload of a write's question: their
// bytes; of a read's answer, whose body is a u64 of how many: the same.
struct TransferRequest {
    std::vector<MemoryRange> ranges;
    std::uint64_t payload_bytes = 0;
};
void encode_transfer(std::span<const MemoryRange> ranges, Writer& writer);
// nullopt: malformed; so is an empty range, or one that goes beyond the last address.
std::optional<TransferRequest> parse_transfer(Bytes body);

// notify: u32 bytes of the name, u32 of the message, both. Answer: no body.
struct Notice {
    std::string_view name;
    std::string_view message;
};
void encode(const Notice& notice, Writer& writer);
std::optional<Notice> parse_notice(Bytes body);

// first_buffer: no body. Answer: the MemoryRange that was registered first; length 0: there is none.
std::optional<MemoryRange> parse_memory_range(Bytes body);

}  // namespace mooncake::wire
