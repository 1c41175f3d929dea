#include "metadata/arena.h"

#include <stdexcept>

namespace mooncake::metadata {

namespace {
// A rest smaller than this could hold no object: a longer record is not cut for it.
constexpr std::size_t kRestUnitsMin = 5;
}  // namespace

Ref Arena::allocate(std::size_t bytes) {
    const std::size_t wanted = units(bytes);
    assert(wanted > 0 && wanted <= kRecordUnitsMax);
    used_units_ += wanted;
    if (freed_[wanted] != 0) {
        const Ref ref = freed_[wanted];
        freed_[wanted] = at<Freed>(ref).next;
        return ref;
    }
    for (std::size_t longer = wanted + kRestUnitsMin; longer <= kRecordUnitsMax; ++longer) {
        const Ref ref = freed_[longer];
        if (ref == 0) continue;
        freed_[longer] = at<Freed>(ref).next;
        give(static_cast<Ref>(ref + wanted), longer - wanted);
        return ref;
    }
    return take_fresh(wanted);
}

void Arena::free(Ref ref, std::size_t bytes) {
    used_units_ -= units(bytes);
    give(ref, units(bytes));
}

Ref Arena::take_fresh(std::size_t wanted) {
    unsigned chunk = static_cast<unsigned>(std::bit_width(next_)) - 1;
    const std::uint64_t end = std::uint64_t{1} << (chunk + 1);
    if (next_ + std::uint64_t{wanted} > end) {
        if (chunk == 31) throw std::length_error("64 GiB of records: lower max_keys");
        give(next_, static_cast<std::size_t>(end - next_));
        next_ = static_cast<Ref>(end);
        ++chunk;
    }
    if (chunks_[chunk] == nullptr) chunks_[chunk] = new_memory(kUnitBytes << chunk);
    const Ref ref = next_;
    next_ += static_cast<Ref>(wanted);
    const std::size_t before = (ref - (Ref{1} << chunk)) * kUnitBytes / kLargePageBytes;
    const std::size_t after = (next_ - (Ref{1} << chunk)) * kUnitBytes / kLargePageBytes;
    if (before != after && prefer_large_pages_ != nullptr) {
        prefer_large_pages_(chunks_[chunk].get() + before * kLargePageBytes, kLargePageBytes);
    }
    return ref;
}

void Arena::give(Ref ref, std::size_t count) {
    if (count == 0) return;
    at<Freed>(ref) = {0, freed_[count]};
    freed_[count] = ref;
}

}  // namespace mooncake::metadata
