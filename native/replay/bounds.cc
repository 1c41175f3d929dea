#include "replay/bounds.h"

#include <algorithm>
#include <cassert>

namespace mooncake::replay {

namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};

}  // namespace

Bound::Bound(std::span<const std::uint32_t> blocks, std::uint64_t capacity_blocks)
    : capacity_(capacity_blocks == 0 ? kNever : capacity_blocks), next_(blocks.size()) {
    const auto largest = std::max_element(blocks.begin(), blocks.end());
    due_.resize(largest == blocks.end() ? 0 : std::size_t{*largest} + 1, kNever);
    for (std::size_t i = blocks.size(); i-- > 0;) {
        next_[i] = due_[blocks[i]];
        due_[blocks[i]] = i;
    }
    std::fill(due_.begin(), due_.end(), 0);
}

void Bound::request(std::span<const std::uint32_t> blocks) {
    assert(score_.accesses + blocks.size() <= next_.size());
    bool is_prefix = true;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const bool hit = due_[blocks[i]] != 0;
        is_prefix = is_prefix && hit;
        score_.hits += hit ? 1u : 0u;
        score_.prefix_hits += is_prefix ? 1u : 0u;
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const std::uint64_t next = next_[score_.accesses + i];
        held_count_ += due_[blocks[i]] == 0 ? 1u : 0u;
        due_[blocks[i]] = next;
        if (capacity_ == kNever) continue;
        heap_.push_back({next, blocks[i]});
        std::push_heap(heap_.begin(), heap_.end());
    }
    while (held_count_ > capacity_) drop_last();
    score_.accesses += blocks.size();
    ++score_.requests;
}

void Bound::drop_last() {
    std::pop_heap(heap_.begin(), heap_.end());
    const Held last = heap_.back();
    heap_.pop_back();
    if (due_[last.block] != last.next) return;
    due_[last.block] = 0;
    --held_count_;
}

}  // namespace mooncake::replay
