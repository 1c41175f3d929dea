// Bytes received and not yet taken: grows as far as a frame needs and as fast as its bytes arrive, never at a
// peer's word alone, and lets go of large memory afterwards.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "net/iovecs.h"
#include "wire/bytes.h"

namespace mooncake::net {

class ReceiveBuffer {
  public:
    static constexpr std::size_t kInitialBytes = 64u << 10;
    static constexpr std::size_t kKeptBytes = 256u << 10;  // kept while empty; above it memory is given back

    wire::Bytes unread() const { return {data_.get() + begin_, end_ - begin_}; }
    bool empty() const { return begin_ == end_; }

    // What was consumed stays readable until room() or release_large().
    void consume(std::size_t n) { begin_ += n; }
    void add(std::size_t n) { end_ += n; }

    // Where to receive into: some bytes, at most as many as make unread() `wanted` long if that is more than
    // what fits now.
    std::span<std::uint8_t> room(std::size_t wanted) {
        const std::size_t held = end_ - begin_;
        if (held == 0) begin_ = end_ = 0;
        if (capacity_ < kInitialBytes) {
            reallocate(kInitialBytes);
        } else if (held == capacity_) {
            reallocate(std::min(std::max(wanted, held + 1), capacity_ * 4));
        } else if (begin_ > 0 && (capacity_ - begin_ < wanted || capacity_ - end_ < kInitialBytes / 4)) {
            std::memmove(data_.get(), data_.get() + begin_, held);
            begin_ = 0;
            end_ = held;
        }
        return {data_.get() + end_, capacity_ - end_};
    }

    void release_large() {
        if (empty() && capacity_ > kKeptBytes) {
            data_.reset();
            capacity_ = begin_ = end_ = 0;
        }
    }

    // Copies what is here into the front of `targets` (a null base: drops it) and advances them; how many
    // bytes.
    std::size_t drain_into(std::span<iovec>& targets) {
        const std::size_t before = begin_;
        skip_bytes(targets, 0);
        while (!empty() && !targets.empty()) {
            const std::size_t n = std::min(targets.front().iov_len, end_ - begin_);
            if (targets.front().iov_base != nullptr) {
                std::memcpy(targets.front().iov_base, data_.get() + begin_, n);
            }
            begin_ += n;
            skip_bytes(targets, n);
        }
        return begin_ - before;
    }

  private:
    void reallocate(std::size_t capacity) {
        auto data = std::make_unique_for_overwrite<std::uint8_t[]>(capacity);
        const std::size_t held = end_ - begin_;
        if (held > 0) std::memcpy(data.get(), data_.get() + begin_, held);
        data_ = std::move(data);
        capacity_ = capacity;
        begin_ = 0;
        end_ = held;
    }

    std::unique_ptr<std::uint8_t[]> data_;
    std::size_t capacity_ = 0;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

}  // namespace mooncake::net
