#include "bindings/staging.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace mooncake::bindings {

namespace {

struct Kept {
    std::mutex mutex;  // innermost
    std::unique_ptr<std::uint8_t[]> memory;
    std::size_t capacity = 0;
};

// Never destroyed: a thread may give its block back while the process ends.
Kept& kept() {
    static Kept& only = *std::make_unique<Kept>().release();
    return only;
}

}  // namespace

Staging::Staging(std::size_t bytes) {
    {
        Kept& block = kept();
        const std::lock_guard lock(block.mutex);
        if (block.capacity >= bytes) {
            memory_ = std::move(block.memory);
            capacity_ = std::exchange(block.capacity, 0);
        }
    }
    if (memory_ != nullptr) return;
    capacity_ = std::max<std::size_t>(bytes, 1);
    memory_ = std::make_unique_for_overwrite<std::uint8_t[]>(capacity_);
}

// The larger of two is kept.
Staging::~Staging() {
    if (capacity_ > kStagingBytesMax) return;
    Kept& block = kept();
    const std::lock_guard lock(block.mutex);
    if (capacity_ <= block.capacity) return;
    block.memory.swap(memory_);
    block.capacity = capacity_;
}

}  // namespace mooncake::bindings
