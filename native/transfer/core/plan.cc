#include "transfer/core/plan.h"

#include <algorithm>

namespace mooncake::transfer {

namespace {

// Below it a second connection gains less than waking its other end costs.
constexpr std::uint64_t kPortionBytesMin = 1u << 20;
// A request of this size keeps a connection busy for some milliseconds: the round trip between two is lost
// in it, and connections that are not equally fast share a transfer evenly all the same.
constexpr std::uint64_t kPortionBytesMax = 16u << 20;

bool wraps(std::uint64_t address, std::uint64_t length) { return address + length < address; }

// Appends a piece, or lengthens the last one when it goes on there.
void append(std::vector<wire::MemoryRange>& pieces, std::uint64_t address, std::uint64_t length) {
    if (!pieces.empty() && pieces.back().address + pieces.back().length == address) {
        pieces.back().length += length;
    } else {
        pieces.push_back({address, length});
    }
}

}  // namespace

Plan::Plan(std::span<const Item> items, std::size_t streams) : items_(items) {
    for (const Item& item : items) {
        const bool fits = item.length <= wire::kValueBytesMax - total_bytes_;
        if (!fits || wraps(item.local, item.length) || wraps(item.remote, item.length)) {
            is_sound_ = false;
            next_ = items_.size();
            return;
        }
        total_bytes_ += item.length;
    }
    const std::uint64_t share = (total_bytes_ + streams - 1) / streams;
    portion_bytes_ = std::clamp(share, kPortionBytesMin, kPortionBytesMax);
    skip_empty();
}

void Plan::skip_empty() {
    while (next_ < items_.size() && taken_ == items_[next_].length) {
        ++next_;
        taken_ = 0;
    }
}

Portion Plan::next() {
    Portion portion;
    while (!done() && portion.bytes < portion_bytes_ && portion.remote.size() < wire::kBatchKeysMax) {
        const Item& item = items_[next_];
        const std::uint64_t length = std::min(item.length - taken_, portion_bytes_ - portion.bytes);
        append(portion.remote, item.remote + taken_, length);
        append(portion.local, item.local + taken_, length);
        portion.bytes += length;
        taken_ += length;
        skip_empty();
    }
    return portion;
}

}  // namespace mooncake::transfer
