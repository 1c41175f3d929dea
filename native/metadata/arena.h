// Memory for records of a few sizes, named by 32-bit references: half the bytes of a pointer, and no
// allocator header a record. Chunks double from 64 KiB, and pages of a chunk that no record has used are not
// touched. A chunk starts where a large page does, or at least a cache line: a record of 192 bytes, say a
// head and a key of 115, then is three lines and not four.
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "metadata/memory.h"

namespace mooncake::metadata {

using Ref = std::uint32_t;  // of a record, in units of 16 bytes; 0 = none

class Arena {
  public:
    static constexpr std::size_t kUnitBytes = 16;
    static constexpr std::size_t kRecordUnitsMax = 80;  // a head of 64 bytes and a key of 1,024 need 68

    explicit Arena(PreferLargePages prefer_large_pages = nullptr) : prefer_large_pages_(prefer_large_pages) {}

    static constexpr std::size_t units(std::size_t bytes) { return (bytes + kUnitBytes - 1) / kUnitBytes; }

    // A record of at least `bytes`, not initialised. A freed one is used again first; where none fits
    // exactly a larger one is cut, never beneath `kUnitsMin`, and what was the start of a record stays one.
    Ref allocate(std::size_t bytes);
    // The size must be that of allocate. From now on the first 8 bytes read as zero, until used again.
    void free(Ref ref, std::size_t bytes);

    template <class T>
    T& at(Ref ref) const {
        const unsigned chunk = static_cast<unsigned>(std::bit_width(ref)) - 1;
        std::byte* start = chunks_[chunk].get() + (ref - (Ref{1} << chunk)) * kUnitBytes;
        return *reinterpret_cast<T*>(start);
    }

    std::size_t used_bytes() const { return used_units_ * kUnitBytes; }

  private:
    static constexpr unsigned kFirstChunk = 12;  // chunk c holds the references from 2^c to 2^(c+1) - 1
    struct Freed {
        std::uint64_t zero;
        Ref next;
    };

    Ref take_fresh(std::size_t units);
    void give(Ref ref, std::size_t units);

    const PreferLargePages prefer_large_pages_;
    std::array<Memory, 32> chunks_;
    std::array<Ref, kRecordUnitsMax + 1> freed_{};  // heads of the lists of freed records, by units
    Ref next_ = Ref{1} << kFirstChunk;
    std::size_t used_units_ = 0;
};

}  // namespace mooncake::metadata
