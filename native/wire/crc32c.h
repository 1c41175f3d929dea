// CRC-32C (Castagnoli), the checksum of every value, record and frame.
//
// Owns the choice of the fastest implementation this processor has, made once per process. Must not know what
// is checksummed or what a mismatch means.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace mooncake::wire {

/// Continues `crc` over `size` bytes. A checksum starts at 0: crc32c(0, "123456789") == 0xE3069283, and
/// crc32c(crc32c(0, a), b) == crc32c(0, ab). The usual inversions before and after are inside.
[[nodiscard]] uint32_t crc32c(uint32_t crc, const void* data, size_t size) noexcept;

/// The checksum of ab from crc_a == crc32c(0, a), crc_b == crc32c(0, b) and b's length, in O(log length_b).
[[nodiscard]] uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b) noexcept;

/// Copies `size` bytes and continues `crc` over them; the source is read from memory once.
/// `destination` and `source` must not overlap.
[[nodiscard]] uint32_t crc32c_copy(uint32_t crc, void* destination, const void* source, size_t size) noexcept;

/// One way to compute it, over the inverted state. For tests and benchmarks; others call crc32c().
struct Crc32cImplementation {
    std::string_view name;
    uint32_t (*update)(uint32_t state, const uint8_t* data, size_t size) noexcept;
    uint32_t (*copy)(uint32_t state, uint8_t* to, const uint8_t* from, size_t size) noexcept;
};

/// All that this processor can run, slowest first; the last one is what crc32c() uses. Never empty.
[[nodiscard]] std::span<const Crc32cImplementation> crc32c_implementations() noexcept;

/// The name of the implementation that crc32c() uses, for `doctor` and benchmarks.
[[nodiscard]] std::string_view crc32c_implementation() noexcept;

}  // namespace mooncake::wire
