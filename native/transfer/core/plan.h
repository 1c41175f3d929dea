// Cuts one call's items into the requests that carry them.
//
// Neighbours are joined, so that a batch of consecutive blocks needs one descriptor; what is long is cut, so
// that several connections share it. Decides how much a request carries and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/transfer.h"

namespace mooncake::transfer {

// One piece of memory here and as much of the peer's.
struct Item {
    std::uint64_t local = 0;
    std::uint64_t remote = 0;
    std::uint64_t length = 0;
};

// What one request carries: pieces of either side, both with the same bytes in the same order.
struct Portion {
    std::vector<wire::MemoryRange> remote;
    std::vector<wire::MemoryRange> local;
    std::uint64_t bytes = 0;
};

class Plan {
  public:
    // streams: connections that carry requests at the same time.
    Plan(std::span<const Item> items, std::size_t streams);

    // An item that goes beyond the last address, or a sum beyond kValueBytesMax: nothing is planned.
    bool is_sound() const { return is_sound_; }
    std::uint64_t total_bytes() const { return total_bytes_; }
    bool done() const { return next_ == items_.size(); }
    // Until done().
    Portion next();

  private:
    void skip_empty();

    std::span<const Item> items_;
    std::uint64_t total_bytes_ = 0;
    std::uint64_t portion_bytes_ = 0;
    std::size_t next_ = 0;
    std::uint64_t taken_ = 0;  // of items_[next_]
    bool is_sound_ = true;
};

}  // namespace mooncake::transfer
